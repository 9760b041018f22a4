// Recorded runs.

import type { Call, Run, RunDetail, RunStatus } from '../bindings';

const MiB = 1024 * 1024;

interface Sketch {
  client: string;
  session?: string;
  code: string;
  stdout?: string;
  stderr?: string;
  result?: string;
  status?: RunStatus;
  error?: string;
  ms: number;
  calls?: [server: string, tool: string, args: object, start: number, took: number, failed?: string][];
}

const sketches: Sketch[] = [
  {
    client: 'claude-desktop',
    code: 'issues = await mcp_github.list_issues(owner="ada", repo="shop", state="open")\nstale = [i for i in issues if i.comments == 0]\ntexts = await runtime.gather(*[\n    mcp_filesystem.read_text_file(path=f"/home/ada/projects/shop/{name}")\n    for name in ("README.md", "CHANGELOG.md", "TODO.md")\n])\nprint(len(issues), "open,", len(stale), "without an answer")\nsave_memory("stale_issues", [i.number for i in stale])\n',
    stdout: '23 open, 7 without an answer\n',
    ms: 1840,
    calls: [
      ['github', 'list_issues', { owner: 'ada', repo: 'shop', state: 'open' }, 12, 1240],
      ['filesystem', 'read_text_file', { path: '/home/ada/projects/shop/README.md' }, 1270, 41],
      ['filesystem', 'read_text_file', { path: '/home/ada/projects/shop/CHANGELOG.md' }, 1271, 380],
      ['filesystem', 'read_text_file', { path: '/home/ada/projects/shop/TODO.md' }, 1272, 64, 'ENOENT: no such file or directory'],
    ],
  },
  {
    client: 'cursor',
    code: 'rows = await mcp_sqlite.read_query(query="select day, sum(total) as total from orders group by day")\nimport statistics\nprint(statistics.mean(r["total"] for r in rows))\n',
    stdout: '1843.27\n',
    ms: 212,
    calls: [['sqlite', 'read_query', { query: 'select day, sum(total) as total from orders group by day' }, 8, 190]],
  },
  {
    client: 'claude-code',
    session: 'shop',
    code: 'data = load_memory("stale_issues")\ndata[100]\n',
    status: 'error',
    error:
      'Traceback (most recent call last):\n  File "run-3", line 2, in <module>\n    data[100]\n    ~~~~^^^^^\nIndexError: list index out of range',
    ms: 31,
  },
  {
    client: 'claude-desktop',
    code: 'found = runtime.search_tool_docs_sync("create issue", limit=3)\nfor it in found:\n    print(it["server"], it["name"])\n',
    stdout: 'github create_issue\nlinear create_issue\ngitlab create_issue\n',
    ms: 48,
  },
  {
    client: 'cursor',
    code: 'await mcp_playwright.browser_navigate(url="https://example.org")\nshot = await mcp_playwright.browser_take_screenshot()\ndisplay(shot)\n',
    ms: 4120,
    calls: [
      ['playwright', 'browser_navigate', { url: 'https://example.org' }, 9, 2600],
      ['playwright', 'browser_take_screenshot', {}, 2640, 1410],
    ],
  },
  {
    client: 'claude-desktop',
    code: 'n = 0\nwhile True:\n    n += 1\n',
    status: 'timeout',
    error: 'the run exceeded its limit of 30 s; variables are kept',
    ms: 30_004,
  },
  {
    client: 'claude-code',
    session: 'shop',
    code: 'now = await mcp_time.get_current_time(timezone="Europe/Prague")\nnow.datetime\n',
    result: "'2026-11-30T09:12:44+01:00'",
    ms: 27,
    calls: [['time', 'get_current_time', { timezone: 'Europe/Prague' }, 6, 14]],
  },
  {
    client: 'cursor',
    code: 'rows = [bytearray(1 << 20) for _ in range(4096)]\n',
    status: 'out_of_memory',
    error: 'the run used more than its limit of 512 MiB; its variables are gone',
    ms: 903,
  },
  {
    client: 'claude-desktop',
    code: 'await mcp_postgres.query(sql="select 1")\n',
    status: 'error',
    error:
      'Traceback (most recent call last):\n  File "run-9", line 1, in <module>\n    await mcp_postgres.query(sql="select 1")\nMCPError: server `postgres` did not start: it exited with code 1',
    ms: 410,
    calls: [['postgres', 'query', { sql: 'select 1' }, 5, 398, 'server `postgres` did not start: it exited with code 1']],
  },
  { client: 'runbridge', code: 'import sys\nprint(sys.version)\n', stdout: '3.14.0 (main, Oct 7 2026, 09:34:21) [GCC 14.2.0]\n', ms: 9 },
  {
    client: 'cursor',
    code: 'pages = await runtime.gather(*[mcp_filesystem.list_directory(path=p) for p in folders])\n',
    status: 'cancelled',
    ms: 6200,
    calls: [['filesystem', 'list_directory', { path: '/home/ada/projects' }, 5, 6100]],
  },
];

export function calls(sketch: Sketch['calls']): Call[] {
  return (sketch ?? []).map(([server, tool, args, startMs, durationMs, failed], index) => ({
    id: String(index + 1),
    server,
    tool,
    arguments: JSON.stringify(args),
    startMs,
    durationMs,
    state: failed ? { type: 'failed', error: { code: 'tool_failed', message: failed, hint: null, logId: null } } : { type: 'done' },
    resultBytes: failed ? null : 480 + ((startMs * 7919) % 90_000),
  }));
}

function recorded(sketch: Sketch, id: string, startedAt: number): RunDetail {
  const made = calls(sketch.calls);
  const status = sketch.status ?? 'success';
  const code = { error: 'python_error', timeout: 'run_timeout', out_of_memory: 'run_out_of_memory' } as const;
  const run: Run = {
    id,
    client: sketch.client,
    connectionId: null,
    session: sketch.session ?? null,
    title: sketch.code.split('\n')[0] ?? '',
    status,
    startedAt,
    durationMs: sketch.ms,
    servers: [...new Set(made.map((it) => it.server))],
    calls: made.length,
    callsFailed: made.filter((it) => it.state.type === 'failed').length,
    kind: 'container',
    memoryBytesPeak: (18 + ((startedAt / 1000) % 90)) * MiB,
    replyTokens: 40 + Math.floor((sketch.stdout ?? '').length / 3),
    directTokens: made.length > 0 ? 9_400 + made.length * 5_210 : null,
  };
  return {
    run,
    code: sketch.code,
    stdout: sketch.stdout ?? '',
    stderr: sketch.stderr ?? '',
    result: sketch.result ?? null,
    error:
      status === 'error' || status === 'timeout' || status === 'out_of_memory'
        ? {
            code: code[status],
            message: sketch.error ?? '',
            hint: {
              error: null,
              timeout: 'Raise “Time for a run” in Sandbox, Limits.',
              out_of_memory: 'Raise “Memory” in Sandbox, Limits.',
            }[status],
            logId: null,
          }
        : null,
    charsLeftOut: 0,
    calls: made,
    log: [],
    seq: 0,
  };
}

/** Runs that have ended, the newest first. */
export function recordedRuns(now: number, amount: number): RunDetail[] {
  return Array.from({ length: amount }, (_, index) => {
    const sketch = sketches[index % sketches.length] as Sketch;
    return recorded(sketch, `run-${amount - index}`, now - 260_000 - index * 1_130_000);
  });
}
