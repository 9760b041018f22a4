// Something that is read by a command: on its way, there, or failed.

import type { ApiError } from '../ipc/bindings';
import { asApiError } from '../ipc/host';

export class Loading<T> {
  value = $state.raw<T | null>(null);
  error = $state.raw<ApiError | null>(null);
  #turn = 0;
  #refreshing = false;
  #stale = false;

  /** Reads it. What was there stays until the answer comes; an answer that was overtaken is dropped. */
  async read(send: () => Promise<T>): Promise<void> {
    const turn = ++this.#turn;
    try {
      const value = await send();
      if (turn !== this.#turn) return;
      this.value = value;
      this.error = null;
    } catch (thrown) {
      if (turn !== this.#turn) return;
      this.value = null;
      this.error = asApiError(thrown);
    }
  }

  /** As `read`, for what may change faster than it is read: changes during a read become one more. */
  async refresh(send: () => Promise<T>): Promise<void> {
    this.#stale = true;
    if (this.#refreshing) return;
    this.#refreshing = true;
    while (this.#stale) {
      this.#stale = false;
      await this.read(send);
    }
    this.#refreshing = false;
  }

  /** Forgets what was read, for another thing. */
  clear(): void {
    this.#turn += 1;
    this.value = null;
    this.error = null;
  }
}
