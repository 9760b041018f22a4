// A client's standing as shape, tone and word.

import type { StatusLook } from '../../components/status.svelte';
import type { Client, Connection } from '../../ipc/bindings';
import { words } from '../../words';

/** Connections of this client that are open now. */
export function attached(client: Client, connections: readonly Connection[]): Connection[] {
  return connections.filter((it) => {
    const announced = it.client.toLowerCase().replace(/[^\p{Letter}\p{Number}]/gu, '');
    return client.announces.some((name) => announced.startsWith(name));
  });
}

export function clientLook(client: Client, now: boolean): StatusLook {
  const word = words.clients.states;
  switch (client.state.type) {
    case 'connected':
    case 'extension':
      return now ? { icon: 'ok', tone: 'ok', word: word.now } : { icon: 'check', tone: 'ok', word: word.connected };
    case 'not_connected':
      // It may know us in another way than by its file.
      if (now) return { icon: 'ok', tone: 'ok', word: word.now };
      return { icon: 'idle', tone: 'quiet', word: word.not_connected };
    case 'several':
      return { icon: 'idle', tone: 'quiet', word: word.several };
    case 'lost':
    case 'shadowed':
      return { icon: 'error', tone: 'danger', word: word.lost };
    case 'changed':
      return { icon: 'warn', tone: 'warn', word: word.changed };
    case 'name_taken':
      return { icon: 'warn', tone: 'warn', word: word.name_taken };
    case 'forbidden':
      return { icon: 'lock', tone: 'warn', word: word.forbidden };
    case 'unreadable':
      return { icon: 'error', tone: 'danger', word: word.unreadable };
  }
}

/** Whether pressing Connect can come to anything. */
export function canConnect(client: Client): boolean {
  switch (client.state.type) {
    case 'not_connected':
    case 'several':
    case 'lost':
    case 'shadowed':
    case 'changed':
      return true;
    case 'unreadable':
      return client.state.markOnly;
    case 'connected':
    case 'extension':
    case 'name_taken':
    case 'forbidden':
      return false;
  }
}

/** What the bridge says as a part of a sentence, as one of its own. */
export function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
