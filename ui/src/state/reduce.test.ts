import { expect, test } from 'vitest';
import { emptyState, fullState } from '../ipc/recorded/data';
import { recordedRuns } from '../ipc/recorded/runs';
import { recordedServers } from '../ipc/recorded/servers';
import { reduce } from './reduce';
import { firstSteps, inTrouble } from './select';

const now = 1_800_000_000_000;
const full = { ...fullState(now), servers: [...recordedServers(now, false).values()].map((it) => it.server) };

test('a new server takes its place by name, and a known one is replaced', () => {
  const [first, second] = full.servers;
  if (!first || !second) throw new Error('no servers');
  const grown = reduce(full, { type: 'server', server: { ...first, name: 'aaa' } });
  expect(grown.servers[0]?.name).toBe('aaa');
  expect(grown.servers.length).toBe(full.servers.length + 1);
  const changed = reduce(full, { type: 'server', server: { ...second, enabled: !second.enabled } });
  expect(changed.servers.length).toBe(full.servers.length);
  expect(changed.servers[1]?.enabled).toBe(!second.enabled);
  expect(full.servers[1]).toBe(second);
});

test('a run is among the active ones until it has ended', () => {
  const [detail] = recordedRuns(now, 1);
  if (!detail) throw new Error('no run');
  const running = reduce(emptyState(), { type: 'run', run: { ...detail.run, status: 'running', durationMs: null } });
  expect(running.runs.map((it) => it.status)).toEqual(['running']);
  expect(reduce(running, { type: 'run', run: detail.run }).runs).toEqual([]);
});

test('a server that is off is never in trouble', () => {
  const postgres = full.servers.find((it) => it.name === 'postgres');
  if (!postgres) throw new Error('no postgres');
  expect(inTrouble(postgres)).toBe(true);
  expect(inTrouble({ ...postgres, enabled: false })).toBe(false);
});

test('the first steps are told from the state alone', () => {
  expect(firstSteps({ ...emptyState(), seen: { client: false, run: false } })).toEqual({
    sandbox: true,
    servers: false,
    client: false,
    run: false,
  });
  expect(firstSteps(full)).toEqual({ sandbox: true, servers: true, client: true, run: true });
});
