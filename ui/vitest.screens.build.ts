// Builds the window against the browser host once, and serves it to all tests. Under tests Svelte builds
// its watchful form, which complains on the console of what is odd, and the tests listen.

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

/** As strict as the app's own, whose window may also speak with its bridge. */
const POLICY = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'";

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const root = fileURLToPath(new URL('.', import.meta.url));
  const outDir = await mkdtemp(join(tmpdir(), 'runbridge-ui-'));
  const shared = { root, mode: 'recorded', logLevel: 'warn' } as const;
  await build({ ...shared, build: { outDir, emptyOutDir: true } });
  const headers = { 'content-security-policy': POLICY };
  const server = await preview({ ...shared, build: { outDir }, preview: { host: '127.0.0.1', port: 0, strictPort: true, headers } });
  const address = server.resolvedUrls?.local[0];
  if (!address) throw new Error('the built window is not served');
  project.provide('address', address);
  return async () => {
    await server.close();
    await rm(outDir, { recursive: true });
  };
}
