// Short messages at the window's edge: what failed, what can be undone.

import type { Toast } from '../components/toasts.svelte';
import type { ApiError } from '../ipc/bindings';
import { words } from '../words';

/** More would cover the window; the oldest goes. */
const SHOWN_MAX = 3;
/** Long enough to read two lines, and to reach Undo by keyboard. */
const SHOWN_MS = 8000;

class Toasts {
  list = $state.raw<readonly Toast[]>([]);
  #next = 1;
  #timers = new Map<number, ReturnType<typeof setTimeout>>();

  error(error: ApiError): void {
    this.#add({ tone: 'danger', title: words.error[error.code].title, text: words.explain(error), action: null });
  }

  info(title: string, text: string | null = null): void {
    this.#add({ tone: 'info', title, text, action: null });
  }

  undo(title: string, undo: () => void): void {
    this.#add({ tone: 'info', title, text: null, action: { label: words.undo, run: undo } });
  }

  dismiss(id: number): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
    this.list = this.list.filter((toast) => toast.id !== id);
  }

  /** While the pointer or the focus rests on them, none goes away by itself. */
  hold(held: boolean): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    if (!held) for (const toast of this.list) this.#expire(toast.id);
  }

  #add(toast: Omit<Toast, 'id'>): void {
    const id = this.#next++;
    this.list = [...this.list, { ...toast, id }];
    for (const old of this.list.slice(0, -SHOWN_MAX)) this.dismiss(old.id);
    this.#expire(id);
  }

  #expire(id: number): void {
    this.#timers.set(
      id,
      setTimeout(() => this.dismiss(id), SHOWN_MS),
    );
  }
}

export const toasts = new Toasts();
