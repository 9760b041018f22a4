// What may know what, in the window: read from the sources.

import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { words } from './words';

const root = dirname(fileURLToPath(import.meta.url));

const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .filter((path) => /\.(ts|svelte|css)$/.test(path) && !path.endsWith('.test.ts'))
  .map((path) => ({ path, text: readFileSync(join(root, path), 'utf8') }));

const imports = files.flatMap(({ path, text }) =>
  [...text.matchAll(/(?:from|import\(?) ?'([^']+)'/g)].map(([, target = '']) => ({
    path,
    target: target.startsWith('.') ? relative(root, resolve(root, dirname(path), target)) : target,
  })),
);

const area = (path: string): string => path.split('/')[0] ?? '';
const feature = (path: string): string => path.split('/').slice(0, 2).join('/');

test('the sources were found', () => {
  expect(files.length).toBeGreaterThan(50);
  expect(imports.length).toBeGreaterThan(200);
});

test('components know nothing of ours', () => {
  const allowed = ['components', 'svelte', 'uplot'];
  expect(imports.filter((it) => area(it.path) === 'components' && !allowed.includes(area(it.target)))).toEqual([]);
});

test('features know components, ipc, state, format and words, and never one another', () => {
  const wrong = imports.filter(({ path, target }) => {
    if (area(path) !== 'features' || target === 'svelte') return false;
    return feature(target) !== feature(path) && !['components', 'ipc', 'state', 'format', 'words'].includes(area(target));
  });
  expect(wrong).toEqual([]);
});

test('only ipc speaks with Tauri', () => {
  expect(imports.filter((it) => it.target.startsWith('@tauri-apps') && area(it.path) !== 'ipc')).toEqual([]);
});

test('raw colours stand in the tokens alone', () => {
  const raw = /#[0-9a-f]{3,8}\b(?=[;,\s)'"])|\brgba?\(|\bhsla?\(|\boklch\(/i;
  const wrong = files
    .filter((it) => it.path !== 'styles/tokens.css' && !it.path.startsWith('ipc/'))
    .filter(({ path, text }) => raw.test(path.endsWith('.svelte') ? text.slice(text.indexOf('<style')) : text));
  expect(wrong.map((it) => it.path)).toEqual([]);
});

test('the words are calm: no exclamation marks, no emoji, no straight apostrophes', () => {
  const said: string[] = [];
  const walk = (value: unknown): void => {
    if (typeof value === 'string') said.push(value);
    else if (typeof value === 'function') said.push(String((value as (...args: string[]) => string)('1', '2', '3')));
    else if (value && typeof value === 'object') Object.values(value).forEach(walk);
  };
  walk({ ...words, explain: null });
  expect(said.length).toBeGreaterThan(250);
  expect(said.filter((it) => /!|\p{Extended_Pictographic}|\w'\w/u.test(it))).toEqual([]);
});

test('views hold no sentences', () => {
  const wrong = files
    .filter((it) => it.path.endsWith('.svelte'))
    .flatMap(({ path, text }) => {
      const markup = text.replace(/<script[\s\S]*?<\/script>|<style[\s\S]*?<\/style>|<!--[\s\S]*?-->/g, '').replace(/\{[^{}]*\}/g, '');
      return [...markup.matchAll(/>\s*([A-Z][a-z]+ [a-z][^<{]*)</g)].map((it) => `${path}: ${it[1]}`);
    });
  expect(wrong).toEqual([]);
});
