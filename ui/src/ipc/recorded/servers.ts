// Recorded servers and tools.

import type { LogLine, NewServer, Server, ServerDetail, ServerOutput, ServerState, Tool, ToolDetail, Variable } from '../bindings';

const MiB = 1024 * 1024;

interface Recorded {
  server: Server;
  tools: Tool[];
  variables: Variable[];
  stderr: string;
  log: LogLine[];
  instructions: string | null;
}

interface Sketch {
  name: string;
  client: string;
  target: string;
  description: string;
  tools: string[];
  tokens: number;
  state?: ServerState;
  enabled?: boolean;
  offReason?: string;
  own?: boolean;
  variables?: Variable[];
  stderr?: string;
  notes?: string[];
  instructions?: string;
  transport?: Server['transport'];
  memory?: number;
  calls?: number;
  revision?: string;
}

const paths: Record<string, string> = {
  'claude-desktop': '/home/ada/.config/Claude/claude_desktop_config.json',
  'claude-code': '/home/ada/.claude.json',
  cursor: '/home/ada/.cursor/mcp.json',
  'drop-folder': '/home/ada/MCPs/extra.json',
  runbridge: '/home/ada/.config/runbridge/settings.json',
};

const secret = (name: string, missing = false): Variable => ({ name, value: null, secret: true, missing });

