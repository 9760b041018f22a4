// What is built for the app: by the command that the app's build runs.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

/** The window is to be usable within a second of the app's start; more script would cost that. */
const SCRIPT_BYTES_MAX = 300_000;

test('the app’s window carries no recorded data, loads nothing from elsewhere, and is small', () => {
  const outDir = mkdtempSync(join(tmpdir(), 'runbridge-product-'));
  try {
    const { NODE_ENV: _, ...env } = process.env;
    execFileSync('npm', ['run', '--silent', 'build', '--', '--outDir', outDir, '--emptyOutDir', '--logLevel', 'error'], {
      cwd: fileURLToPath(new URL('../../ui', import.meta.url)),
      env,
    });
    const files = readdirSync(outDir, { recursive: true, encoding: 'utf8' }).filter((it) => /\.(js|css|html)$/.test(it));
    const text = files.map((it) => readFileSync(join(outDir, it), 'utf8')).join('\n');
    expect(text.includes('get_state')).toBe(true);
    expect(text.includes('/home/ada')).toBe(false);
    expect(text.match(/(src|href)="https?:|@import|url\(https?:|<script>/g)).toBeNull();
    const script = files.filter((it) => it.endsWith('.js')).reduce((sum, it) => sum + readFileSync(join(outDir, it)).length, 0);
    expect(script).toBeLessThan(SCRIPT_BYTES_MAX);
  } finally {
    rmSync(outDir, { recursive: true });
  }
});
