// A bridge in the browser: recorded data that answers every command and plays events, for development
// and screen tests. The page's address chooses what it shows:
//
// `scenario`  full (default) | first-run | empty | many | loading | error | failed
// `play`      on (default) | off: whether things happen by themselves
// `fail`      names of commands that fail, with commas
// `view`, `open`, `part`  where the window starts (read by the window's start, not here)

import type {
  ApiError,
  BridgeEvent,
  Call,
  Change,
  Client,
  Commands,
  MemoryInfo,
  MemoryTotals,
  QuestionAnswer,
  Run,
  RunDetail,
  State,
} from '../bindings';
import type { CommandName, Host } from '../host';
import { parseJson } from '../../components/json-text';
import { afterwards, recordedClients, recordedPlan } from './clients';
import { emptyState, fullState, limits, memoryItem, memoryItems, savedTools } from './data';
import { recordedQuestions } from './questions';
import { recordedRuns } from './runs';
import { fromNew, recordedServers, toDetail, toOutput, toToolDetail, type Recorded } from './servers';

type Scenario = 'full' | 'first-run' | 'empty' | 'many' | 'loading' | 'error' | 'failed';
type Handlers = { [K in CommandName]: (args: Commands[K]['arguments']) => Commands[K]['result'] | Promise<Commands[K]['result']> };

const MiB = 1024 * 1024;

export function recordedHost(query: URLSearchParams): Host {
  const bridge = new RecordedBridge((query.get('scenario') ?? 'full') as Scenario, (query.get('fail') ?? '').split(','));
  if (query.get('play') !== 'off') bridge.play();
  // Screen tests make things happen at the moment they choose.
  Object.assign(window, { recorded: bridge });
  return bridge;
}

