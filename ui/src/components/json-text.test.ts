import { expect, test } from 'vitest';
import { parseJson, prettyJson } from './json-text';

test('numbers keep every digit that was written', () => {
  const text = '{"big": 1180591620717411303424, "small": 0.1, "exp": -2.50e-10}';
  expect(prettyJson(text)).toBe('{\n  "big": 1180591620717411303424,\n  "small": 0.1,\n  "exp": -2.50e-10\n}');
});

test('a string keeps escapes that a plain reader would lose', () => {
  const { node } = parseJson('"a\\u00e9\\n\\ud83d\\ude00\\"\\\\"');
  expect(node).toEqual({ kind: 'string', value: 'aé\n😀"\\' });
  expect(prettyJson('["\\u0000"]')).toBe('[\n  "\\u0000"\n]');
});

test.each([
  ['', 'end', 1, 1],
  ['{"a": 1', 'end', 1, 8],
  ['{"a" 1}', 'colon', 1, 6],
  ['{\n  "a": 1,\n}', 'key', 3, 1],
  ['[1 2]', 'comma', 1, 4],
  ['[1,]', 'value', 1, 4],
  ['{"a": 1} x', 'rest', 1, 10],
  ['["open', 'string', 1, 2],
  ['["a\\x"]', 'escape', 1, 4],
  ['["a\tb"]', 'control', 1, 4],
  ['[01]', 'number', 1, 2],
  ['[+1]', 'number', 1, 2],
  ['[NaN]', 'value', 1, 2],
  ["{'a': 1}", 'key', 1, 2],
  ['['.repeat(300), 'deep', 1, 202],
])('%j: the error %s is at line %i, column %i', (text, kind, line, column) => {
  expect(parseJson(text).error).toEqual({ kind, line, column });
});

test('what JSON.parse takes is taken, and nothing else', () => {
  const texts = [
    'null',
    ' [ ] ',
    '{"":{}}',
    '1e5',
    '-0',
    '"\\/"',
    '[[[[1]]]]',
    'tru',
    '1.',
    '.5',
    '"\u007f"',
    '[1]]',
    '{"a":1,"a":2}',
    '{,}',
  ];
  for (const text of texts) {
    let valid = true;
    try {
      JSON.parse(text);
    } catch {
      valid = false;
    }
    expect([text, parseJson(text).error === null]).toEqual([text, valid]);
  }
});
