// The clients of this machine: read when they are first looked at, and kept up to date by the bridge.

import type { Client } from '../../ipc/bindings';
import { readClients } from '../../ipc/commands';
import { bridge } from '../../state/bridge.svelte';
import { Loading } from '../../state/loading.svelte';

export class Clients {
  readonly #read = new Loading<Client[]>();
  /** Clients whose files were changed here, which may not have seen it yet. */
  changed = $state.raw<readonly string[]>([]);

  get list(): Client[] | null {
    return this.#read.value;
  }

  get error() {
    return this.#read.error;
  }

  ask(): Promise<void> {
    return this.#read.read(readClients);
  }

  /** Hears of every change; the returned function ends that. */
  follow(): () => void {
    return bridge.heard((change) => {
      if (change.type === 'clients') this.#read.value = change.clients;
    });
  }

  /** A client's file was changed here; this is how things stand with it now. */
  took(client: Client): void {
    this.#read.value = (this.#read.value ?? []).map((it) => (it.id === client.id ? client : it));
    this.changed = [...this.changed.filter((id) => id !== client.id), client.id];
  }
}
