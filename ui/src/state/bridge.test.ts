import { beforeEach, expect, test, vi } from 'vitest';
import type { BridgeEvent, Change, State } from '../ipc/bindings';
import { emptyState } from '../ipc/recorded/data';

// The store is a value of its module, so that every test takes a new one.
let handler: (event: BridgeEvent) => void;
let answers: (() => Promise<State>)[];
let asked: number;

vi.mock('../ipc/host', async (original) => ({
  ...(await original<object>()),
  host: () =>
    Promise.resolve({
      listen: (listener: (event: BridgeEvent) => void) => {
        handler = listener;
        return Promise.resolve(() => {});
      },
      invoke: () => {
        asked += 1;
        return (answers.shift() ?? (() => Promise.reject(new Error('no answer left'))))();
      },
    }),
}));

async function opened(...states: State[]) {
  vi.resetModules();
  asked = 0;
  answers = states.map((state) => () => Promise.resolve(state));
  const { bridge } = await import('./bridge.svelte');
  await bridge.open();
  return bridge;
}

const at = (seq: number, paused = false): State => ({ ...emptyState(), seq, paused });
const event = (seq: number, change: Change = { type: 'paused', paused: true }): BridgeEvent => ({ seq, change });

beforeEach(() => {
  vi.useRealTimers();
});

test('events in order are applied and told to listeners', async () => {
  const bridge = await opened(at(4));
  const heard = vi.fn();
  bridge.heard(heard);
  handler(event(5));
  expect(bridge.state?.paused).toBe(true);
  expect(bridge.state?.seq).toBe(5);
  expect(heard).toHaveBeenCalledOnce();
  expect(asked).toBe(1);
});

test('an event that the state already contains is dropped', async () => {
  const bridge = await opened(at(4));
  handler(event(4));
  expect(bridge.state?.paused).toBe(false);
});

test('a gap makes the store ask again, once, and keeps later events', async () => {
  const bridge = await opened(at(4), at(7));
  const { epoch } = bridge;
  handler(event(7));
  handler(event(8));
  expect(bridge.state?.paused).toBe(false);
  await vi.waitFor(() => expect(bridge.state?.seq).toBe(8));
  expect(bridge.state?.paused).toBe(true);
  expect(asked).toBe(2);
  expect(bridge.epoch).toBe(epoch + 1);
});

test('an event that comes before the first state is applied after it', async () => {
  vi.resetModules();
  asked = 0;
  let answer: (state: State) => void = () => {};
  answers = [() => new Promise((resolve) => (answer = resolve))];
  const { bridge } = await import('./bridge.svelte');
  const open = bridge.open();
  await vi.waitFor(() => expect(asked).toBe(1));
  handler(event(3));
  handler(event(5));
  answer(at(4));
  await open;
  expect(bridge.state?.seq).toBe(5);
  expect(bridge.state?.paused).toBe(true);
});

test('a bridge that does not answer leaves an error and no state, and can be asked again', async () => {
  vi.resetModules();
  answers = [() => Promise.reject({ code: 'bridge_restarted', message: 'gone', hint: null, logId: null }), () => Promise.resolve(at(1))];
  const { bridge } = await import('./bridge.svelte');
  await bridge.open();
  expect(bridge.error?.code).toBe('bridge_restarted');
  expect(bridge.state).toBeNull();
  await bridge.ask();
  expect(bridge.error).toBeNull();
  expect(bridge.state?.seq).toBe(1);
});

test('a refused attempt is taken back, and only its own part', async () => {
  const bridge = await opened(at(1));
  const { toasts } = await import('./toasts.svelte');
  let refuse: (error: unknown) => void = () => {};
  const attempt = bridge.attempt(
    (state) => ({ ...state, paused: true }),
    (state) => ({ ...state, paused: false }),
    () => new Promise((_, reject) => (refuse = reject)),
  );
  expect(bridge.state?.paused).toBe(true);
  handler(event(2, { type: 'server_removed', name: 'x' }));
  refuse({ code: 'bridge_busy', message: 'busy', hint: 'later', logId: null });
  await attempt;
  expect(bridge.state?.paused).toBe(false);
  expect(bridge.state?.seq).toBe(2);
  expect(toasts.list.map((it) => it.text)).toEqual(['busy. later']);
});
