// The values that a limit's slider stops at, and limits as people write them. The forms are those that
// the settings file and the variables take.

import { bytes, count, cpus, duration } from '../../format';
import type { Limit, LimitUnit } from '../../ipc/bindings';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

const times = [
  ...[0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 15, 20, 30, 45].map((it) => it * SECOND),
  ...[1, 1.5, 2, 3, 5, 10, 15, 20, 30, 45].map((it) => it * MINUTE),
  ...[1, 2, 3, 6, 12, 24].map((it) => it * HOUR),
];

/** Values for a slider from the limit's minimum to its usual maximum; the value in force is among them. */
export function stops(limit: Limit): number[] {
  const between = series(limit.unit).filter((it) => Number.isInteger(it) && it > limit.min && it < limit.usualMax);
  const none = limit.unit === 'cpu_thousandths' ? [0] : [];
  const all = new Set([...none, limit.min, ...between, limit.usualMax, limit.default, limit.value]);
  return [...all].sort((a, b) => a - b);
}

function series(unit: LimitUnit): number[] {
  switch (unit) {
    case 'milliseconds':
      return times;
    case 'bytes':
      return Array.from({ length: 44 }, (_, power) => [2 ** power, 1.5 * 2 ** power]).flat();
    case 'cpu_thousandths':
      return [250, 500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12_000, 16_000];
    case 'count':
      return Array.from({ length: 22 }, (_, power) => [2 ** power, 1.5 * 2 ** power]).flat();
    case 'characters':
      return Array.from({ length: 8 }, (_, power) => [1, 2, 5].map((it) => it * 10 ** power)).flat();
  }
}

/** A limit's value in words; `none` is what 0 CPUs are called. */
export function showLimit(unit: LimitUnit, value: number, none: string): string {
  switch (unit) {
    case 'milliseconds':
      return duration(value);
    case 'bytes':
      return bytes(value);
    case 'cpu_thousandths':
      return value === 0 ? none : cpus(value);
    case 'count':
    case 'characters':
      return count(value);
  }
}

/** What someone typed, in the limit's unit; `null` when it cannot be read. */
export function readLimit(unit: LimitUnit, text: string): number | null {
  const typed = text.trim().toLowerCase();
  if (unit === 'cpu_thousandths' && /^(none|unlimited|no limit|)$/.test(typed)) return 0;
  const pieces = [...typed.matchAll(/(\d[\d_,]*(?:\.\d+)?)\s*([a-z]*)\s*/g)];
  if (pieces.length === 0 || pieces.map((it) => it[0]).join('') !== typed) return null;
  // Several pieces are only how a duration is shown: `2 min 30 s`.
  if (pieces.length > 1 && unit !== 'milliseconds') return null;
  let sum = 0;
  for (const [, digits = '', suffix = ''] of pieces) {
    const scale = factor(unit, suffix);
    if (scale === null) return null;
    sum += Number(digits.replace(/[_,]/g, '')) * scale;
  }
  return Math.round(sum);
}

function factor(unit: LimitUnit, suffix: string): number | null {
  switch (unit) {
    case 'milliseconds':
      if (/^(|s|sec|secs|seconds?)$/.test(suffix)) return SECOND;
      if (/^(ms|msec|milliseconds?)$/.test(suffix)) return 1;
      if (/^(m|mins?|minutes?)$/.test(suffix)) return MINUTE;
      if (/^(h|hours?)$/.test(suffix)) return HOUR;
      return null;
    case 'bytes': {
      if (suffix === 'b') return 1;
      const power = ['k', 'm', 'g', 't'].findIndex((it) => new RegExp(`^${it}(i?b)?$`).test(suffix));
      // A bare number is somebody's `512m`, so it is not guessed at.
      return power < 0 ? null : 1024 ** (power + 1);
    }
    case 'cpu_thousandths':
      return /^(|cpus?)$/.test(suffix) ? 1000 : null;
    case 'count':
    case 'characters':
      return suffix === '' ? 1 : null;
  }
}
