import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// The mode `recorded` builds the window against the browser host, for development and screen tests;
// every other build leaves that host and its data out.
export default defineConfig(({ mode }) => ({
  plugins: [svelte()],
  // Under tests, Svelte's browser half is wanted although Node runs it.
  resolve: mode === 'test' ? { conditions: ['browser'] } : {},
  clearScreen: false,
  server: { port: 5173, strictPort: true },
  build: {
    // WebKitGTK 2.40 is the oldest webview that the desktop packages meet.
    target: ['safari16', 'chrome110'],
    cssTarget: ['safari16', 'chrome110'],
    modulePreload: { polyfill: false },
  },
  test: {
    environment: 'happy-dom',
    include: ['src/**/*.test.ts'],
  },
}));
