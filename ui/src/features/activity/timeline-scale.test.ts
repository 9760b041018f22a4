import { expect, test } from 'vitest';
import type { Call } from '../../ipc/bindings';
import { bar, marks } from './timeline-scale';

const call = (startMs: number, durationMs: number | null): Call => ({
  id: '1',
  server: 's',
  tool: 't',
  arguments: '{}',
  startMs,
  durationMs,
  state: durationMs === null ? { type: 'open' } : { type: 'done' },
  resultBytes: null,
});

test('marks are round, start at 0 and are few', () => {
  for (const length of [1, 31, 340, 1840, 30_004, 120_000]) {
    const all = marks(length);
    expect(all[0]).toBe(0);
    expect(all.length).toBeGreaterThanOrEqual(2);
    expect(all.length).toBeLessThanOrEqual(6);
    expect(Math.max(...all)).toBeLessThanOrEqual(length);
  }
  expect(marks(1840)).toEqual([0, 500, 1000, 1500]);
});

test('a bar stays inside the track and can be seen', () => {
  for (const it of [bar(call(0, 0), 1000), bar(call(1000, 500), 1000), bar(call(999, null), 1000), bar(call(5, 5), 0)]) {
    expect(it.left).toBeGreaterThanOrEqual(0);
    expect(it.width).toBeGreaterThan(0.1);
    expect(it.left + it.width).toBeLessThanOrEqual(100.0001);
  }
  expect(bar(call(250, null), 1000)).toEqual({ left: 25, width: 75 });
});
