// States as shape, tone and word, the same wherever they are shown.

import type { StatusLook } from '../components/status.svelte';
import type { CallState, EngineState, RunStatus, Server } from '../ipc/bindings';
import { words } from '../words';

export function serverLook(server: Server): StatusLook {
  const word = words.servers.states;
  if (!server.enabled) return { icon: 'off', tone: 'quiet', word: word.off };
  switch (server.state.type) {
    case 'stopped':
      return { icon: 'idle', tone: 'quiet', word: word.stopped };
    case 'starting':
      return { icon: 'busy', tone: 'info', word: word.starting };
    case 'ready':
      return { icon: 'ok', tone: 'ok', word: word.ready };
    case 'failed':
      return { icon: 'error', tone: 'danger', word: word.failed };
    case 'needs_value':
      return { icon: 'key', tone: 'warn', word: word.needs_value };
    case 'needs_sign_in':
      return { icon: 'lock', tone: 'warn', word: word.needs_sign_in };
  }
}

const runs: Record<RunStatus, Omit<StatusLook, 'word'>> = {
  queued: { icon: 'clock', tone: 'quiet' },
  running: { icon: 'busy', tone: 'info' },
  success: { icon: 'ok', tone: 'ok' },
  error: { icon: 'error', tone: 'danger' },
  timeout: { icon: 'clock', tone: 'warn' },
  cancelled: { icon: 'off', tone: 'quiet' },
  out_of_memory: { icon: 'memory', tone: 'warn' },
  validation_error: { icon: 'warn', tone: 'danger' },
  interrupted: { icon: 'off', tone: 'warn' },
};

export function runLook(status: RunStatus): StatusLook {
  return { ...runs[status], word: words.activity.statuses[status] };
}

export function callLook(state: CallState): StatusLook {
  switch (state.type) {
    case 'open':
      return { icon: 'busy', tone: 'info', word: words.activity.callOpen };
    case 'done':
      return { icon: 'ok', tone: 'ok', word: words.activity.callDone };
    case 'failed':
      return { icon: 'error', tone: 'danger', word: words.activity.callFailed };
  }
}

export function engineLook(state: EngineState, inUse: boolean): StatusLook {
  const word = words.sandbox.engineStates;
  switch (state.type) {
    case 'running':
      return inUse ? { icon: 'ok', tone: 'ok', word: word.in_use } : { icon: 'idle', tone: 'quiet', word: word.running };
    case 'stopped':
      return { icon: 'off', tone: 'quiet', word: word.stopped };
    case 'failed':
      return { icon: 'error', tone: 'danger', word: word.failed };
  }
}
