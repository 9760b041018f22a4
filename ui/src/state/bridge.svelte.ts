// The one store: the bridge's state, then its changes applied in order.
//
// It does not know what is shown. A view that needs more than the state reads it by a command and
// hears of changes by `heard`; `epoch` rises when changes were missed and everything must be read again.

import type { ApiError, BridgeEvent, Change, State } from '../ipc/bindings';
import { getState } from '../ipc/commands';
import { asApiError, host } from '../ipc/host';
import { reduce } from './reduce';
import { toasts } from './toasts.svelte';

/** Events that wait for the state they belong to; beyond it the state is asked for again. */
const WAITING_MAX = 1000;

class Bridge {
  state = $state.raw<State | null>(null);
  /** Why there is no state. */
  error = $state.raw<ApiError | null>(null);
  epoch = $state(0);

  #listeners = new Set<(change: Change) => void>();
  #waiting: BridgeEvent[] = [];
  #asking = false;

  /** Listens first and asks then, so that no change falls between. */
  async open(): Promise<void> {
    try {
      await (await host()).listen((event) => this.#receive(event));
    } catch (thrown) {
      this.error = asApiError(thrown);
      return;
    }
    await this.ask();
  }

  /** Asks for the whole state. */
  async ask(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    this.error = null;
    try {
      const state = await getState();
      const late = this.#waiting.filter((event) => event.seq > state.seq);
      this.#waiting = [];
      this.state = state;
      this.epoch += 1;
      this.#asking = false;
      for (const event of late) this.#receive(event);
    } catch (thrown) {
      this.error = asApiError(thrown);
      this.state = null;
    } finally {
      this.#asking = false;
    }
  }

  /** Calls back on every change; the returned function ends it. */
  heard(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Shows what a command will do, sends it, and takes the showing back with a toast if it fails.
   * `show` and `undo` each touch only what the command changes, since other changes may come between.
   */
  async attempt(show: (state: State) => State, undo: (state: State) => State, send: () => Promise<unknown>): Promise<void> {
    if (this.state) this.state = show(this.state);
    try {
      await send();
    } catch (thrown) {
      if (this.state) this.state = undo(this.state);
      toasts.error(asApiError(thrown));
    }
  }

  #receive(event: BridgeEvent): void {
    if (this.#asking || !this.state) {
      if (this.#waiting.length >= WAITING_MAX) this.#waiting.shift();
      this.#waiting.push(event);
      return;
    }
    if (event.seq <= this.state.seq) return;
    if (event.seq > this.state.seq + 1) {
      this.#waiting.push(event);
      void this.ask();
      return;
    }
    this.state = { ...reduce(this.state, event.change), seq: event.seq };
    for (const listener of this.#listeners) listener(event.change);
  }
}

export const bridge = new Bridge();

/** Sends a command whose failure only needs telling; says whether it went well. */
export async function told(send: () => Promise<unknown>): Promise<boolean> {
  try {
    await send();
    return true;
  } catch (thrown) {
    toasts.error(asApiError(thrown));
    return false;
  }
}
