import { expect, test } from 'vitest';
import { splitCommandLine } from './command-line';

test.each([
  ['npx -y server  /home/ada', ['npx', '-y', 'server', '/home/ada']],
  ['a "b c" \'d e\' f\\ g', ['a', 'b c', 'd e', 'f g']],
  ['a "" b', ['a', '', 'b']],
  ['"C:\\Program Files\\x.exe" C:\\data\\y', ['C:\\Program Files\\x.exe', 'C:\\data\\y']],
  ['a "say \\"hi\\""', ['a', 'say "hi"']],
  ['  ', []],
  ['a "b', null],
])('%j becomes %j', (line, words) => {
  expect(splitCommandLine(line)).toEqual(words);
});
