// What several views read out of the state.

import type { Attention, Server, State } from '../ipc/bindings';

/** Servers that are on and cannot work without the user. */
export function serversInTrouble(state: State): Server[] {
  return state.servers.filter(inTrouble);
}

export function inTrouble(server: Server): boolean {
  const { type } = server.state;
  return server.enabled && (type === 'failed' || type === 'needs_value' || type === 'needs_sign_in');
}

/** The four steps of a first run, in order. */
export interface FirstSteps {
  sandbox: boolean;
  servers: boolean;
  client: boolean;
  run: boolean;
}

export function firstSteps(state: State): FirstSteps {
  return {
    sandbox: state.sandbox.state.type === 'ready',
    servers: state.servers.length > 0,
    client: state.seen.client,
    run: state.seen.run,
  };
}

/** What needs the user, the worst first. */
export function attention(state: State): Attention[] {
  return [...state.attention].sort((a, b) => Number(b.level === 'error') - Number(a.level === 'error'));
}

/** The engine that is in use, as a name. */
export function engineName(state: State): string | null {
  const engine = state.sandbox.engines.find((it) => it.inUse);
  return engine ? [engine.name, engine.version].filter(Boolean).join(' ') : null;
}
