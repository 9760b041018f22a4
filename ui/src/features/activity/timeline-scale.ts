// Where a call lies on the timeline of its run.

import type { Call } from '../../ipc/bindings';

export interface Bar {
  /** Per cent of the whole. */
  left: number;
  width: number;
}

/** Thinner bars could not be seen. */
const WIDTH_MIN = 0.6;

export function bar(call: Call, length: number): Bar {
  const whole = Math.max(length, 1);
  const left = Math.min(100 - WIDTH_MIN, (call.startMs / whole) * 100);
  const lasts = call.durationMs ?? Math.max(0, whole - call.startMs);
  return { left, width: Math.min(100 - left, Math.max(WIDTH_MIN, (lasts / whole) * 100)) };
}

/** Three to five round marks from 0 up to the length. */
export function marks(length: number): number[] {
  const rough = Math.max(length, 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((it) => it * power >= rough) ?? 10) * power;
  const count = Math.floor(length / step) + 1;
  return Array.from({ length: count }, (_, index) => index * step);
}
