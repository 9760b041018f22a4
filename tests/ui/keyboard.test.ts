// The whole app by keyboard.

import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { open, views } from './window';

const titles = {
  home: 'Home',
  servers: 'Servers',
  clients: 'Clients',
  sandbox: 'Sandbox',
  memory: 'Memory',
  activity: 'Activity',
  settings: 'Settings',
};

const focused = (page: Page): Promise<string> =>
  page.evaluate(() => {
    const it = document.activeElement;
    return it?.getAttribute('aria-label') ?? it?.querySelector('.title')?.textContent ?? it?.textContent?.trim() ?? '';
  });

test('1 to 7 show the views and put the focus on their titles', async () => {
  const page = await open();
  for (const [index, view] of [...views].reverse().entries()) {
    await page.keyboard.press(String(views.length - index));
    await page.getByRole('heading', { level: 1, name: titles[view] }).waitFor();
    await expect.poll(() => focused(page)).toBe(titles[view]);
    expect(await page.title()).toContain(titles[view]);
  }
});

test('/ leads to the search, where letters and numbers are only text', async () => {
  const page = await open({ view: 'servers' });
  await page.keyboard.press('/');
  await page.keyboard.type('git1/');
  expect(await page.getByRole('searchbox', { name: 'Search servers' }).inputValue()).toBe('git1/');
  await page.getByRole('heading', { level: 1, name: 'Servers' }).waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('5');
  await page.getByRole('heading', { level: 1, name: 'Memory' }).waitFor();
});

test('arrows walk a list, Enter opens, Escape comes back to the same row', async () => {
  const page = await open({ view: 'servers', size: [720, 480] });
  await page.keyboard.press('/');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  expect(await focused(page)).toBe('filesystem');
  await page.keyboard.press('ArrowDown');
  expect(await focused(page)).toBe('github');
  await page.keyboard.press('End');
  expect(await focused(page)).toBe('time');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 2, name: 'github' }).waitFor();
  await page.keyboard.press('Escape');
  await expect.poll(() => focused(page)).toBe('github');
  // The switch of the row is the next stop, and Space presses it.
  await page.keyboard.press('Tab');
  expect(await focused(page)).toBe('github may be called');
  await page.keyboard.press('Space');
  await expect.poll(() => page.getByRole('switch', { name: 'github may be called' }).isChecked()).toBe(false);
});

test('parts are walked with the arrows', async () => {
  const page = await open({ view: 'sandbox' });
  await page.getByRole('tab', { name: 'Backend' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await expect.poll(() => page.getByRole('tab', { name: 'Limits' }).getAttribute('aria-selected')).toBe('true');
  await page.getByText('Time for a run', { exact: true }).waitFor();
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  await expect.poll(() => page.getByRole('tab', { name: 'Try it' }).getAttribute('aria-selected')).toBe('true');
});

test('a dialog keeps the focus, closes with Escape and gives the focus back', async () => {
  const page = await open({ view: 'servers' });
  const add = page.getByRole('button', { name: 'Add server' });
  await add.focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Add a server' });
  await dialog.waitFor();
  await expect.poll(() => page.evaluate(() => document.activeElement?.tagName)).toBe('INPUT');
  for (let step = 0; step < 20; step += 1) {
    await page.keyboard.press('Tab');
    const outside = await page.evaluate(() => document.activeElement !== document.body && !document.activeElement?.closest('dialog'));
    expect(outside).toBe(false);
  }
  await page.keyboard.press('5');
  await dialog.waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await page.getByRole('heading', { level: 1, name: 'Servers' }).waitFor();
  await expect.poll(() => focused(page)).toContain('Add server');
});

for (const view of views) {
  test(`${view}: Tab reaches every control once, and each shows that it has the focus`, async () => {
    const page = await open({
      view,
      open: view === 'servers' ? 'github' : view === 'activity' ? 'run-44' : undefined,
    });
    await page.getByText('Loading').waitFor({ state: 'detached' });
    const seen: string[] = [];
    for (let step = 0; step < 120; step += 1) {
      await page.keyboard.press('Tab');
      const stop = await page.evaluate(() => {
        const it = document.activeElement as HTMLElement | null;
        if (!it || it === document.body) return null;
        it.dataset['stop'] ??= String(document.querySelectorAll('[data-stop]').length);
        const rings = [getComputedStyle(it), getComputedStyle(it, '::after')];
        for (const other of [it.nextElementSibling, it.closest('label')]) if (other) rings.push(getComputedStyle(other));
        // The ring of a slider is on its thumb, which has no style that a page can read.
        const shown = it.matches('[type="range"]') || rings.some((style) => style.boxShadow !== 'none' || style.outlineStyle === 'auto');
        return {
          id: it.dataset['stop'],
          name: `${it.tagName} ${it.getAttribute('aria-label') ?? it.textContent?.trim().slice(0, 30) ?? ''}`,
          shown,
        };
      });
      if (!stop || seen.includes(stop.id)) break;
      expect(stop).toMatchObject({ shown: true });
      seen.push(stop.id);
    }
    // What can be pressed and was not reached has to be a row, a tab or a radio that the arrows reach.
    const missed = await page.evaluate(() =>
      [...document.querySelectorAll<HTMLElement>('button, input, select, textarea, summary')]
        .filter((it) => it.checkVisibility() && !it.matches(':disabled, [tabindex="-1"], [data-stop], [type="radio"]:not(:checked)'))
        .map((it) => it.outerHTML.slice(0, 120)),
    );
    expect(missed).toEqual([]);
    expect(seen.length).toBeGreaterThan(7);
  });
}
