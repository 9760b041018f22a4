import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const path = (below: string): string => fileURLToPath(new URL(below, import.meta.url));

// The screen tests stand beside all other tests, outside the package that has their tools.
export default defineConfig({
  root: path('../tests/ui'),
  cacheDir: path('node_modules/.vite'),
  resolve: {
    alias: ['axe-core', 'playwright-core'].map((name) => ({ find: name, replacement: path(`node_modules/${name}`) })),
  },
  server: { fs: { allow: [path('..')] } },
  test: {
    environment: 'node',
    include: ['*.test.ts'],
    globalSetup: [path('vitest.screens.build.ts')],
    // One browser at a time: pictures and focus belong to one window.
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
