// The switch of a server: shown at once, taken back if the bridge refuses.

import type { State } from '../../ipc/bindings';
import { setServerEnabled } from '../../ipc/commands';
import { bridge } from '../../state/bridge.svelte';

export function switchServer(name: string, enabled: boolean): Promise<void> {
  const set =
    (to: boolean) =>
    (state: State): State => ({
      ...state,
      servers: state.servers.map((it) => (it.name === name ? { ...it, enabled: to } : it)),
    });
  return bridge.attempt(set(enabled), set(!enabled), () => setServerEnabled({ server: name, enabled }));
}
