import { expect, test } from 'vitest';
import { limits } from '../../ipc/recorded/data';
import type { LimitUnit } from '../../ipc/bindings';
import { readLimit, showLimit, stops } from './limit-scale';

test('every slider rises, stays in its range, and can stand on default and value', () => {
  for (const limit of limits().filter((it) => it.min < it.ceiling)) {
    const odd = { ...limit, value: limit.min + 1 };
    const scale = stops(odd);
    expect(scale, limit.name).toEqual([...new Set(scale)].sort((a, b) => a - b));
    expect(scale, limit.name).toEqual(expect.arrayContaining([odd.value, limit.default, limit.usualMax]));
    expect(Math.min(...scale) === 0 || Math.min(...scale) >= limit.min, limit.name).toBe(true);
    expect(Math.max(...scale), limit.name).toBe(limit.usualMax);
    expect(scale.length, limit.name).toBeGreaterThan(4);
  }
});

test('a value above the slider is shown at its end', () => {
  const [limit] = limits();
  if (!limit) throw new Error('no limit');
  const scale = stops({ ...limit, value: limit.usualMax * 3 });
  expect(scale.at(-1)).toBe(limit.usualMax * 3);
});

test.each<[LimitUnit, string, number | null]>([
  ['milliseconds', '30', 30_000],
  ['milliseconds', '500ms', 500],
  ['milliseconds', '2 min', 120_000],
  ['milliseconds', '2 min 30 s', 150_000],
  ['milliseconds', '1.5h', 5_400_000],
  ['milliseconds', 'soon', null],
  ['milliseconds', '30 parsecs', null],
  ['bytes', '512m', 536_870_912],
  ['bytes', '1.5 GiB', 1_610_612_736],
  ['bytes', '64MB', 67_108_864],
  ['bytes', '512', null],
  ['bytes', '1g 5m', null],
  ['cpu_thousandths', '1.5', 1500],
  ['cpu_thousandths', 'none', 0],
  ['count', '1,024', 1024],
  ['count', '12x', null],
  ['count', '-3', null],
  ['characters', '20000', 20_000],
])('%s: %j means %j', (unit, text, value) => {
  expect(readLimit(unit, text)).toBe(value);
});

test('what is shown can be typed again', () => {
  for (const limit of limits()) {
    for (const value of stops(limit)) {
      const shown = showLimit(limit.unit, value, 'no limit');
      expect([limit.name, shown, readLimit(limit.unit, shown)]).toEqual([limit.name, shown, value]);
    }
  }
});
