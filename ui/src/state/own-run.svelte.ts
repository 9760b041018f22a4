// A run that this window asked for, followed to its end.

import type { RunDetail } from '../ipc/bindings';
import { readRun, runCode } from '../ipc/commands';
import { bridge, told } from './bridge.svelte';

/** What is shown of a run that prints without end; all that was kept is in its record. */
const LIVE_CHARS_MAX = 20_000;

export class OwnRun {
  /** The run while it goes on. */
  id = $state<string | null>(null);
  startedAt = $state(0);
  /** What it has printed so far. */
  live = $state('');
  /** The run whole, once it has ended. */
  ended = $state.raw<RunDetail | null>(null);

  async start(code: string): Promise<void> {
    if (this.id !== null) return;
    this.ended = null;
    this.live = '';
    this.startedAt = Date.now();
    await told(async () => {
      this.id = await runCode({ code });
      // It may have ended before its identifier was known here.
      await this.#look(this.id);
    });
  }

  /** Hears of what the run prints and of its end; the returned function ends that. */
  follow(): () => void {
    return bridge.heard((change) => {
      if (change.type === 'run_output' && change.runId === this.id) {
        this.live = (this.live + change.text).slice(-LIVE_CHARS_MAX);
      } else if (change.type === 'run' && change.run.id === this.id && change.run.durationMs !== null) {
        const { id } = change.run;
        void told(() => this.#look(id));
      }
    });
  }

  async #look(id: string): Promise<void> {
    const detail = await readRun({ id });
    if (this.id !== id || detail.run.durationMs === null) return;
    this.ended = detail;
    this.id = null;
  }
}
