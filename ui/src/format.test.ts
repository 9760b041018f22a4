import { expect, test } from 'vitest';
import { bytes, count, countShort, cpus, duration, list, logText, moment } from './format';

test('sizes are powers of 1024', () => {
  expect([0, 1023, 1024, 1536, 512 * 1024 ** 2, 1.5 * 1024 ** 3].map(bytes)).toEqual([
    '0 B',
    '1,023 B',
    '1 KiB',
    '1.5 KiB',
    '512 MiB',
    '1.5 GiB',
  ]);
});

test('durations have at most two units, and never 60 of the smaller one', () => {
  expect([0, 31, 999, 1000, 1240, 59_940, 60_000, 119_600, 125_000, 3_600_000, 5_430_000].map(duration)).toEqual([
    '0 ms',
    '31 ms',
    '999 ms',
    '1 s',
    '1.2 s',
    '59.9 s',
    '1 min',
    '2 min',
    '2 min 5 s',
    '1 h',
    '1 h 31 min',
  ]);
});

test('short numbers keep their size and lose their digits', () => {
  expect([7, 999, 1000, 15_854, 99_960, 274_283, 1_220_000].map(countShort)).toEqual(['7', '999', '1k', '15.9k', '100k', '274k', '1.2M']);
  expect(count(274_283)).toBe('274,283');
  expect([250, 1000, 1500].map(cpus)).toEqual(['0.25', '1', '1.5']);
});

test('a moment says as much of the day as is needed', () => {
  const now = new Date(2026, 10, 30, 0, 20).getTime();
  expect(moment(new Date(2026, 10, 30, 0, 5).getTime(), now)).toBe('00:05');
  expect(moment(new Date(2026, 10, 29, 23, 58).getTime(), now)).toBe('yesterday 23:58');
  expect(moment(new Date(2026, 2, 3, 9, 0).getTime(), now)).toBe('3 Mar 09:00');
  expect(moment(new Date(2025, 11, 31, 9, 0).getTime(), now)).toBe('31 Dec 2025');
});

test('names are joined as in a sentence', () => {
  expect([list([]), list(['a']), list(['a', 'b']), list(['a', 'b', 'c'])]).toEqual(['', 'a', 'a and b', 'a, b and c']);
});

test('a log is one text, and says whose it is only where that is not known', () => {
  const at = new Date(2026, 10, 30, 9, 5, 7).getTime();
  const line = { server: 'github', at, severity: 'warning' as const, logger: null, text: 'slow' };
  const lines = [line, { ...line, logger: 'db' }];
  expect(logText(lines, true)).toBe('09:05:07 warning github: slow\n09:05:07 warning github db: slow');
  expect(logText(lines, false)).toBe('09:05:07 warning: slow\n09:05:07 warning db: slow');
});