function sketches(now: number): Sketch[] {
  return [
    {
      name: 'filesystem',
      client: 'claude-desktop',
      target: 'npx -y @modelcontextprotocol/server-filesystem /home/ada/projects',
      description: 'Read and write files in allowed folders',
      tools:
        'read_text_file:Read a file as text;read_media_file:Read an image or audio file;read_multiple_files:Read several files at once;write_file:Create a file or overwrite it;edit_file:Change lines of a text file;create_directory:Create a folder;list_directory:List files and folders;list_directory_with_sizes:List files and folders with sizes;directory_tree:A folder as a tree;move_file:Move or rename;search_files:Find files by pattern;get_file_info:Size, times and permissions;list_allowed_directories:Folders that may be used'.split(
          ';',
        ),
      tokens: 3012,
      state: { type: 'ready' },
      memory: 66,
      calls: 214,
      stderr:
        "Secure MCP Filesystem Server running on stdio\nClient does not support MCP Roots, using allowed directories set from server args: [ '/home/ada/projects' ]\n",
    },
    {
      name: 'github',
      client: 'claude-desktop',
      target: 'npx -y @modelcontextprotocol/server-github',
      description: 'Issues, pull requests and files of repositories',
      tools:
        'create_or_update_file:Create or update a single file in a repository;search_repositories:Search for repositories;create_repository:Create a repository in your account;get_file_contents:Contents of a file or folder;push_files:Push several files in one commit;create_issue:Create an issue in a repository;create_pull_request:Create a pull request;fork_repository:Fork a repository;create_branch:Create a branch;list_commits:Commits of a branch;list_issues:Issues of a repository, filtered;update_issue:Update an issue;add_issue_comment:Comment on an issue;search_code:Search code;search_issues:Search issues and pull requests;search_users:Search users;get_issue:One issue;get_pull_request:One pull request;list_pull_requests:Pull requests of a repository;create_pull_request_review:Review a pull request;merge_pull_request:Merge a pull request;get_pull_request_files:Files changed in a pull request;get_pull_request_status:Status checks of a pull request;update_pull_request_branch:Update a pull request’s branch;get_pull_request_comments:Review comments;get_pull_request_reviews:Reviews'.split(
          ';',
        ),
      tokens: 3563,
      state: { type: 'ready' },
      memory: 60,
      calls: 58,
      revision: '2024-11-05',
      variables: [
        secret('GITHUB_PERSONAL_ACCESS_TOKEN'),
        { name: 'GITHUB_HOST', value: 'https://github.example.org', secret: false, missing: false },
      ],
      stderr: 'GitHub MCP Server running on stdio\n',
    },
    {
      name: 'grafana',
      client: 'cursor',
      target: 'mcp-grafana',
      description: 'Dashboards, metrics and incidents',
      tools: Array.from(
        { length: 79 },
        (_, index) =>
          `${['query', 'list', 'get', 'update'][index % 4]}_${['dashboard', 'panel', 'alert_rule', 'datasource', 'incident', 'annotation', 'team'][index % 7]}${index > 27 ? `_${index}` : ''}:Works on Grafana through its HTTP interface`,
      ),
      tokens: 25_387,
      state: { type: 'stopped' },
      variables: [secret('GRAFANA_SERVICE_ACCOUNT_TOKEN')],
    },
    {
      name: 'linear',
      client: 'runbridge',
      target: 'https://mcp.linear.app/mcp',
      description: 'Issues and projects in Linear',
      tools: [],
      tokens: 0,
      transport: 'http',
      own: true,
      state: { type: 'needs_sign_in' },
      variables: [],
    },
    {
      name: 'memory',
      client: 'claude-code',
      target: 'npx -y @modelcontextprotocol/server-memory',
      description: 'A graph of entities and relations',
      tools:
        'create_entities:Add entities to the graph;create_relations:Connect entities;add_observations:Add facts to an entity;delete_entities:Remove entities;delete_observations:Remove facts;delete_relations:Remove relations;read_graph:The whole graph;search_nodes:Find entities;open_nodes:Entities by name'.split(
          ';',
        ),
      tokens: 2501,
      enabled: false,
    },
    {
      name: 'notion',
      client: 'claude-desktop',
      target: 'npx -y @notionhq/notion-mcp-server',
      description: 'Pages and databases in Notion',
      tools: Array.from(
        { length: 24 },
        (_, index) =>
          `API-${['post', 'get', 'patch', 'delete'][index % 4]}-${['page', 'database', 'block', 'comment', 'user', 'search'][Math.floor(index / 4)]}:Notion API`,
      ),
      tokens: 17_130,
      state: { type: 'needs_value', names: ['NOTION_TOKEN'] },
      variables: [secret('NOTION_TOKEN', true)],
    },
    {
      name: 'playwright',
      client: 'cursor',
      target: 'npx @playwright/mcp@latest',
      description: 'A browser that can be driven',
      tools: Array.from(
        { length: 25 },
        (_, index) =>
          `browser_${['navigate', 'click', 'type', 'snapshot', 'take_screenshot', 'press_key', 'select_option', 'wait_for', 'hover', 'drag', 'evaluate', 'file_upload', 'fill_form', 'handle_dialog', 'network_requests', 'console_messages', 'tabs', 'close', 'resize', 'install', 'navigate_back', 'mouse_click_xy', 'mouse_move_xy', 'mouse_drag_xy', 'pdf_save'][index]}:Acts on the page that is open`,
      ),
      tokens: 4559,
      state: { type: 'ready' },
      memory: 458,
      calls: 12,
      instructions: 'Take a snapshot before you click. Close the browser when you are done.',
      notes: ['Writes to stdout what is not JSON-RPC; such lines are skipped.'],
    },
    {
      name: 'postgres',
      client: 'drop-folder',
      target: 'npx -y @modelcontextprotocol/server-postgres postgresql://localhost/shop',
      description: 'Read-only queries',
      tools: ['query:Run a read-only SQL query'],
      tokens: 141,
      state: {
        type: 'failed',
        error: {
          code: 'server_unreachable',
          message: 'server `postgres` did not start: it exited with code 1; its last line on stderr: connect ECONNREFUSED 127.0.0.1:5432',
          hint: 'Is the database running?',
          logId: null,
        },
        retryAt: now + 32_000,
      },
      stderr:
        "Error: connect ECONNREFUSED 127.0.0.1:5432\n    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1611:16) {\n  errno: -111,\n  code: 'ECONNREFUSED',\n  syscall: 'connect',\n  address: '127.0.0.1',\n  port: 5432\n}\n",
      variables: [],
    },
    {
      name: 'sequential-thinking',
      client: 'claude-code',
      target: 'npx -y @modelcontextprotocol/server-sequential-thinking',
      description: 'Step by step reasoning',
      tools: ['sequentialthinking:Think in steps that can be revised'],
      tokens: 1029,
      state: { type: 'stopped' },
    },
    {
      name: 'slack',
      client: 'claude-desktop',
      target: 'npx -y @modelcontextprotocol/server-slack',
      description: 'Channels and messages',
      tools:
        'slack_list_channels:Channels of the workspace;slack_post_message:Post a message;slack_reply_to_thread:Reply in a thread;slack_add_reaction:Add a reaction;slack_get_channel_history:Recent messages;slack_get_thread_replies:Replies of a thread;slack_get_users:Users of the workspace;slack_get_user_profile:One user'.split(
          ';',
        ),
      tokens: 700,
      enabled: false,
      offReason: 'the client’s file says `disabled`',
      variables: [secret('SLACK_BOT_TOKEN'), { name: 'SLACK_TEAM_ID', value: 'T01234567', secret: false, missing: false }],
    },
    {
      name: 'sqlite',
      client: 'drop-folder',
      target: 'uvx mcp-server-sqlite --db-path /home/ada/shop.db',
      description: 'Query and change a SQLite database',
      tools:
        'read_query:Run a SELECT;write_query:Run INSERT, UPDATE or DELETE;create_table:Create a table;list_tables:Tables of the database;describe_table:Columns of a table;append_insight:Add an insight to the memo'.split(
          ';',
        ),
      tokens: 288,
      state: { type: 'starting' },
      calls: 31,
    },
    {
      name: 'time',
      client: 'claude-code',
      target: 'uvx mcp-server-time',
      description: 'Time and time zones',
      tools: 'get_current_time:The time now in a zone;convert_time:A time in another zone'.split(';'),
      tokens: 508,
      state: { type: 'ready' },
      memory: 62,
      calls: 9,
      revision: '2026-07-28',
    },
  ];
}

