import { expect, test } from 'vitest';
import { recordedRuns } from '../../ipc/recorded/runs';
import { applyToRun } from './live-run';

const [detail] = recordedRuns(1_800_000_000_000, 1);
if (!detail) throw new Error('no run');

test('changes of other runs leave the record as it is', () => {
  expect(applyToRun(detail, { type: 'run_output', runId: 'other', stream: 'stdout', text: 'x' })).toBe(detail);
  expect(applyToRun(detail, { type: 'paused', paused: true })).toBe(detail);
});

test('output is added to its stream and bounded', () => {
  const after = applyToRun(detail, { type: 'run_output', runId: detail.run.id, stream: 'stderr', text: 'x'.repeat(200_000) });
  expect(after.stderr.length).toBe(64 * 1024);
  expect(after.stdout).toBe(detail.stdout);
});

test('a call is added once and then replaced', () => {
  const [first] = detail.calls;
  if (!first) throw new Error('no call');
  const open = { ...first, id: 'new', state: { type: 'open' as const }, durationMs: null };
  const begun = applyToRun(detail, { type: 'call', runId: detail.run.id, call: open });
  const ended = applyToRun(begun, { type: 'call', runId: detail.run.id, call: { ...open, state: { type: 'done' }, durationMs: 5 } });
  expect(ended.calls.length).toBe(detail.calls.length + 1);
  expect(ended.calls.at(-1)?.durationMs).toBe(5);
});
