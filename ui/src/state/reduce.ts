// The state after a change: pure, and the only place that knows what each change does.

import type { Change, State } from '../ipc/bindings';

export function reduce(state: State, change: Change): State {
  switch (change.type) {
    case 'connection':
      return { ...state, connections: replaced(state.connections, change.connection, (it) => it.id) };
    case 'connection_closed':
      return { ...state, connections: state.connections.filter((it) => it.id !== change.id) };
    case 'server':
      return { ...state, servers: replaced(state.servers, change.server, (it) => it.name).sort(byName) };
    case 'server_removed':
      return { ...state, servers: state.servers.filter((it) => it.name !== change.name) };
    case 'entries':
      return { ...state, problems: change.problems, skipped: change.skipped };
    case 'sandbox':
      return { ...state, sandbox: change.sandbox };
    case 'interpreter':
      return { ...state, interpreters: replaced(state.interpreters, change.interpreter, (it) => it.id) };
    case 'interpreter_stopped':
      return { ...state, interpreters: state.interpreters.filter((it) => it.id !== change.id) };
    case 'run': {
      const { run } = change;
      const live = run.status === 'queued' || run.status === 'running';
      return {
        ...state,
        runs: live ? replaced(state.runs, run, (it) => it.id) : state.runs.filter((it) => it.id !== run.id),
      };
    }
    case 'question':
      return { ...state, questions: replaced(state.questions, change.question, (it) => it.id) };
    case 'question_closed':
      return { ...state, questions: state.questions.filter((it) => it.id !== change.id) };
    case 'memory_saved':
    case 'memory_forgotten':
    case 'saved_tools':
      return { ...state, memory: change.totals };
    case 'limits':
      return { ...state, limits: change.limits };
    case 'settings':
      return { ...state, settings: change.settings };
    case 'app':
      return { ...state, app: change.app };
    case 'attention':
      return { ...state, attention: change.attention };
    case 'paused':
      return { ...state, paused: change.paused };
    case 'savings':
      return { ...state, savings: change.savings };
    case 'seen':
      return { ...state, seen: change.seen };
    // These concern only the view that shows the run, the server, the interpreters or the clients.
    case 'clients':
    case 'server_output':
    case 'measured':
    case 'run_output':
    case 'call':
      return state;
  }
}

function replaced<T>(items: readonly T[], item: T, key: (item: T) => string): T[] {
  const at = items.findIndex((it) => key(it) === key(item));
  return at < 0 ? [...items, item] : items.map((it, index) => (index === at ? item : it));
}

function byName(a: { name: string }, b: { name: string }): number {
  return a.name.localeCompare(b.name);
}