function recorded(sketch: Sketch, now: number): Recorded {
  const { tools: named } = sketch;
  const each = named.length > 0 ? Math.floor(sketch.tokens / named.length) : 0;
  const tools = named.map((text, index): Tool => {
    const [name = '', summary = ''] = text.split(':');
    const readOnly = /^(get|list|read|search|query|browser_snapshot|describe|directory|convert|open)/.test(name);
    return {
      name,
      summary,
      enabled: !(sketch.name === 'github' && /merge|push_files/.test(name)),
      deniedBySource: false,
      tokens: Math.max(12, each + ((index * 29) % 61) - 30),
      readOnly,
    };
  });
  const state = sketch.enabled === false ? { type: 'stopped' as const } : (sketch.state ?? { type: 'stopped' as const });
  const ready = state.type === 'ready';
  return {
    tools,
    variables: sketch.variables ?? [],
    stderr: sketch.stderr ?? '',
    log: [],
    instructions: sketch.instructions ?? null,
    server: {
      name: sketch.name,
      alias: sketch.name.replace(/\W/g, '_'),
      description: sketch.description,
      transport: sketch.transport ?? 'stdio',
      target: sketch.target,
      sources: [{ client: sketch.client, path: paths[sketch.client] ?? '', name: sketch.name }],
      own: sketch.own ?? false,
      enabled: sketch.enabled ?? true,
      offReason: sketch.offReason ?? null,
      state,
      revision: ready ? (sketch.revision ?? '2025-11-25') : null,
      startedAt: ready ? now - 5_400_000 : null,
      startMs: ready ? 340 : null,
      pid: ready ? 4200 + sketch.name.length * 17 : null,
      memoryBytes: ready ? (sketch.memory ?? 60) * MiB : null,
      toolsCount: tools.length,
      toolsEnabled: tools.filter((it) => it.enabled).length,
      tokens: sketch.tokens,
      callsToday: sketch.calls ?? 0,
      notes: sketch.notes ?? [],
    },
  };
}

/** Servers by name. `many` adds one with a thousand tools. */
export function recordedServers(now: number, many: boolean): Map<string, Recorded> {
  const all = sketches(now);
  if (many) {
    all.push({
      name: 'warehouse',
      client: 'claude-desktop',
      target: 'warehouse-mcp --all',
      description: 'A server with very many tools',
      tools: Array.from(
        { length: 1000 },
        (_, index) => `${['find', 'count', 'move', 'price'][index % 4]}_item_${String(index).padStart(4, '0')}:Works on shelf ${index}`,
      ),
      tokens: 212_400,
      state: { type: 'ready' },
      memory: 140,
    });
    for (let index = 0; index < 60; index += 1) {
      all.push({
        name: `service-${String(index).padStart(2, '0')}`,
        client: 'cursor',
        target: `service-${index}`,
        description: 'One of many',
        tools: ['ping:Answers'],
        tokens: 60,
      });
    }
  }
  return new Map(
    all.map((sketch) => [sketch.name, recorded(sketch, now)]).sort(([a], [b]) => String(a).localeCompare(String(b))) as [
      string,
      Recorded,
    ][],
  );
}

export function toDetail(it: Recorded): ServerDetail {
  return {
    server: it.server,
    tools: it.tools,
    variables: it.variables,
    cwd: null,
    instructions: it.instructions,
  };
}

export function toOutput(it: Recorded): ServerOutput {
  return { stderr: it.stderr, log: it.log };
}

export function toToolDetail(it: Recorded, name: string): ToolDetail | null {
  const tool = it.tools.find((each) => each.name === name);
  if (!tool) return null;
  return {
    name,
    description: `${tool.summary}.\n\nFails with a clear message when the repository does not exist or the token may not write to it.`,
    signature: `${name}(*, owner: str, repo: str, title: str, body: str | None = None, labels: list[str] = None) -> dict`,
    inputSchema: JSON.stringify({
      type: 'object',
      properties: {
        owner: { type: 'string', description: 'Owner of the repository' },
        repo: { type: 'string', description: 'Name of the repository' },
        title: { type: 'string' },
        body: { type: ['string', 'null'], default: null },
        labels: { type: 'array', items: { type: 'string' }, maxItems: 100 },
      },
      required: ['owner', 'repo', 'title'],
      additionalProperties: false,
    }),
    outputSchema: null,
  };
}

export function fromNew(server: NewServer, now: number): Recorded {
  const target = server.transport.type === 'http' ? server.transport.url : [server.transport.command, ...server.transport.args].join(' ');
  const it = recorded(
    {
      name: server.name,
      client: 'runbridge',
      target,
      description: '',
      tools: [],
      tokens: 0,
      own: true,
      transport: server.transport.type === 'http' ? 'http' : 'stdio',
    },
    now,
  );
  it.server.description = null;
  it.variables = server.variables.map(({ name, value, secret: hidden }) => ({
    name,
    value: hidden ? null : value,
    secret: hidden,
    missing: false,
  }));
  return it;
}

export type { Recorded };
