// The recorded state of a bridge, and what it remembers.

import type {
  AppInfo,
  InstalledPackage,
  Interpreter,
  Limit,
  LimitGroup,
  LimitUnit,
  MemoryItem,
  SandboxStatus,
  SavedTool,
  State,
} from '../bindings';

const KiB = 1024;
const MiB = 1024 * KiB;
const GiB = 1024 * MiB;

export const app: AppInfo = {
  version: '0.1.0',
  system: 'linux',
  sidecar: '/home/ada/.local/share/runbridge/bin/runbridge',
  settingsFile: '/home/ada/.config/runbridge/settings.json',
  stateFolder: '/home/ada/MCPs',
  dataFolder: '/home/ada/.local/share/runbridge',
  logsFolder: '/home/ada/.local/state/runbridge/logs',
  secretStore: { kind: 'keyring', error: null },
  update: { type: 'unknown' },
};

type LimitSketch = [
  name: string,
  group: LimitGroup,
  unit: LimitUnit,
  value: number,
  min: number,
  usualMax: number,
  ceiling: number,
  variable: string | null,
  about: string,
];

const S = 1000;
const H = 3_600 * S;

const limitSketches: LimitSketch[] = [
  [
    'run_ms_default',
    'run',
    'milliseconds',
    30 * S,
    S,
    120 * S,
    24 * H,
    'MCP_BRIDGE_TIMEOUT',
    'Wall clock of a run that does not name its own.',
  ],
  [
    'run_ms_max',
    'run',
    'milliseconds',
    120 * S,
    S,
    600 * S,
    24 * H,
    'MCP_BRIDGE_MAX_TIMEOUT',
    'Longest wall clock that a run may ask for.',
  ],
  [
    'reply_chars_max',
    'run',
    'characters',
    20_000,
    1000,
    200_000,
    10_000_000,
    null,
    'Characters of a reply; the rest can be read by range.',
  ],
  [
    'memory_bytes_max',
    'sandbox',
    'bytes',
    512 * MiB,
    32 * MiB,
    8 * GiB,
    1024 * GiB,
    'MCP_BRIDGE_MEMORY',
    'Memory of a sandbox, swap included.',
  ],
  ['cpu_thousandths_max', 'sandbox', 'cpu_thousandths', 0, 10, 16_000, 1_024_000, 'MCP_BRIDGE_CPUS', 'CPUs of a sandbox.'],
  ['processes_max', 'sandbox', 'count', 128, 16, 1024, 32_768, 'MCP_BRIDGE_PIDS', 'Processes and threads of a sandbox.'],
  ['tmp_bytes_max', 'sandbox', 'bytes', 64 * MiB, MiB, 4 * GiB, 256 * GiB, null, 'Size of /tmp in a sandbox.'],
  ['workspace_bytes_max', 'sandbox', 'bytes', 128 * MiB, MiB, 4 * GiB, 256 * GiB, null, 'Size of /workspace in a sandbox.'],
  ['open_files_max', 'sandbox', 'count', 1024, 64, 4096, 1_048_576, null, 'Open files of one process in a sandbox.'],
  [
    'idle_ms_max',
    'sandbox',
    'milliseconds',
    300 * S,
    S,
    2 * H,
    168 * H,
    'MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT',
    'An interpreter that has done nothing for so long is stopped.',
  ],
  ['interpreters_max', 'sandbox', 'count', 8, 1, 32, 256, null, 'Interpreters alive at once; beyond it the longest idle one is stopped.'],
  ['calls_max', 'calls', 'count', 1000, 1, 10_000, 1_000_000, null, 'Tool calls of one run.'],
  ['calls_at_once_max', 'calls', 'count', 16, 1, 128, 1024, null, 'Tool calls of one run that are under way at once.'],
  ['call_ms_max', 'calls', 'milliseconds', 60 * S, S, 600 * S, 24 * H, null, 'Wall clock of one tool call.'],
  [
    'frame_bytes_max',
    'calls',
    'bytes',
    64 * MiB,
    64 * MiB,
    64 * MiB,
    64 * MiB,
    null,
    'One frame or tool result that crosses the sandbox wall.',
  ],
  [
    'server_start_ms_max',
    'calls',
    'milliseconds',
    30 * S,
    S,
    300 * S,
    H,
    null,
    'A server that is not ready after so long has failed to start.',
  ],
  [
    'server_idle_ms_max',
    'calls',
    'milliseconds',
    600 * S,
    S,
    6 * H,
    168 * H,
    null,
    'A server that nobody has called for so long is stopped.',
  ],
  ['memory_value_bytes_max', 'memory', 'bytes', MiB, KiB, 16 * MiB, 64 * MiB, null, 'One remembered value.'],
  ['memory_keys_max', 'memory', 'count', 10_000, 1, 100_000, 1_000_000, null, 'Remembered values.'],
];

