// Numbers, sizes, durations and moments as people read them. Sentences are in `words.ts`.

import type { LogLine } from './ipc/bindings';

const locale = 'en-GB';
const whole = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });
const hundredths = new Intl.NumberFormat(locale, { maximumFractionDigits: 2 });

export function count(value: number): string {
  return whole.format(value);
}

/** `15.9k`: for rows, where only the size of the number matters. */
export function countShort(value: number): string {
  if (value < 1000) return whole.format(value);
  if (value < 99_950) return `${tenths.format(value / 1000)}k`;
  if (value < 999_500) return `${whole.format(value / 1000)}k`;
  return `${tenths.format(value / 1_000_000)}M`;
}

/** Powers of 1024, as the limits are. */
export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  let size = value;
  while (size >= 1024 && at < units.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${(size < 10 && at > 0 ? tenths : whole).format(size)} ${units[at]}`;
}

export function duration(ms: number): string {
  if (ms < 1000) return `${whole.format(ms)} ms`;
  if (ms < 60_000) return `${tenths.format(ms / 1000)} s`;
  if (ms < 3_600_000) return joined(ms, 60_000, 'min', 1000, 's');
  return joined(ms, 3_600_000, 'h', 60_000, 'min');
}

function joined(ms: number, large: number, largeUnit: string, small: number, smallUnit: string): string {
  const rounded = Math.round(ms / small) * small;
  const rest = (rounded % large) / small;
  const first = `${whole.format(Math.floor(rounded / large))} ${largeUnit}`;
  return rest === 0 ? first : `${first} ${whole.format(rest)} ${smallUnit}`;
}

export function cpus(thousandths: number): string {
  return hundredths.format(thousandths / 1000);
}

export function percent(share: number): string {
  return `${whole.format(share * 100)} %`;
}

const time = new Intl.DateTimeFormat(locale, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const timeSeconds = new Intl.DateTimeFormat(locale, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const day = new Intl.DateTimeFormat(locale, { day: 'numeric', month: 'short' });
const dayYear = new Intl.DateTimeFormat(locale, { day: 'numeric', month: 'short', year: 'numeric' });

/**
 * `14:02`, `yesterday 14:02`, `12 Mar 14:02`, `12 Mar 2025`. The clock and not “3 minutes ago”, since
 * that would be false a minute later or need a timer.
 */
export function moment(at: number, now: number): string {
  const date = new Date(at);
  const days = Math.round((midnight(now) - midnight(at)) / 86_400_000);
  if (days === 0) return time.format(date);
  if (days === 1) return `yesterday ${time.format(date)}`;
  if (date.getFullYear() === new Date(now).getFullYear()) return `${day.format(date)} ${time.format(date)}`;
  return dayYear.format(date);
}

/** With seconds and always the day, for one thing looked at closely. */
export function momentExact(at: number): string {
  const date = new Date(at);
  return `${dayYear.format(date)} ${timeSeconds.format(date)}`;
}

/** Lines of servers' logs, one below the other: when, how much it matters, who, what. */
export function logText(lines: readonly LogLine[], named: boolean): string {
  return lines
    .map((line) => {
      const who = [named ? line.server : null, line.logger].filter(Boolean).join(' ');
      return `${timeSeconds.format(new Date(line.at))} ${line.severity}${who && ` ${who}`}: ${line.text}`;
    })
    .join('\n');
}

function midnight(at: number): number {
  return new Date(at).setHours(0, 0, 0, 0);
}

/** `a`, `a and b`, `a, b and c`. */
export function list(names: readonly string[]): string {
  return new Intl.ListFormat(locale, { type: 'conjunction' }).format(names);
}
