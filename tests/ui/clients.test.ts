// Connecting clients, as a user does it.

import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { accessible, fits, open, type Recorded } from './window';

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });

test('Connect shows what it will do, does it, and says what makes it count', async () => {
  const page = await open({ view: 'clients', size: [720, 480] });
  await button(page, 'Connect Codex').click();
  const dialog = page.getByRole('dialog', { name: 'Connect Codex' });
  await dialog.getByText('A new file with this content is made').waitFor();
  const change = dialog.getByRole('group', { name: 'Change of the file' });
  expect(await change.innerText()).toContain('"runbridge": {');
  await accessible(page);
  await fits(page);
  await dialog.getByRole('switch', { name: 'Put the entry back when it is lost' }).click({ force: true });
  await dialog.getByRole('button', { name: 'Connect', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  await page.getByText('Codex is connected').waitFor();
  await page.getByText('Start a new session.').first().waitFor();
  await expect.poll(() => button(page, 'Connect Codex').count()).toBe(0);
  await page.getByText('Codex', { exact: true }).click();
  await page.getByRole('heading', { level: 2, name: 'Codex' }).waitFor();
  await page.getByText('To make it count').waitFor();
  expect(await page.getByRole('switch', { name: 'Put the entry back when it is lost' }).isChecked()).toBe(true);
});

test('Cancel changes nothing', async () => {
  const page = await open({ view: 'clients' });
  await button(page, 'Connect Codex').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await button(page, 'Connect Codex').waitFor();
});

test('a client with several files asks which one', async () => {
  const page = await open({ view: 'clients', open: 'vscode' });
  await button(page, 'Connect').click();
  const dialog = page.getByRole('dialog', { name: 'Connect VS Code' });
  await dialog.getByText('/home/ada/.config/Code/User/mcp.json').last().waitFor();
  await dialog.getByRole('combobox', { name: 'File' }).selectOption('/home/ada/.config/VSCodium/User/mcp.json');
  await expect.poll(() => dialog.locator('.path').innerText()).toBe('/home/ada/.config/VSCodium/User/mcp.json');
  await dialog.getByRole('button', { name: 'Connect', exact: true }).click();
  await page.getByText('VS Code is connected').waitFor();
  await page.getByText('/home/ada/.config/VSCodium/User/mcp.json').waitFor();
});

test('moving the servers says what it saves, and they can be moved back', async () => {
  const page = await open({ view: 'clients', open: 'claude-code' });
  await page.getByText('starts with about 9,150 tokens').waitFor();
  await button(page, 'Move behind the bridge').click();
  const dialog = page.getByRole('dialog');
  await expect.poll(() => dialog.locator('.tokens').innerText()).toMatch(/9,340[^]*190/);
  await dialog.getByText('1 server was never started').waitFor();
  await dialog.getByText('`sqlite` stays where it is').waitFor();
  await accessible(page);
  await dialog.getByRole('button', { name: 'Move', exact: true }).click();
  await page.getByRole('region', { name: 'Behind the bridge' }).getByText('playwright').waitFor();
  await button(page, 'Move back').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Move back' }).click();
  await page.getByRole('region', { name: 'Its own servers' }).getByText('playwright').waitFor();
});

test('a lost entry appears at once, and a change that was overtaken is shown again', async () => {
  const page = await open({ view: 'clients', open: 'cursor' });
  await button(page, 'Disconnect').click();
  const forget = (): Promise<void> => page.evaluate(() => (window as unknown as { recorded: Recorded }).recorded.clientForgets('cursor'));
  const dialog = page.getByRole('dialog', { name: 'Disconnect Cursor' });
  await dialog.getByRole('group', { name: 'Change of the file' }).waitFor();
  await forget();
  await dialog.getByRole('button', { name: 'Disconnect', exact: true }).click();
  await dialog.getByRole('alert').getByText('The file changed meanwhile').waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('Runbridge is gone from the file').waitFor();
  await accessible(page);
  await button(page, 'Connect').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Connect', exact: true }).click();
  await page.getByText('Runbridge is gone from the file').waitFor({ state: 'detached' });
});

test('a file that cannot be read says where, and only a byte order mark can be taken out here', async () => {
  const page = await open({ view: 'clients', open: 'zed' });
  await page.getByText('cannot be read at line 14, column 3').waitFor();
  await button(page, 'Show file').waitFor();
  expect(await button(page, 'Connect').count()).toBe(0);
  await page.getByText('Gemini CLI', { exact: true }).click();
  await page.getByText('Connect takes the mark out').waitFor();
  await button(page, 'Connect').click();
  await page.getByRole('dialog', { name: 'Connect Gemini CLI' }).waitFor();
});

test('a client may be preferred where names meet', async () => {
  const page = await open({ view: 'clients', open: 'cursor' });
  const prefer = page.getByRole('switch', { name: 'Prefer its servers' });
  await prefer.press('Space');
  await expect.poll(() => prefer.isChecked()).toBe(true);
});

test('a refused command is said where it was pressed', async () => {
  const page = await open({ view: 'clients', fail: ['plan_client'] });
  await button(page, 'Connect Codex').click();
  await page.getByRole('dialog').getByRole('alert').getByText('plan_client was refused').waitFor();
  await accessible(page);
});

test('the first steps lead here', async () => {
  const page = await open({ scenario: 'first-run' });
  await button(page, 'Connect a client').click();
  await page.getByText('No client was found').waitFor();
});
