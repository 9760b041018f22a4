// Builds the window against the browser host once, and serves it to all tests.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, preview } from 'vite';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  interface ProvidedContext {
    address: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const root = fileURLToPath(new URL('.', import.meta.url));
  const outDir = await mkdtemp(join(tmpdir(), 'runbridge-ui-'));
  const shared = { root, mode: 'recorded', logLevel: 'warn' } as const;
  await build({ ...shared, build: { outDir, emptyOutDir: true } });
  const server = await preview({
    ...shared,
    build: { outDir },
    preview: { host: '127.0.0.1', port: 0, strictPort: true },
  });
  const address = server.resolvedUrls?.local[0];
  if (!address) throw new Error('the built window is not served');
  project.provide('address', address);
  return async () => {
    await server.close();
    await rm(outDir, { recursive: true });
  };
}
