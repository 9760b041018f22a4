// Who answers commands: the desktop app, or recorded data in an ordinary browser.

import type { ApiError, BridgeEvent, Commands } from './bindings';

export type CommandName = keyof Commands;

export interface Host {
  invoke<K extends CommandName>(name: K, args: Commands[K]['arguments']): Promise<Commands[K]['result']>;
  /** Hands over every event from now on; the returned function ends it. */
  listen(handler: (event: BridgeEvent) => void): Promise<() => void>;
}

let chosen: Promise<Host> | null = null;

/** The host of this window, chosen once. */
export function host(): Promise<Host> {
  chosen ??= choose();
  return chosen;
}

async function choose(): Promise<Host> {
  // The condition is known when the window is built, so that the app carries no recorded data.
  if (import.meta.env.DEV || import.meta.env.MODE === 'recorded') {
    if (!('__TAURI_INTERNALS__' in window)) {
      const { recordedHost } = await import('./recorded/host');
      return recordedHost(new URLSearchParams(location.search));
    }
  }
  const { tauriHost } = await import('./tauri-host');
  return tauriHost;
}

/** What a command threw, as an error of ours. */
export function asApiError(thrown: unknown): ApiError {
  if (thrown && typeof thrown === 'object' && 'code' in thrown && 'message' in thrown) {
    return thrown as ApiError;
  }
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return { code: 'internal', message, hint: null, logId: null };
}
