// A run's record with what happened since it was read.

import type { Change, RunDetail } from '../../ipc/bindings';

/** What is shown of a run that prints without end; all that was kept is read when it ended. */
const LIVE_CHARS_MAX = 64 * 1024;

/** The record after a change; the same object when the change is not of this run. */
export function applyToRun(detail: RunDetail, change: Change): RunDetail {
  switch (change.type) {
    case 'run':
      return change.run.id === detail.run.id ? { ...detail, run: change.run } : detail;
    case 'run_output': {
      if (change.runId !== detail.run.id) return detail;
      const text = (detail[change.stream] + change.text).slice(-LIVE_CHARS_MAX);
      return { ...detail, [change.stream]: text };
    }
    case 'call': {
      if (change.runId !== detail.run.id) return detail;
      const known = detail.calls.some((it) => it.id === change.call.id);
      const calls = known ? detail.calls.map((it) => (it.id === change.call.id ? change.call : it)) : [...detail.calls, change.call];
      return { ...detail, calls };
    }
    default:
      return detail;
  }
}
