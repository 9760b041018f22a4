// Each list in its four states, as a user meets them.

import { expect, test } from 'vitest';
import { accessible, fits, open, type Options } from './window';

const lists: {
  name: string;
  at: Options;
  empty: string;
  failed: string;
  full: string;
}[] = [
  {
    name: 'servers',
    at: { view: 'servers' },
    empty: 'No servers yet',
    failed: '',
    full: 'filesystem',
  },
  {
    name: 'clients',
    at: { view: 'clients' },
    empty: 'No client was found',
    failed: 'Something went wrong inside Runbridge',
    full: 'Claude Desktop',
  },
  {
    name: 'memory',
    at: { view: 'memory' },
    empty: 'Nothing is remembered yet',
    failed: 'Something went wrong inside Runbridge',
    full: 'stale_issues',
  },
  {
    name: 'saved tools',
    at: { view: 'memory', part: 'tools' },
    empty: 'No saved tools yet',
    failed: 'Something went wrong inside Runbridge',
    full: 'weekly_report',
  },
  {
    name: 'runs',
    at: { view: 'activity' },
    empty: 'No runs yet',
    failed: 'Something went wrong inside Runbridge',
    full: 'data = load_memory("stale_issues")',
  },
  {
    name: 'packages',
    at: { view: 'sandbox', part: 'packages' },
    empty: 'No packages are installed',
    failed: '',
    full: 'rich 14.2.0',
  },
  {
    name: 'interpreters',
    at: { view: 'sandbox', part: 'running' },
    empty: 'No interpreter is live',
    failed: '',
    full: 'Claude Code, shop',
  },
  {
    name: 'tools of a server',
    at: { view: 'servers', open: 'linear' },
    empty: '',
    failed: '',
    full: 'No tools known yet',
  },
];

for (const { name, at, empty, failed, full } of lists) {
  test(`${name}: loading shows that something comes, and only if it takes a while`, async () => {
    const page = await open({ ...at, scenario: 'loading' });
    const skeleton = page.getByRole('status').filter({ hasText: 'Loading' }).first();
    await skeleton.waitFor({ state: 'attached' });
    await expect.poll(() => skeleton.evaluate((it) => getComputedStyle(it).opacity)).toBe('1');
    await accessible(page);
  });

  if (empty) {
    test(`${name}: empty says what to do`, async () => {
      const page = await open({ ...at, scenario: 'empty' });
      await page.getByText(empty, { exact: true }).waitFor();
      await accessible(page);
      await fits(page);
    });
  }

  if (failed) {
    test(`${name}: an error says what happened and can be tried again`, async () => {
      const page = await open({ ...at, scenario: 'error' });
      const alert = page.getByRole('alert');
      await alert.getByText(failed).waitFor();
      await alert.getByText('disk I/O error').waitFor();
      await alert.getByRole('button', { name: 'Try again' }).click();
      await alert.waitFor();
      await accessible(page);
    });
  }

  test(`${name}: full`, async () => {
    const page = await open({ ...at, size: [720, 480] });
    await page.getByText(full, { exact: true }).first().waitFor();
    await accessible(page);
    await fits(page);
  });
}

test('a bridge that does not answer is told of in every view, and asked again', async () => {
  const page = await open({ view: 'servers', scenario: 'failed' });
  const alert = page.getByRole('alert');
  await alert.getByText('The bridge does not answer').waitFor();
  await alert.getByText('It is being started again').waitFor();
  await accessible(page);
  await page.keyboard.press('5');
  await page.getByRole('alert').getByText('The bridge does not answer').waitFor();
});

test('a sandbox that cannot run says why and what to do, on Home and in Sandbox', async () => {
  const page = await open({ scenario: 'error' });
  const notice = page.getByText('Start the machine with `podman machine start`, then look again.');
  await notice.waitFor();
  await page.getByRole('region', { name: 'Needs you' }).getByRole('button', { name: 'Open' }).first().click();
  await page.getByRole('heading', { level: 1, name: 'Sandbox' }).waitFor();
  await notice.waitFor();
  await page.getByText('A limit is not enforced').waitFor();
  await accessible(page);
  await fits(page);
});

test('a search that finds nothing offers the way back', async () => {
  const page = await open({ view: 'servers' });
  await page.getByRole('searchbox', { name: 'Search servers' }).fill('nothing like it');
  await page.getByText('Nothing matches').waitFor();
  await page.getByRole('button', { name: 'Remove filter' }).click();
  await page.getByText('filesystem', { exact: true }).waitFor();
});

test('the first run ends with a live proof', async () => {
  const page = await open({ scenario: 'first-run' });
  const steps = page.getByRole('region', { name: 'First steps' });
  await steps.getByText('1 of 4 done').waitFor();
  await steps.getByRole('button', { name: 'Run Python now' }).click();
  await steps.getByText('Python 3.13.5').waitFor();
  await steps.getByText('2 of 4 done').waitFor();
  await steps.getByText('Then all clients share one bridge').click();
  await expect.poll(() => steps.getByRole('switch', { name: 'Start at login' }).isChecked()).toBe(true);
  await accessible(page);
});
