// Recorded clients, and what connecting them would change.

import type { Client, ClientAction, ClientPlan, ClientServer } from '../bindings';

const home = '/home/ada';

function server(name: string, tools: number | null, tokens: number | null, rest: Partial<ClientServer> = {}): ClientServer {
  return { name, off: null, moved: false, tools, tokens, ...rest };
}

function client(id: string, name: string, file: string | null, rest: Partial<Client>): Client {
  return {
    id,
    name,
    announces: [id.replace(/\W/g, '')],
    file: file === null ? null : `${home}/${file}`,
    state: { type: 'not_connected' },
    running: null,
    restart: null,
    keep: false,
    preferred: false,
    servers: [],
    ...rest,
  };
}

export function recordedClients(): Map<string, Client> {
  const all = [
    client('claude-desktop', 'Claude Desktop', '.config/Claude/claude_desktop_config.json', {
      state: { type: 'connected', name: 'runbridge' },
      running: true,
      restart: 'quit Claude Desktop, in the tray or menu bar too, and start it again',
      keep: true,
      servers: [
        server('filesystem', 14, 3_120, { moved: true }),
        server('github', 96, 21_480, { moved: true }),
        server('brave-search', 2, 410, { off: '`disabled` is true in its file' }),
      ],
    }),
    client('claude-code', 'Claude Code', '.claude.json', {
      state: { type: 'connected', name: 'runbridge' },
      running: true,
      restart: 'start a new session',
      servers: [
        server('playwright', 32, 6_940),
        server('memory', 9, 2_210),
        server('internal-docs', null, null),
        server('sqlite', 6, 1_180, { off: 'Claude Code has it off in this project' }),
      ],
    }),
    client('cursor', 'Cursor', '.cursor/mcp.json', {
      state: { type: 'connected', name: 'runbridge' },
      running: true,
      servers: [server('linear', 22, 5_310)],
    }),
    client('windsurf', 'Windsurf', '.codeium/windsurf/mcp_config.json', {
      state: { type: 'lost' },
      restart: 'press refresh in its MCP panel',
      servers: [server('notion', 19, 8_020)],
    }),
    client('vscode', 'VS Code', null, {
      state: {
        type: 'several',
        files: [`${home}/.config/Code/User/mcp.json`, `${home}/.config/VSCodium/User/mcp.json`],
      },
      running: true,
    }),
    client('zed', 'Zed', '.config/zed/settings.json', {
      state: { type: 'unreadable', line: 14, column: 3, message: 'this is not valid JSON: expected a comma', markOnly: false },
      running: false,
    }),
    client('gemini-cli', 'Gemini CLI', '.gemini/settings.json', {
      state: {
        type: 'unreadable',
        line: 1,
        column: 1,
        message: 'it begins with a byte order mark, because of which the client reads nothing of it; connecting can take the mark out',
        markOnly: true,
      },
      restart: 'start it again',
    }),
    client('codex', 'Codex', '.codex/config.toml', { restart: 'start a new session' }),
    client('lm-studio', 'LM Studio', '.lmstudio/mcp.json', { state: { type: 'name_taken' }, servers: [server('runbridge', null, null)] }),
  ];
  return new Map(all.map((it) => [it.id, it]));
}

const entry = [
  '+    "runbridge": {',
  '+      "command": "/home/ada/.local/share/runbridge/bin/runbridge",',
  '+      "args": []',
  '+    },',
];

/** What is added and taken out, as the bridge shows it. */
function diff(it: Client, action: ClientAction): string {
  const own = it.servers.filter((each) => (action === 'move' ? !each.moved && each.off === null : each.moved));
  const servers = own.map((each) => `    "${each.name}": {"command": "npx", "args": ["-y", "${each.name}"], "env": {"TOKEN": "***"}},`);
  const named = it.state.type === 'connected';
  const lines: Record<ClientAction, string[]> = {
    connect: entry,
    disconnect: [...entry.map((line) => line.replace('+', '-')), ...servers.map((line) => `+${line}`)],
    move: [...(named ? [] : entry), ...servers.map((line) => `-${line}`)],
    restore: servers.map((line) => `+${line}`),
  };
  return ['@@ -1,4 +1,8 @@', ' {', '   "mcpServers": {', ...lines[action], '   }', ' }', ''].join('\n');
}

export function recordedPlan(it: Client, action: ClientAction, file: string | null): ClientPlan {
  const cost = (moved: boolean): number =>
    it.servers.filter((each) => each.off === null && (moved || !each.moved)).reduce((sum, each) => sum + (each.tokens ?? 0), 0);
  const us = 190;
  const named = it.state.type === 'connected';
  const before = cost(false) + (named ? us : 0);
  const after = { connect: cost(false) + us, disconnect: cost(true), move: us, restore: cost(true) + us }[action];
  return {
    client: it.id,
    file: file ?? it.file ?? '',
    creates: it.id === 'codex',
    changes: true,
    diff: diff(it, action),
    notes: [
      ...(action === 'move'
        ? it.servers.filter((each) => each.off !== null).map((each) => `\`${each.name}\` stays where it is: it is off`)
        : []),
      ...(it.restart && it.running !== false ? [`to make ${it.name} see it: ${it.restart}`] : []),
    ],
    tokensBefore: before,
    tokensAfter: after,
    tokensUnknown: it.servers.filter((each) => each.tokens === null).length,
    seen: `${it.id} ${action} ${it.state.type}`,
  };
}

/** The client after the change. */
export function afterwards(it: Client, action: ClientAction, file: string | null, keep: boolean): Client {
  const moved = action === 'move';
  const servers = it.servers.map((each) => ({ ...each, moved: action === 'connect' ? each.moved : moved && each.off === null }));
  const state = action === 'disconnect' ? ({ type: 'not_connected' } as const) : ({ type: 'connected', name: 'runbridge' } as const);
  return { ...it, file: file ?? it.file, state, servers, keep: action === 'disconnect' ? false : keep };
}