function failure(code: ApiError['code'], message: string, hint: string | null = null): ApiError {
  return { code, message, hint, logId: null };
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

class RecordedBridge implements Host {
  #scenario: Scenario;
  #failing: readonly string[];
  #handler: ((event: BridgeEvent) => void) | null = null;
  #state: State;
  #servers: Map<string, Recorded>;
  #clients: ReturnType<typeof recordedClients>;
  #memory;
  #tools;
  #runs: RunDetail[];
  #live = new Map<string, RunDetail>();
  #forgotten = new Map<string, () => void>();
  #measuring: ReturnType<typeof setInterval> | null = null;
  #watched: string | null = null;
  #nextRun = 100_000;
  #nextQuestion = 1;
  /** What was said to questions. */
  readonly answers: QuestionAnswer[] = [];

  constructor(scenario: Scenario, failing: readonly string[]) {
    const now = Date.now();
    const bare = scenario === 'empty' || scenario === 'first-run';
    this.#scenario = scenario;
    this.#failing = failing;
    this.#state = bare ? emptyState() : fullState(now);
    this.#servers = bare ? new Map() : recordedServers(now, scenario === 'many');
    this.#clients = bare ? new Map() : recordedClients();
    this.#memory = bare ? new Map<string, ReturnType<typeof memoryItem>>() : memoryItems(now, scenario === 'many');
    this.#tools = bare ? new Map() : savedTools(now);
    this.#runs = bare ? [] : recordedRuns(now, scenario === 'many' ? 10_000 : 44);
    this.#state.servers = [...this.#servers.values()].map((it) => it.server);
    this.#state.memory = this.#totals();
    if (scenario === 'first-run') {
      this.#state.seen = { client: false, run: false };
      this.#state.sandbox.engines = [];
      this.#state.sandbox.imageState = { type: 'unknown' };
      this.#state.sandbox.state = { type: 'ready', kind: 'wasi', rootless: true };
      this.#state.sandbox.python = '3.13.5';
    }
    if (scenario === 'error') this.#break();
    if (scenario === 'full' || scenario === 'many') this.#recordedRun(now);
  }

  // Everything that can be wrong at once.
  #break(): void {
    const error = failure(
      'sandbox_unavailable',
      'Podman is installed but its machine is not running, and the built-in Python did not compile',
      'Start the machine with `podman machine start`, then look again.',
    );
    const { sandbox } = this.#state;
    sandbox.state = { type: 'unavailable', error };
    sandbox.engines = sandbox.engines.map((it) => ({
      ...it,
      inUse: false,
      state: { type: 'failed', error: failure('sandbox_unavailable', 'connection refused') },
    }));
    sandbox.imageState = {
      type: 'failed',
      error: failure('image_missing', 'python:3.14-slim could not be pulled: no route to host', 'Check the network, then pull again.'),
    };
    sandbox.wasi = {
      type: 'unavailable',
      error: failure('wasi_module_missing', 'python.wasm does not match its checksum', 'Install Runbridge again.'),
    };
    sandbox.warnings = [
      failure('limit_not_enforced', 'This engine drops the limits of memory and processes', 'Use cgroup v2, or the built-in sandbox.'),
    ];
    this.#state.app.secretStore = {
      kind: 'encrypted_file',
      error: failure('secret_store_locked', 'The keyring did not answer within 2 s', 'Secrets are kept in an encrypted file instead.'),
    };
    this.#state.attention = [{ id: 'sandbox', level: 'error', error, subject: { type: 'sandbox' } }, ...this.#state.attention];
    this.#state.interpreters = [];
    this.#state.connections = [];
  }

  async invoke<K extends CommandName>(name: K, args: Commands[K]['arguments']): Promise<Commands[K]['result']> {
    await pause(0);
    if (this.#scenario === 'loading') return new Promise(() => {});
    if (this.#failing.includes(name)) throw failure('bridge_busy', `${name} was refused`, 'Try again in a moment.');
    if (this.#scenario === 'failed')
      throw failure('bridge_restarted', 'the bridge went away', 'It is being started again. Try in a moment.');
    if (this.#scenario === 'error' && name.startsWith('read_'))
      throw failure('internal', 'the record cannot be read: disk I/O error', 'Look at the log.');
    return structuredClone(await this.#handlers[name](structuredClone(args)));
  }

  listen(handler: (event: BridgeEvent) => void): Promise<() => void> {
    this.#handler = handler;
    return Promise.resolve(() => (this.#handler = null));
  }

  /** Sends a change; `lose` counts it without sending it, as when a window was too slow. */
  emit(change: Change, lose = false): void {
    this.#state.seq += 1;
    if (!lose) this.#handler?.(structuredClone({ seq: this.#state.seq, change }));
  }

  /** Things happen: a server becomes ready, a run appears and ends, again and again. */
  play(): void {
    if (this.#scenario !== 'full' && this.#scenario !== 'many') return;
    setTimeout(() => this.serverBecomesReady('sqlite'), 1500);
    const loop = async (): Promise<void> => {
      for (;;) {
        await pause(4000);
        await this.playRun(900);
        await pause(9000);
      }
    };
    void loop();
  }

  /** A server writes to stderr, or logs. */
  serverSays(name: string, said: { stderr?: string; log?: string }): void {
    const it = this.#servers.get(name);
    if (!it) return;
    it.stderr += said.stderr ?? '';
    if (said.log) it.log = [...it.log, { server: name, at: Date.now(), severity: 'info', logger: null, text: said.log }];
    if (this.#watched === name) this.emit({ type: 'server_output', server: name });
  }

  serverBecomesReady(name: string): void {
    this.#change(name, (it) => {
      it.server = {
        ...it.server,
        state: { type: 'ready' },
        pid: 5120,
        startedAt: Date.now(),
        startMs: 2170,
        memoryBytes: 56 * MiB,
        revision: '2025-11-25',
      };
    });
  }

  /** One run of a client from its start to its end, `step` milliseconds between its parts. */
  async playRun(step: number): Promise<void> {
    const id = this.#begin(
      'cursor',
      'tables = await mcp_sqlite.list_tables()\nfor t in tables:\n    print(t["name"])\n    await mcp_sqlite.describe_table(table_name=t["name"])\n',
      'c2',
    );
    await pause(step);
    for (const [index, tool] of ['list_tables', 'describe_table'].entries()) {
      this.#call(id, {
        id: String(index + 1),
        server: 'sqlite',
        tool,
        arguments: index === 0 ? '{}' : '{"table_name":"orders"}',
        startMs: Math.round(step * (index + 0.9)),
        state: { type: 'open' },
        durationMs: null,
        resultBytes: null,
      });
      await pause(step);
      const call = this.#live.get(id)?.calls[index];
      if (call) this.#call(id, { ...call, state: { type: 'done' }, durationMs: Math.round(step * 0.8), resultBytes: 640 });
      this.#print(id, ['orders\n', 'customers\n'][index] ?? '');
    }
    await pause(step);
    this.#end(id, 'success');
  }

  /** A server asks the user in the middle of a run. */
  asks(what: keyof typeof recordedQuestions): void {
    const now = Date.now();
    const question = {
      ...recordedQuestions[what],
      id: String(this.#nextQuestion++),
      runId: this.#state.runs[0]?.id ?? '',
      client: 'claude-desktop',
      askedAt: now,
      expiresAt: now + 300_000,
    };
    this.#state.questions = [...this.#state.questions, question];
    this.emit({ type: 'question', question });
  }

  /** A run that is under way when the window opens. */
  #recordedRun(now: number): void {
    const id = this.#begin(
      'claude-desktop',
      'files = await mcp_filesystem.search_files(path="/home/ada/projects", pattern="*.md")\nsizes = await runtime.gather(*[mcp_filesystem.get_file_info(path=f) for f in files])\nprint(sum(s.size for s in sizes))\n',
      'c1',
    );
    const detail = this.#live.get(id);
    if (!detail) return;
    detail.run.startedAt = now - 3200;
    detail.run.servers = ['filesystem'];
    detail.run.calls = 3;
    detail.calls = [
      {
        id: '1',
        server: 'filesystem',
        tool: 'search_files',
        arguments: '{"path":"/home/ada/projects","pattern":"*.md"}',
        startMs: 14,
        state: { type: 'done' },
        durationMs: 1930,
        resultBytes: 18_240,
      },
      {
        id: '2',
        server: 'filesystem',
        tool: 'get_file_info',
        arguments: '{"path":"/home/ada/projects/shop/README.md"}',
        startMs: 1960,
        state: { type: 'done' },
        durationMs: 88,
        resultBytes: 212,
      },
      {
        id: '3',
        server: 'filesystem',
        tool: 'get_file_info',
        arguments: '{"path":"/home/ada/projects/shop/TODO.md"}',
        startMs: 1961,
        state: { type: 'open' },
        durationMs: null,
        resultBytes: null,
      },
    ];
    this.#state.runs = [structuredClone(detail.run)];
  }

  #begin(client: string, code: string, connectionId: string | null): string {
    const id = `run-${this.#nextRun++}`;
    const run: Run = {
      id,
      client,
      connectionId,
      session: null,
      title: code.split('\n').find((it) => it.trim()) ?? '',
      status: 'running',
      startedAt: Date.now(),
      durationMs: null,
      servers: [],
      calls: 0,
      callsFailed: 0,
      kind: 'container',
      memoryBytesPeak: null,
      replyTokens: null,
      directTokens: null,
    };
    this.#live.set(id, { run, code, stdout: '', stderr: '', result: null, error: null, charsLeftOut: 0, calls: [], log: [], seq: 0 });
    this.#state.runs = [...this.#state.runs, run];
    this.emit({ type: 'run', run });
    return id;
  }

  #call(id: string, call: Call): void {
    const detail = this.#live.get(id);
    if (!detail) return;
    detail.calls = [...detail.calls.filter((it) => it.id !== call.id), call];
    detail.run = { ...detail.run, calls: detail.calls.length, servers: [...new Set(detail.calls.map((it) => it.server))] };
    this.#state.runs = this.#state.runs.map((it) => (it.id === id ? detail.run : it));
    this.emit({ type: 'call', runId: id, call });
    this.emit({ type: 'run', run: detail.run });
  }

  #print(id: string, text: string): void {
    const detail = this.#live.get(id);
    if (!detail) return;
    detail.stdout += text;
    this.emit({ type: 'run_output', runId: id, stream: 'stdout', text });
  }

  #end(id: string, status: Run['status']): void {
    const detail = this.#live.get(id);
    if (!detail) return;
    this.#live.delete(id);
    const took = Date.now() - detail.run.startedAt;
    detail.run = {
      ...detail.run,
      status,
      durationMs: took,
      memoryBytesPeak: 24 * MiB,
      replyTokens: 64,
      directTokens: detail.calls.length > 0 ? 21_400 : null,
    };
    detail.calls = detail.calls.map((it) =>
      it.state.type === 'open'
        ? { ...it, state: { type: 'failed', error: failure('run_cancelled', 'the run was stopped') }, durationMs: took - it.startMs }
        : it,
    );
    if (status === 'cancelled') detail.error = failure('run_cancelled', 'stopped in this window; variables are kept');
    detail.seq = this.#state.seq + 1;
    this.#runs.unshift(detail);
    this.#state.runs = this.#state.runs.filter((it) => it.id !== id);
    this.emit({ type: 'run', run: detail.run });
    this.#state.savings = {
      ...this.#state.savings,
      runsToday: this.#state.savings.runsToday + 1,
      resultsTokens: this.#state.savings.resultsTokens + 900,
    };
    this.emit({ type: 'savings', savings: this.#state.savings });
    if (status === 'success' && !this.#state.seen.run) {
      this.#state.seen = { ...this.#state.seen, run: true };
      this.emit({ type: 'seen', seen: this.#state.seen });
    }
  }

  // What Python would print, as far as a page can tell.
  async #pretend(id: string, code: string): Promise<void> {
    await pause(60);
    if (/while True|sleep/.test(code)) return;
    if (code.includes('sys.version.split')) this.#print(id, `Python ${this.#state.sandbox.python ?? ''}\n`);
    else if (code.includes('sys.version')) this.#print(id, '3.14.0 (main, Oct 7 2026, 09:34:21) [GCC 14.2.0]\n');
    if (code.includes('discovered_servers')) {
      const names = this.#state.servers.filter((it) => it.enabled).map((it) => it.name);
      this.#print(
        id,
        code.includes('Servers:') ? `Servers: ${names.join(', ') || 'none'}\n` : `(${names.map((it) => `'${it}'`).join(', ')})\n`,
      );
    }
    for (const [, text] of code.matchAll(/^print\("([^"]*)"\)$/gm)) this.#print(id, `${text}\n`);
    if (/^raise /m.test(code)) {
      const detail = this.#live.get(id);
      if (detail)
        detail.error = failure('python_error', 'Traceback (most recent call last):\n  File "run", line 1, in <module>\nValueError: no');
      return this.#end(id, 'error');
    }
    this.#end(id, 'success');
  }

  #change(name: string, change: (it: Recorded) => void): void {
    const it = this.#servers.get(name);
    if (!it) throw failure('server_not_found', `no server is named \`${name}\``);
    change(it);
    it.server = { ...it.server, toolsEnabled: it.tools.filter((tool) => tool.enabled).length };
    this.#state.servers = this.#state.servers.map((each) => (each.name === name ? it.server : each));
    this.emit({ type: 'server', server: it.server });
  }

  #totals(): MemoryTotals {
    const infos = [...this.#memory.values()].map((it) => it.info);
    return { items: infos.length, sizeBytes: infos.reduce((sum, it) => sum + it.sizeBytes, 0), savedTools: this.#tools.size };
  }

  #saved(info: MemoryInfo): void {
    this.#state.memory = this.#totals();
    this.emit({ type: 'memory_saved', info, totals: this.#state.memory });
  }

  #forget(undo: () => void): { undoId: string } {
    const undoId = String(this.#forgotten.size + 1);
    this.#forgotten.set(undoId, undo);
    return { undoId };
  }

  #limit(name: string, value: number | null) {
    const original = limits().find((it) => it.name === name);
    if (!original) throw failure('settings_invalid', `there is no limit ${name}`);
    const changed = { ...original, value: value ?? original.default, setBy: value === null ? ('default' as const) : ('settings' as const) };
    this.#state.limits = this.#state.limits.map((it) => (it.name === name ? changed : it));
    this.emit({ type: 'limits', limits: this.#state.limits });
    return changed;
  }

  #sandbox(patch: Partial<State['sandbox']>): void {
    this.#state.sandbox = { ...this.#state.sandbox, ...patch };
    this.emit({ type: 'sandbox', sandbox: this.#state.sandbox });
  }

  #filtered({ client, server, status, text }: Commands['read_runs']['arguments']['filter']): RunDetail[] {
    const wanted = text.toLowerCase();
    return this.#runs.filter(
      (it) =>
        (!client || it.run.client === client) &&
        (!server || it.run.servers.includes(server)) &&
        (!status || it.run.status === status) &&
        (!wanted || it.code.toLowerCase().includes(wanted) || it.stdout.toLowerCase().includes(wanted)),
    );
  }

  #client(id: string): Client {
    const it = this.#clients.get(id);
    if (!it) throw failure('client_not_found', `no client is called \`${id}\``);
    return it;
  }

  #clientBecomes(client: Client): Client {
    this.#clients.set(client.id, client);
    this.emit({ type: 'clients', clients: [...this.#clients.values()] });
    return client;
  }

  /** A client rewrites its file and drops what it did not write. */
  clientForgets(id: string): void {
    this.#clientBecomes({ ...this.#client(id), state: { type: 'lost' } });
  }

  #measure(): void {
    const measures = this.#state.interpreters.map((it, index) => ({
      interpreterId: it.id,
      memoryBytes: Math.round((60 + index * 44 + 24 * Math.sin(Date.now() / 4000 + index)) * MiB),
      cpuThousandths: it.idleSinceAt === null ? Math.round(420 + 320 * Math.sin(Date.now() / 1700)) : 2,
    }));
    this.emit({ type: 'measured', at: Date.now(), measures });
  }

  #handlers: Handlers = {
    get_state: () => this.#state,
    set_paused: ({ paused }) => {
      this.#state.paused = paused;
      this.emit({ type: 'paused', paused });
      return null;
    },

    set_server_enabled: ({ server, enabled }) => {
      this.#change(server, (it) => (it.server = { ...it.server, enabled }));
      return null;
    },
    set_tool_enabled: ({ server, tool, enabled }) => {
      this.#change(server, (it) => (it.tools = it.tools.map((each) => (each.name === tool ? { ...each, enabled } : each))));
      return null;
    },
    set_all_tools_enabled: ({ server, enabled }) => {
      this.#change(server, (it) => (it.tools = it.tools.map((each) => ({ ...each, enabled }))));
      return null;
    },
    restart_server: async ({ server }) => {
      this.#change(server, (it) => (it.server = { ...it.server, state: { type: 'starting' } }));
      await pause(700);
      this.serverBecomesReady(server);
      return null;
    },
    sign_in_server: ({ server }) => {
      this.serverBecomesReady(server);
      return null;
    },
    read_server: ({ server }) => {
      const it = this.#servers.get(server);
      if (!it) throw failure('server_not_found', `no server is named \`${server}\``);
      return toDetail(it);
    },
    read_server_output: ({ server }) => {
      const it = this.#servers.get(server);
      if (!it) throw failure('server_not_found', `no server is named \`${server}\``);
      return toOutput(it);
    },
    watch_server_output: ({ server, on }) => {
      if (on) this.#watched = server;
      else if (this.#watched === server) this.#watched = null;
      return null;
    },
    read_tool: ({ server, tool }) => {
      const it = this.#servers.get(server);
      const detail = it ? toToolDetail(it, tool) : null;
      if (!detail) throw failure('tool_not_found', `server \`${server}\` has no tool \`${tool}\``);
      return detail;
    },
    set_server_secret: ({ server, name }) => {
      this.#change(server, (it) => {
        it.variables = it.variables.map((each) => (each.name === name ? { ...each, missing: false } : each));
        if (it.server.state.type === 'needs_value') it.server = { ...it.server, state: { type: 'stopped' } };
      });
      return null;
    },
    parse_servers: ({ text }) => {
      const { error } = parseJson(text);
      if (error) {
        return {
          servers: [],
          problems: [
            { client: 'runbridge', path: '', line: error.line, column: error.column, entry: null, message: 'a value is expected' },
          ],
        };
      }
      const json = JSON.parse(text) as { mcpServers?: object };
      const entries = Object.entries(json.mcpServers ?? json) as [
        string,
        { command?: string; args?: string[]; url?: string; env?: Record<string, string> },
      ][];
      return {
        servers: entries
          .filter(([, it]) => it && typeof it === 'object' && (it.command ?? it.url))
          .map(([name, it]) => ({
            name,
            transport: it.url
              ? { type: 'http' as const, url: it.url, sse: false }
              : { type: 'stdio' as const, command: it.command ?? '', args: it.args ?? [], cwd: null },
            variables: Object.entries(it.env ?? {}).map(([key, value]) => ({
              name: key,
              value,
              secret: /TOKEN|KEY|SECRET|PASSWORD/.test(key),
            })),
          })),
        problems: [],
      };
    },
    add_server: ({ server }) => {
      if (this.#servers.has(server.name)) throw failure('server_exists', `a server is named \`${server.name}\` already`);
      const it = fromNew(server, Date.now());
      this.#servers.set(server.name, it);
      this.#state.servers = [...this.#state.servers, it.server].sort((a, b) => a.name.localeCompare(b.name));
      this.emit({ type: 'server', server: it.server });
      return null;
    },
    remove_server: ({ server }) => {
      this.#servers.delete(server);
      this.#state.servers = this.#state.servers.filter((it) => it.name !== server);
      this.emit({ type: 'server_removed', name: server });
      return null;
    },

    read_clients: () => [...this.#clients.values()],
    plan_client: ({ client, action, file }) => recordedPlan(this.#client(client), action, file),
    change_client: ({ client, action, file, keep, seen }) => {
      const it = this.#client(client);
      if (recordedPlan(it, action, file).seen !== seen)
        throw failure('client_config_conflict', `${it.file} changed since this was shown`, 'Look at the change again.');
      return this.#clientBecomes(afterwards(it, action, file, keep));
    },
    keep_client: ({ client, keep }) => {
      this.#clientBecomes({ ...this.#client(client), keep });
      return null;
    },
    prefer_client: ({ client, preferred }) => {
      this.#clientBecomes({ ...this.#client(client), preferred });
      return null;
    },
    show_client_file: () => null,

    set_backend: ({ backend }) => {
      const kind = backend === 'wasi' || (backend === 'auto' && this.#state.sandbox.engines.length === 0) ? 'wasi' : 'container';
      this.#sandbox({ backend, state: { type: 'ready', kind, rootless: true } });
      return null;
    },
    set_engine: ({ engine }) => {
      this.#sandbox({ engine });
      return null;
    },
    set_image: ({ image }) => {
      this.#sandbox({ image, imageState: { type: 'missing' } });
      return null;
    },
    set_packages_policy: ({ policy }) => {
      this.#sandbox({ packages: { ...this.#state.sandbox.packages, policy } });
      return null;
    },
    remove_package: ({ name }) => {
      const { packages } = this.#state.sandbox;
      this.#sandbox({ packages: { ...packages, installed: packages.installed.filter((it) => it.name !== name) } });
      return null;
    },
    pull_image: () => {
      const total = 124 * MiB;
      const steps = async (): Promise<void> => {
        for (let done = 0; done < 1; done += 0.05) {
          this.#sandbox({ imageState: { type: 'pulling', doneBytes: Math.round(total * done), totalBytes: total } });
          await pause(120);
        }
        this.#sandbox({ imageState: { type: 'present', digest: 'sha256:5fe1c4d01b6a2f0e9d3a7f7c4a2d8b6b19f0', sizeBytes: total } });
      };
      void steps();
      return null;
    },
    check_sandbox: async () => {
      await pause(300);
      this.#sandbox({});
      return null;
    },
    set_limit: ({ name, value }) => this.#limit(name, value),
    reset_limit: ({ name }) => this.#limit(name, null),
    run_code: ({ code }) => {
      const id = this.#begin('runbridge', code, null);
      void this.#pretend(id, code);
      return id;
    },
    stop_interpreter: ({ id }) => {
      this.#state.interpreters = this.#state.interpreters.filter((it) => it.id !== id);
      this.emit({ type: 'interpreter_stopped', id });
      return null;
    },
    watch_interpreters: ({ on }) => {
      if (this.#measuring) clearInterval(this.#measuring);
      this.#measuring = on ? setInterval(() => this.#measure(), 1000) : null;
      if (on) setTimeout(() => this.#measure());
      return null;
    },

    read_memory: ({ text, order, offset, limit }) => {
      const wanted = text.toLowerCase();
      const found = [...this.#memory.values()]
        .filter((it) => it.info.key.toLowerCase().includes(wanted) || it.value.toLowerCase().includes(wanted))
        .map((it) => it.info);
      found.sort((a, b) => {
        switch (order) {
          case 'key':
            return a.key.localeCompare(b.key);
          case 'size':
            return b.sizeBytes - a.sizeBytes;
          case 'updated':
            return b.updatedAt - a.updatedAt;
          case 'used':
            return (b.usedAt ?? 0) - (a.usedAt ?? 0);
        }
      });
      return { items: found.slice(offset, offset + limit), total: found.length };
    },
    read_memory_item: ({ key }) => {
      const it = this.#memory.get(key);
      if (!it) throw failure('memory_not_found', `nothing is remembered under \`${key}\``);
      return it;
    },
    save_memory_item: ({ key, value, expectedVersion }) => {
      const before = this.#memory.get(key);
      if ((before?.info.version ?? null) !== expectedVersion)
        throw failure('memory_conflict', `\`${key}\` is at version ${before?.info.version ?? 0} now`);
      const item = memoryItem(key, value, Date.now(), 'runbridge', null, (expectedVersion ?? 0) + 1);
      if (before) item.info.createdAt = before.info.createdAt;
      this.#memory.set(key, { ...item, metadata: before?.metadata ?? null });
      this.#saved(item.info);
      return item.info;
    },
    forget_memory_item: ({ key }) => {
      const it = this.#memory.get(key);
      if (!it) throw failure('memory_not_found', `nothing is remembered under \`${key}\``);
      this.#memory.delete(key);
      this.#state.memory = this.#totals();
      this.emit({ type: 'memory_forgotten', key, totals: this.#state.memory });
      return this.#forget(() => {
        this.#memory.set(key, it);
        this.#saved(it.info);
      });
    },
    read_saved_tools: () => [...this.#tools.values()],
    forget_saved_tool: ({ name }) => {
      const it = this.#tools.get(name);
      this.#tools.delete(name);
      const tell = (): void => {
        this.#state.memory = this.#totals();
        this.emit({ type: 'saved_tools', totals: this.#state.memory });
      };
      tell();
      return this.#forget(() => {
        if (it) this.#tools.set(name, it);
        tell();
      });
    },
    undo_forget: ({ undoId }) => {
      this.#forgotten.get(undoId)?.();
      this.#forgotten.delete(undoId);
      return null;
    },
    export_memory: () => '/home/ada/runbridge-memory.json',
    import_memory: ({ mode }) => ({ added: 3, replaced: mode === 'replace' ? 2 : 0, kept: mode === 'keep' ? 2 : 0 }),

    read_runs: ({ filter, after, limit }) => {
      const found = this.#filtered(filter).map((it) => it.run);
      const start = after ? found.findIndex((it) => it.id === after.id) + 1 : 0;
      const runs = found.slice(start, start + limit);
      const last = runs.at(-1);
      return {
        runs,
        total: found.length,
        next: last && start + limit < found.length ? { startedAt: last.startedAt, id: last.id } : null,
        clients: [...new Set(this.#runs.map((it) => it.run.client))],
      };
    },
    read_run: ({ id }) => {
      const it = this.#live.get(id) ?? this.#runs.find((each) => each.run.id === id);
      if (!it) throw failure('run_not_found', 'this run is no longer on record');
      return { ...it, seq: this.#state.seq };
    },
    stop_run: ({ id }) => {
      this.#end(id, 'cancelled');
      return null;
    },
    answer_question: ({ id, answer }) => {
      if (!this.#state.questions.some((it) => it.id === id)) throw failure('question_not_found', 'nobody waits for this answer any more');
      this.#state.questions = this.#state.questions.filter((it) => it.id !== id);
      this.answers.push(answer);
      this.emit({ type: 'question_closed', id });
      return null;
    },
    export_runs: () => '/home/ada/runbridge-runs.json',
    clear_runs: () => {
      this.#runs = [];
      return null;
    },

    change_settings: ({ patch }) => {
      this.#state.settings = { ...this.#state.settings, ...(patch as Partial<State['settings']>) };
      this.emit({ type: 'settings', settings: this.#state.settings });
      return null;
    },
    check_for_update: async () => {
      this.#state.app = { ...this.#state.app, update: { type: 'checking' } };
      this.emit({ type: 'app', app: this.#state.app });
      await pause(600);
      this.#state.app = { ...this.#state.app, update: { type: 'current', checkedAt: Date.now() } };
      this.emit({ type: 'app', app: this.#state.app });
      return null;
    },
    install_update: () => null,
    restart_app: () => null,
    open_place: () => null,
    read_diagnostics: () => [
      { name: 'versions.txt', text: 'runbridge 0.1.0\nlinux 6.1, x86_64\nPodman 5.4.2, rootless\n' },
      {
        name: 'settings.json',
        text: '{\n  "version": 1,\n  "servers": {\n    "claude-desktop/github": { "tools": { "deny": ["merge_pull_request"] } }\n  }\n}\n',
      },
      {
        name: 'runbridge.log',
        text: '2026-11-30T08:01:12Z INFO bridge opened\n2026-11-30T08:01:13Z WARN server postgres did not start: exited with code 1\n2026-11-30T08:01:14Z INFO header authorization: ***\n',
      },
    ],
    save_diagnostics: () => '/home/ada/runbridge-diagnostics.zip',
    read_licences: () =>
      [
        'bollard 0.21.1 Apache-2.0',
        'notify 8.2.2 CC0-1.0',
        'rmcp 3.11.0 MIT',
        'rusqlite 0.43.0 MIT',
        'serde 1.0.228 MIT OR Apache-2.0',
        'svelte 5.57.3 MIT',
        'tauri 2.12.5 MIT OR Apache-2.0',
        'tokio 1.54.1 MIT',
        'uplot 1.6.32 MIT',
      ].map((line) => {
        const [name = '', version = '', ...licence] = line.split(' ');
        return { name, version, licence: licence.join(' ') };
      }),
  };
}