export function limits(): Limit[] {
  return limitSketches.map(([name, group, unit, value, min, usualMax, ceiling, variable, about]) => ({
    name,
    about,
    group,
    unit,
    value,
    default: value,
    min,
    usualMax,
    ceiling,
    variable,
    setBy: 'default',
  }));
}

export function sandbox(): SandboxStatus {
  return {
    backend: 'auto',
    engine: 'auto',
    image: 'python:3.14-slim',
    state: { type: 'ready', kind: 'container', rootless: true },
    engines: [
      {
        name: 'Podman',
        version: '5.4.2',
        socket: '/run/user/1000/podman/podman.sock',
        rootless: true,
        state: { type: 'running' },
        inUse: true,
      },
      { name: 'Docker', version: '29.1.0', socket: '/var/run/docker.sock', rootless: false, state: { type: 'stopped' }, inUse: false },
    ],
    imageState: { type: 'present', digest: 'sha256:5fe1c4d01b6a2f0e9d3a7f7c4a2d8b6b19f0', sizeBytes: 124 * MiB },
    wasi: { type: 'ready', python: '3.13.5' },
    python: '3.14.0',
    warnings: [],
    packages: {
      policy: 'ask',
      index: 'packages.example.com',
      installed: [],
    },
  };
}

function interpreters(now: number): Interpreter[] {
  return [
    {
      id: 'i1',
      client: 'claude-desktop',
      connectionId: 'c1',
      session: null,
      kind: 'container',
      startedAt: now - 2_600_000,
      idleSinceAt: null,
      runs: 14,
      memoryBytesMax: 512 * MiB,
    },
    {
      id: 'i2',
      client: 'claude-code',
      connectionId: 'c3',
      session: 'shop',
      kind: 'container',
      startedAt: now - 900_000,
      idleSinceAt: now - 240_000,
      runs: 5,
      memoryBytesMax: 512 * MiB,
    },
  ];
}

function installed(): InstalledPackage[] {
  const index = 'packages.example.com';
  return [
    { name: 'markdown', version: '3.10.1', sizeBytes: 108_412, index, needed: false },
    { name: 'mdurl', version: '0.1.2', sizeBytes: 9_979, index, needed: true },
    { name: 'rich', version: '14.2.0', sizeBytes: 243_393, index, needed: false },
  ];
}

export function emptyState(): State {
  return {
    seq: 0,
    app: structuredClone(app),
    settings: {
      launchAtLogin: false,
      notifications: true,
      checkForUpdates: true,
      appearance: 'system',
      keepRunsDays: 30,
      keepRunsMax: 10_000,
    },
    limits: limits(),
    paused: false,
    attention: [],
    connections: [],
    servers: [],
    problems: [],
    skipped: [],
    sandbox: sandbox(),
    interpreters: [],
    runs: [],
    seen: { client: true, run: true },
    questions: [],
    savings: { runsToday: 0, callsToday: 0, definitionsTokens: 0, resultsTokens: 0 },
    memory: { items: 0, sizeBytes: 0, savedTools: 0 },
  };
}

export function fullState(now: number): State {
  const empty = emptyState();
  return {
    ...empty,
    sandbox: { ...empty.sandbox, packages: { ...empty.sandbox.packages, installed: installed() } },
    connections: [
      { id: 'c1', client: 'claude-desktop', version: '0.14.2', revision: '2025-11-25', pid: 3107, cwd: null, sinceAt: now - 9_300_000 },
      {
        id: 'c2',
        client: 'cursor',
        version: '2.4.1',
        revision: '2025-11-25',
        pid: 3920,
        cwd: '/home/ada/projects/shop',
        sinceAt: now - 4_100_000,
      },
      {
        id: 'c3',
        client: 'claude-code',
        version: '2.1.197',
        revision: '2026-07-28',
        pid: 4411,
        cwd: '/home/ada/projects/shop',
        sinceAt: now - 1_020_000,
      },
    ],
    interpreters: interpreters(now),
    questions: [],
    savings: { runsToday: 37, callsToday: 324, definitionsTokens: 351_204, resultsTokens: 61_098 },
    attention: [
      {
        id: 'server-notion',
        level: 'warning',
        error: { code: 'server_auth_required', message: 'It needs a value for NOTION_TOKEN before it can start.', hint: null, logId: null },
        subject: { type: 'server', name: 'notion' },
      },
      {
        id: 'server-linear',
        level: 'warning',
        error: { code: 'server_auth_required', message: 'It wants you to sign in.', hint: null, logId: null },
        subject: { type: 'server', name: 'linear' },
      },
      {
        id: 'server-postgres',
        level: 'warning',
        error: {
          code: 'server_unreachable',
          message: 'It exited with code 1: connect ECONNREFUSED 127.0.0.1:5432',
          hint: 'Is the database running?',
          logId: null,
        },
        subject: { type: 'server', name: 'postgres' },
      },
    ],
    problems: [
      {
        client: 'cursor',
        path: '/home/ada/projects/site/.cursor/mcp.json',
        line: 14,
        column: 7,
        entry: null,
        message: 'a comma is missing before this key',
      },
    ],
    skipped: [
      {
        source: { client: 'claude-desktop', path: '/home/ada/.config/Claude/claude_desktop_config.json', name: 'runbridge' },
        reason: 'It starts Runbridge itself.',
      },
    ],
  };
}

