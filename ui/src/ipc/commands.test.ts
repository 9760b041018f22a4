import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const read = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8');

test('there is one line for every command of the bridge, and none besides', () => {
  const bindings = read('bindings.ts');
  const table = bindings.slice(bindings.indexOf('export interface Commands {'));
  const defined = [...table.matchAll(/^ {2}(\w+): \{ arguments/gm)].map((it) => it[1]);
  const used = [...read('commands.ts').matchAll(/^export const \w+ = command\('(\w+)'\);$/gm)].map((it) => it[1]);
  expect(defined.length).toBeGreaterThan(40);
  expect(used).toEqual(defined);
});
