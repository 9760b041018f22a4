// What the window does, through what a user sees and presses.

import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { app } from '../../ui/src/ipc/recorded/data';
import { accessible, open, type Recorded } from './window';

type RecordedWindow = Window & { recorded: Recorded };

const toast = (page: Page) => page.getByRole('region', { name: 'Messages' });

test('a switch moves at once, and back with a message when the bridge refuses', async () => {
  const page = await open({
    view: 'servers',
    open: 'github',
    fail: ['set_server_enabled', 'set_tool_enabled'],
  });
  const server = page.getByRole('switch', { name: 'github may be called' }).first();
  await server.click();
  await toast(page).getByText('The bridge is busy').waitFor();
  await expect.poll(() => server.isChecked()).toBe(true);
  const tool = page.getByRole('switch', { name: 'create_issue may be called' });
  await tool.click();
  await toast(page).getByText('set_tool_enabled was refused').waitFor();
  await expect.poll(() => tool.isChecked()).toBe(true);
  await accessible(page);
});

test('a switch that the bridge takes stays, and its number follows', async () => {
  const page = await open({ view: 'servers', open: 'github' });
  await page.getByRole('switch', { name: 'create_issue may be called' }).click();
  await page.getByRole('switch', { name: 'github may be called' }).first().click();
  await page.getByRole('button', { name: 'filesystem' }).click();
  await page.getByRole('heading', { level: 2, name: 'filesystem' }).waitFor();
  await page.getByRole('button', { name: 'github' }).click();
  await expect.poll(() => page.getByRole('switch', { name: 'create_issue may be called' }).isChecked()).toBe(false);
  expect(await page.getByRole('switch', { name: 'github may be called' }).first().isChecked()).toBe(false);
});

test('all tools go off and on together', async () => {
  const page = await open({ view: 'servers', open: 'time' });
  await page.getByRole('button', { name: 'All off' }).click();
  await expect.poll(() => page.getByRole('switch', { name: 'convert_time may be called' }).isChecked()).toBe(false);
  await page.getByRole('button', { name: 'All on' }).click();
  await expect.poll(() => page.getByRole('switch', { name: 'convert_time may be called' }).isChecked()).toBe(true);
});

test('a tool shows its signature and its schema', async () => {
  const page = await open({ view: 'servers', open: 'github' });
  await page.getByRole('button', { name: 'create_issue', exact: false }).first().click();
  const dialog = page.getByRole('dialog', { name: 'create_issue' });
  await dialog.getByText('create_issue(*, owner: str').waitFor();
  await dialog.getByText('"Owner of the repository"').waitFor();
  await accessible(page);
});

test('a server that becomes ready says so without being asked', async () => {
  const page = await open({ view: 'servers', open: 'sqlite' });
  const title = page.locator('header', {
    has: page.getByRole('heading', { level: 2, name: 'sqlite' }),
  });
  await title.getByText('Starting').waitFor();
  await page.evaluate(() => (window as unknown as RecordedWindow).recorded.serverBecomesReady('sqlite'));
  await title.getByText('Ready').waitFor();
});

test('a missing value is filled in and never shown again', async () => {
  const page = await open({ view: 'servers', open: 'notion' });
  await page.getByRole('button', { name: 'Fill in' }).click();
  await page.getByRole('button', { name: 'Set value' }).click();
  const dialog = page.getByRole('dialog', { name: 'Value for NOTION_TOKEN' });
  const field = dialog.getByLabel('NOTION_TOKEN', { exact: true });
  expect(await field.getAttribute('type')).toBe('password');
  await field.fill('ntn_secret_value');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Kept in the secret store').waitFor();
  await page.getByText('Needs a value').first().waitFor({ state: 'detached' });
  expect(await page.content()).not.toContain('ntn_secret_value');
  expect(await page.evaluate(() => [...document.querySelectorAll('input')].map((it) => it.value).join())).not.toContain('ntn_secret_value');
});