const values: [key: string, client: string | null, session: string | null, value: unknown][] = [
  ['stale_issues', 'claude-desktop', null, [412, 398, 377, 351, 340, 322, 301]],
  [
    'shop/customers',
    'claude-code',
    'shop',
    {
      updated: '2026-11-29',
      segments: [
        { name: 'returning', share: 0.61, average_basket: 84.2 },
        { name: 'new', share: 0.39, average_basket: 51.7 },
      ],
      notes: 'Returning customers buy more on weekends.',
      checked: true,
      owner: null,
    },
  ],
  ['preferences', 'claude-desktop', null, { language: 'en', units: 'metric', tone: 'short answers' }],
  ['release_checklist', 'cursor', null, ['Run the tests', 'Write the changelog', 'Tag the release', 'Tell the team']],
  ['api/last_cursor', 'claude-code', 'shop', { page: 18_446_744_073_709, token: 'eyJwYWdlIjoxOH0' }],
  ['meeting notes 2026-11-24', 'claude-desktop', null, 'Ship the new checkout on Thursday. Vera writes the announcement.'],
  [
    'exchange_rates',
    'cursor',
    null,
    Object.fromEntries(['CZK', 'GBP', 'JPY', 'PLN', 'SEK', 'USD'].map((it, index) => [it, 1 + index * 3.217])),
  ],
  ['embeddings/readme', 'claude-code', 'shop', Array.from({ length: 512 }, (_, index) => Math.sin(index))],
];

export function memoryItem(
  key: string,
  value: string,
  at: number,
  client: string | null,
  session: string | null,
  version: number,
): MemoryItem {
  return {
    info: {
      key,
      sizeBytes: new TextEncoder().encode(value).length,
      preview: value.slice(0, 120),
      createdAt: at - 86_400_000 * 3,
      updatedAt: at,
      usedAt: at + 600_000,
      version,
      client,
      session,
      damaged: null,
    },
    value,
    metadata: null,
  };
}

export function memoryItems(now: number, many: boolean): Map<string, MemoryItem> {
  const all = values.map(([key, client, session, value], index) =>
    memoryItem(
      key,
      JSON.stringify(value).replace('18446744073709', '18446744073709551616'),
      now - 1_500_000 - index * 19_000_000,
      client,
      session,
      index + 1,
    ),
  );
  const checklist = all.find((it) => it.info.key === 'release_checklist');
  if (checklist) checklist.metadata = '{"project":"shop","source":"team wiki"}';
  const damaged = memoryItem('old/import', '', now - 900_000_000, null, null, 1);
  damaged.info.damaged = {
    code: 'memory_invalid',
    message: 'expected value at line 1 column 1 of /home/ada/MCPs/memory/old%2Fimport.json',
    hint: 'The file is kept as it is. Correct it, or forget the item.',
    logId: null,
  };
  all.push(damaged);
  if (many) {
    for (let index = 0; index < 5000; index += 1) {
      all.push(
        memoryItem(
          `cache/${String(index).padStart(5, '0')}`,
          JSON.stringify({ index, text: 'x'.repeat(index % 300) }),
          now - 10_000_000 - index * 60_000,
          'cursor',
          null,
          1,
        ),
      );
    }
  }
  return new Map(all.map((it) => [it.info.key, it]));
}

export function savedTools(now: number): Map<string, SavedTool> {
  const all: SavedTool[] = [
    {
      name: 'weekly_report',
      summary: 'Orders of the last seven days as a table.',
      source:
        'async def weekly_report(days=7):\n    """Orders of the last seven days as a table."""\n    rows = await mcp_sqlite.read_query(\n        query=f"select day, sum(total) as total from orders "\n              f"where day > date(\'now\', \'-{days} day\') group by day"\n    )\n    return "\\n".join(f"{r[\'day\']}  {r[\'total\']:>10.2f}" for r in rows)\n',
      updatedAt: now - 7_200_000,
      client: 'claude-code',
      damaged: null,
    },
    {
      name: 'open_issues',
      summary: 'Numbers and titles of open issues of a repository.',
      source:
        'async def open_issues(owner, repo):\n    """Numbers and titles of open issues of a repository."""\n    found = await mcp_github.list_issues(owner=owner, repo=repo, state="open")\n    return [(i.number, i.title) for i in found]\n',
      updatedAt: now - 190_000_000,
      client: 'claude-desktop',
      damaged: null,
    },
  ];
  return new Map(all.map((it) => [it.name, it]));
}