test('servers are added from the JSON of any client', async () => {
  const page = await open({ view: 'servers' });
  await page.getByRole('button', { name: 'Add server' }).click();
  await page.getByRole('tab', { name: 'Paste JSON' }).click();
  const json = page.getByRole('textbox', { name: 'JSON of any client' });
  await json.fill('{"mcpServers": {"weather": ');
  await page.getByText(/Line 1, column \d+/).waitFor();
  await json.fill(
    '{"mcpServers": {"weather": {"command": "uvx", "args": ["weather-mcp"], "env": {"API_KEY": "k-123456"}}, "time": {"command": "x"}}}',
  );
  await page.getByText('2 servers found').waitFor();
  await page.getByText('goes to the secret store: API_KEY').waitFor();
  await page.getByText('A server of that name is there already.').waitFor();
  await accessible(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByRole('heading', { level: 2, name: 'weather' }).waitFor();
  await page.getByRole('tab', { name: 'Variables' }).click();
  await page.getByText('Kept in the secret store').waitFor();
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('heading', { level: 2, name: 'weather' }).waitFor({ state: 'detached' });
});

test('a server is added by form', async () => {
  const page = await open({ view: 'servers' });
  await page.getByRole('button', { name: 'Add server' }).click();
  const dialog = page.getByRole('dialog');
  const add = dialog.getByRole('button', { name: 'Add', exact: true });
  await dialog.getByLabel('Name').fill('github');
  await dialog.getByText('A server of that name is there already.').waitFor();
  await dialog.getByLabel('Name').fill('notes');
  await dialog.getByRole('textbox', { name: 'Command' }).fill('npx -y "notes server');
  await dialog.getByText('A quotation mark is not closed.').waitFor();
  expect(await add.isDisabled()).toBe(true);
  await dialog.getByRole('textbox', { name: 'Command' }).fill('npx -y "notes server"');
  await add.click();
  await page.getByRole('heading', { level: 2, name: 'notes' }).waitFor();
});

test('packages are governed and taken away', async () => {
  const page = await open({ view: 'sandbox', part: 'packages' });
  const policy = page.getByRole('combobox', { name: 'When code wants a package' });
  await policy.selectOption('Allow');
  await page.getByText('It is installed without a question.').waitFor();
  await page.getByText('needed by another').waitFor();
  await page.getByRole('button', { name: 'Remove rich' }).click();
  await page.getByText('rich 14.2.0').waitFor({ state: 'detached' });
  expect(await policy.inputValue()).toBe('allow');
  await accessible(page);
});

test('a choice for packages that is refused goes back', async () => {
  const page = await open({ view: 'sandbox', part: 'packages', fail: ['set_packages_policy', 'remove_package'] });
  const policy = page.getByRole('combobox', { name: 'When code wants a package' });
  const before = await policy.inputValue();
  await policy.selectOption('Off');
  await toast(page).getByText('set_packages_policy was refused').waitFor();
  await expect.poll(() => policy.inputValue()).toBe(before);
  await page.getByRole('button', { name: 'Remove rich' }).click();
  await toast(page).getByText('remove_package was refused').waitFor();
  await page.getByText('rich 14.2.0').waitFor();
});

test('a limit is dragged, typed, refused, and put back to its default', async () => {
  const page = await open({ view: 'sandbox', part: 'limits' });
  const slider = page.getByRole('slider', { name: 'Memory', exact: true });
  const field = page.getByRole('textbox', { name: 'Memory', exact: true });
  expect(await slider.getAttribute('aria-valuetext')).toBe('512 MiB');
  await slider.focus();
  await page.keyboard.press('ArrowRight');
  await expect.poll(() => field.inputValue()).toBe('768 MiB');
  await page.getByText('Default 512 MiB').waitFor();
  await field.fill('lots');
  await page.getByText('Write it like 512m or 1.5g.').waitFor();
  await field.fill('1m');
  await page.getByText('From 32 MiB to 1 TiB.').waitFor();
  await field.fill('1g');
  await page.keyboard.press('Enter');
  await expect.poll(() => slider.getAttribute('aria-valuetext')).toBe('1 GiB');
  await page.getByText('This limit cannot be changed.').waitFor();
  await page.getByRole('button', { name: 'Put “Memory” back to its default' }).click();
  await expect.poll(() => field.inputValue()).toBe('512 MiB');
  await accessible(page);
});

test('a limit that the bridge refuses goes back', async () => {
  const page = await open({
    view: 'sandbox',
    part: 'limits',
    fail: ['set_limit'],
  });
  const slider = page.getByRole('slider', { name: 'CPUs' });
  await slider.focus();
  await page.keyboard.press('ArrowRight');
  await toast(page).getByText('The bridge is busy').waitFor();
  await expect.poll(() => slider.getAttribute('aria-valuetext')).toBe('no limit');
});

test('a limit that a variable sets cannot be changed here, and says so', async () => {
  const page = await open({ view: 'sandbox', part: 'limits' });
  await page.evaluate(() => {
    const bridge = (window as unknown as RecordedWindow).recorded;
    bridge.emit({
      type: 'limits',
      limits: [
        {
          name: 'memory_bytes_max',
          about: '',
          group: 'sandbox',
          unit: 'bytes',
          value: 268435456,
          default: 536870912,
          min: 67108864,
          usualMax: 8589934592,
          ceiling: 1099511627776,
          variable: 'MCP_BRIDGE_MEMORY',
          setBy: 'variable',
        },
      ],
    });
  });
  await page.getByText('Set by MCP_BRIDGE_MEMORY, which wins over this window.').waitFor();
  expect(await page.getByRole('slider', { name: 'Memory' }).isDisabled()).toBe(true);
});

test('a pull shows how far it is', async () => {
  const page = await open({ view: 'sandbox' });
  await page.getByRole('button', { name: 'Pull' }).click();
  const bar = page.getByRole('progressbar', { name: 'Pulling' });
  await expect.poll(async () => Number(await bar.getAttribute('aria-valuenow'))).toBeGreaterThan(10);
  await page.getByText('Present', { exact: true }).waitFor();
});

test('Python is run in the window, and stopped', async () => {
  const page = await open({ view: 'sandbox', part: 'scratch' });
  const code = page.getByRole('textbox', { name: 'Python' });
  await code.fill('print("hello")');
  await code.press('Control+Enter');
  await page.getByText('hello', { exact: true }).waitFor();
  await page.getByText('Done', { exact: true }).waitFor();
  await code.fill('while True: pass');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Show in activity' }).click();
  await page.getByText('while True: pass', { exact: true }).first().waitFor();
  await accessible(page);
});

test('what a server writes and logs appears while it is looked at', async () => {
  const page = await open({ view: 'servers', open: 'time' });
  const says = (said: { stderr?: string; log?: string }) =>
    page.evaluate((it) => (window as unknown as RecordedWindow).recorded.serverSays('time', it), said);
  await says({ stderr: 'before anybody looked\n' });
  await page.getByRole('tab', { name: 'Output' }).click();
  await page.getByText('before anybody looked').waitFor();
  await says({ stderr: 'a second line\n' });
  await page.getByText('a second line').waitFor();
  await says({ log: 'zones were read' });
  await page.getByRole('group', { name: 'Log' }).getByText('info: zones were read').waitFor();
  await accessible(page);
  // The newest words stay in sight, unless somebody has scrolled back.
  const shown = page.getByRole('group', { name: 'Output' });
  const fromEnd = () => shown.evaluate((it) => Math.round(it.scrollHeight - it.clientHeight - it.scrollTop));
  await says({ stderr: 'line\n'.repeat(200) });
  await expect.poll(fromEnd).toBeLessThan(8);
  await shown.evaluate((it) => (it.scrollTop = 0));
  await says({ stderr: 'the newest\n' });
  await page.getByText('the newest').waitFor();
  expect(await shown.evaluate((it) => it.scrollTop)).toBe(0);
});

test('a run appears live, shows its calls, and moves to the past', async () => {
  const page = await open({ view: 'activity' });
  await page.getByText('44 runs on record').waitFor();
  await page.evaluate(() => void (window as unknown as RecordedWindow).recorded.playRun(400));
  await page.getByRole('button', { name: 'tables = await mcp_sqlite.list_tables()' }).click();
  await page.getByRole('status').getByText('Running').waitFor();
  await page.getByRole('button', { name: /sqlite\.describe_table/ }).waitFor();
  await page.getByRole('group', { name: 'Output' }).getByText('customers').waitFor();
  await page.getByRole('status').getByText('Done').waitFor();
  await page.getByText('45 runs on record').waitFor();
  await page.getByRole('button', { name: /sqlite\.describe_table/ }).click();
  await page.getByText('"table_name": "orders"').waitFor();
  await accessible(page);
});

test('a run is stopped from Home', async () => {
  const page = await open();
  await page.getByRole('button', { name: /^Stop “files/ }).click();
  await page.getByText('No run is active').waitFor();
});

test('runs are filtered by client, server, status and text', async () => {
  const page = await open({ view: 'activity' });
  const list = page.getByRole('list', { name: 'Runs' });
  await page.getByRole('combobox', { name: 'Server' }).selectOption('sqlite');
  await expect.poll(() => list.getByRole('listitem').count()).toBe(4);
  await page.getByRole('combobox', { name: 'Server' }).selectOption('Server');
  await page.getByRole('combobox', { name: 'Status' }).selectOption('Out of memory');
  await list.getByText('rows = [bytearray(1 << 20)').first().waitFor();
  await page.getByRole('combobox', { name: 'Status' }).selectOption('Status');
  await page.getByRole('searchbox').fill('stale_issues');
  await expect.poll(() => list.getByText('load_memory').count()).toBe(4);
  expect(await list.getByText('bytearray').count()).toBe(0);
});

test('a memory item is edited as JSON, and only valid JSON is saved', async () => {
  const page = await open({ view: 'memory', open: 'preferences' });
  await page.getByRole('button', { name: 'Edit' }).click();
  const editor = page.getByRole('textbox', { name: 'Value as JSON' });
  const save = page.getByRole('button', { name: 'Save' });
  await editor.fill('{"units": "metric",}');
  await page.getByText('Line 1, column 20: a key in quotation marks is expected').waitFor();
  expect(await save.isDisabled()).toBe(true);
  await editor.fill('{"units": "imperial", "big": 1180591620717411303424}');
  await save.click();
  await page.getByText('1180591620717411303424').waitFor();
  await page.getByText('"imperial"').waitFor();
  await accessible(page);
});

test('an edit that was overtaken is not saved over the other', async () => {
  const page = await open({ view: 'memory', open: 'preferences', fail: [] });
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('textbox', { name: 'Value as JSON' }).fill('{"mine": true}');
  await page.evaluate(async () => {
    const host = (
      window as unknown as {
        recorded: {
          invoke(name: string, args: object): Promise<{ info: { version: number } }>;
        };
      }
    ).recorded;
    const { info } = await host.invoke('read_memory_item', {
      key: 'preferences',
    });
    await host.invoke('save_memory_item', {
      key: 'preferences',
      value: '{"theirs":true}',
      expectedVersion: info.version,
    });
  });
  await page.getByText('This item was changed meanwhile').waitFor();
  expect(await page.getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
  await page.getByRole('button', { name: 'Load new value' }).click();
  await expect.poll(() => page.getByRole('textbox', { name: 'Value as JSON' }).inputValue()).toContain('theirs');
});

test('what is typed is kept while another item is looked at', async () => {
  const page = await open({ view: 'memory', open: 'preferences' });
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('textbox', { name: 'Value as JSON' }).fill('{"half": ');
  await page.getByRole('button', { name: 'stale_issues' }).click();
  await page.getByRole('heading', { level: 2, name: 'stale_issues' }).waitFor();
  await page.getByRole('button', { name: 'preferences' }).click();
  await expect.poll(() => page.getByRole('textbox', { name: 'Value as JSON' }).inputValue()).toBe('{"half": ');
});

test('what is forgotten can be had back', async () => {
  const page = await open({ view: 'memory', open: 'stale_issues' });
  await page.getByRole('button', { name: 'Forget' }).click();
  await toast(page).getByText('Forgot stale_issues').waitFor();
  await page.getByText('8 items').waitFor();
  await toast(page).getByRole('button', { name: 'Undo' }).click();
  await page.getByText('9 items').waitFor();
  await page.getByRole('button', { name: 'stale_issues' }).waitFor();
  await page.getByRole('tab', { name: /Saved tools/ }).click();
  await page.getByRole('button', { name: 'open_issues' }).click();
  await page.getByRole('button', { name: 'Forget' }).click();
  await toast(page).getByRole('button', { name: 'Undo' }).click();
  await page.getByRole('button', { name: 'open_issues' }).waitFor();
});

test('memory is sorted, searched, exported and imported', async () => {
  const page = await open({ view: 'memory' });
  const list = page.getByRole('list', { name: 'Remembered items' });
  await page.getByRole('combobox', { name: 'Sort by' }).selectOption('Largest first');
  await expect.poll(() => list.getByRole('listitem').first().textContent()).toContain('embeddings/readme');
  await page.getByRole('searchbox').fill('checkout');
  await expect.poll(() => list.getByRole('listitem').count()).toBe(1);
  await page.getByRole('button', { name: 'Export' }).click();
  await toast(page).getByText('/home/ada/runbridge-memory.json').waitFor();
  await page.getByRole('button', { name: 'Import' }).click();
  await page.getByRole('button', { name: 'Keep mine' }).click();
  await toast(page).getByText('3 added, 0 replaced, 2 kept').waitFor();
});

test('events that were missed make the window ask again', async () => {
  const page = await open();
  await page.evaluate(() => {
    const bridge = (
      window as unknown as RecordedWindow & {
        recorded: { invoke(name: string, args: object): Promise<unknown> };
      }
    ).recorded;
    bridge.emit({ type: 'connection_closed', id: 'nobody' }, true);
    void bridge.invoke('set_paused', { paused: true });
  });
  await page.getByText('Everything is paused').waitFor();
  await accessible(page);
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('Everything is paused').waitFor({ state: 'detached' });
});

test('settings are changed, updates looked for, diagnostics seen before they are saved', async () => {
  const page = await open({ view: 'settings' });
  await page.getByText('Clients share one bridge').click();
  await expect.poll(() => page.getByRole('switch', { name: 'Start at login' }).isChecked()).toBe(true);
  await page.getByRole('combobox', { name: 'Keep runs for' }).selectOption('7 days');
  await page.getByRole('button', { name: 'Check now' }).click();
  await page.getByText('This is the newest version').waitFor();
  await page.getByRole('button', { name: 'Look and save' }).click();
  const dialog = page.getByRole('dialog', { name: 'Diagnostics bundle' });
  await dialog.getByRole('combobox').selectOption('runbridge.log');
  await dialog.getByText('authorization: ***').waitFor();
  await accessible(page);
  await dialog.getByRole('button', { name: 'Save bundle' }).click();
  await toast(page).getByText('/home/ada/runbridge-diagnostics.zip').waitFor();
});

test('a build that cannot look for newer ones says so and offers nothing', async () => {
  const page = await open({ view: 'settings' });
  await page.getByRole('button', { name: 'Check now' }).waitFor();
  await page.evaluate(
    (it) =>
      (window as unknown as RecordedWindow).recorded.emit({
        type: 'app',
        app: it,
      }),
    { ...app, update: { type: 'off' } },
  );
  await page.getByText('This build does not look for newer versions').waitFor();
  expect(await page.getByRole('button', { name: 'Check now' }).count()).toBe(0);
  expect(await page.getByRole('switch', { name: 'Look for updates' }).count()).toBe(0);
  await accessible(page);
});

test('messages go away by themselves, but not while they are held', async () => {
  const page = await open({ view: 'memory' });
  await page.getByRole('button', { name: 'Export' }).click();
  await toast(page).getByText('Exported').waitFor();
  await toast(page).getByText('Exported').hover();
  await page.clock.runFor(20_000);
  expect(await toast(page).getByText('Exported').count()).toBe(1);
  await page.mouse.move(0, 0);
  await page.clock.runFor(20_000);
  await toast(page).getByText('Exported').waitFor({ state: 'detached' });
});

test('interpreters are measured only while they are looked at', async () => {
  const page = await open({ view: 'sandbox', part: 'running' });
  await page
    .getByText(/Memory \d+ MiB of 512 MiB/)
    .first()
    .waitFor();
  await page.clock.runFor(5000);
  await page
    .getByRole('img', { name: /Memory/ })
    .first()
    .waitFor();
  await page.getByRole('button', { name: 'Stop the interpreter of Claude Code, shop' }).click();
  await page.getByText('The variables that Claude Code has set so far are lost.').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
  await expect.poll(() => page.getByRole('img', { name: /Memory/ }).count()).toBe(1);
  type Watched = {
    recorded: {
      invoke(name: string, args: { on?: boolean }): Promise<unknown>;
    };
    asked: unknown[];
  };
  await page.evaluate(() => {
    const shown = window as unknown as Watched;
    const invoke = shown.recorded.invoke.bind(shown.recorded);
    shown.asked = [];
    shown.recorded.invoke = (name, args) => {
      if (name === 'watch_interpreters') shown.asked.push(args.on);
      return invoke(name, args);
    };
  });
  await page.keyboard.press('1');
  await expect.poll(() => page.evaluate(() => (window as unknown as Watched).asked)).toEqual([false]);
});
