// Every view in both themes and in the smallest window: it fits, and axe finds nothing. The pictures
// of the README are taken here.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { accessible, asked, fits, open, views, type Options, type View } from './window';

const pictures = fileURLToPath(new URL('pictures', import.meta.url));
mkdirSync(pictures, { recursive: true });

const opened: Record<View, string | undefined> = {
  home: undefined,
  servers: 'github',
  clients: 'claude-desktop',
  sandbox: undefined,
  memory: 'shop/customers',
  activity: 'run-44',
  settings: undefined,
};

const parts: { name: string; options: Options }[] = [
  { name: 'packages', options: { view: 'sandbox', part: 'packages' } },
  { name: 'limits', options: { view: 'sandbox', part: 'limits' } },
  { name: 'interpreters', options: { view: 'sandbox', part: 'running' } },
  { name: 'scratch', options: { view: 'sandbox', part: 'scratch' } },
  {
    name: 'saved tool',
    options: { view: 'memory', part: 'tools', open: 'weekly_report' },
  },
  { name: 'failed server', options: { view: 'servers', open: 'postgres' } },
  {
    name: 'server without a value',
    options: { view: 'servers', open: 'notion' },
  },
  { name: 'run that raised', options: { view: 'activity', open: 'run-42' } },
  {
    name: 'run with a failed call',
    options: { view: 'activity', open: 'run-36' },
  },
  {
    name: 'damaged memory item',
    options: { view: 'memory', open: 'old/import' },
  },
  { name: 'client that lost us', options: { view: 'clients', open: 'windsurf' } },
  { name: 'client with several files', options: { view: 'clients', open: 'vscode' } },
  { name: 'client whose file is broken', options: { view: 'clients', open: 'zed' } },
  { name: 'client with servers of its own', options: { view: 'clients', open: 'claude-code' } },
  { name: 'first run', options: { view: 'home', scenario: 'first-run' } },
  { name: 'add dialog', options: { view: 'servers', part: 'add' } },
];

/** Writes a picture if one would see a difference: drawing itself differs by a shade now and then. */
async function picture(page: Page, path: string): Promise<void> {
  const taken = await page.screenshot({ animations: 'disabled' });
  if (existsSync(path) && !(await differs(page, taken, readFileSync(path)))) return;
  writeFileSync(path, taken);
}

function differs(page: Page, ...images: Buffer[]): Promise<boolean> {
  return page.evaluate(
    async (sources) => {
      const [a, b] = await Promise.all(
        sources.map(async (source) => {
          const image = new Image();
          image.src = `data:image/png;base64,${source}`;
          await image.decode();
          const canvas = document.createElement('canvas');
          canvas.width = image.width;
          canvas.height = image.height;
          const context = canvas.getContext('2d') as CanvasRenderingContext2D;
          context.drawImage(image, 0, 0);
          return context.getImageData(0, 0, image.width, image.height).data;
        }),
      );
      return !a || !b || a.length !== b.length || a.some((value, at) => Math.abs(value - (b[at] ?? 0)) > 8);
    },
    images.map((it) => it.toString('base64')),
  );
}

for (const theme of ['light', 'dark'] as const) {
  for (const view of views) {
    test(`${view}, ${theme}`, async () => {
      const page = await open({ view, open: opened[view], theme, still: true });
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.getByText('Loading').waitFor({ state: 'detached' });
      await accessible(page);
      await fits(page);
      await page.mouse.move(0, 719);
      await picture(page, `${pictures}/${view}-${theme}.png`);
    });

    test(`${view}, ${theme}, 720 × 480`, async () => {
      for (const open_ of new Set([undefined, opened[view]])) {
        const page = await open({ view, open: open_, theme, size: [720, 480] });
        await page.getByText('Loading').waitFor({ state: 'detached' });
        await accessible(page);
        await fits(page);
      }
    });
  }

  test(`question, ${theme}`, async () => {
    const page = await open({ theme, still: true });
    await asked(page, 'form');
    await accessible(page);
    await fits(page);
    await page.mouse.move(0, 719);
    await picture(page, `${pictures}/question-${theme}.png`);
  });

  test(`question, ${theme}, 720 × 480`, async () => {
    for (const what of ['form', 'confirm', 'page'] as const) {
      const page = await open({ view: 'activity', open: 'run-44', theme, size: [720, 480] });
      const card = await asked(page, what);
      // What answers is in sight, and so is a part of the view.
      await card.getByRole('button', { name: 'Decline' }).click({ trial: true });
      const box = await card.boundingBox();
      expect((box?.y ?? 0) + (box?.height ?? 0)).toBeLessThan(400);
      await accessible(page);
      await fits(page);
    }
  });

  for (const { name, options } of parts) {
    test(`${name}, ${theme}`, async () => {
      const page = await open({ ...options, theme, size: [720, 480] });
      await page.getByText('Loading').waitFor({ state: 'detached' });
      await accessible(page);
      await fits(page);
    });
  }
}

test('the theme follows the setting over the system’s wish', async () => {
  const page = await open({ view: 'settings', theme: 'light' });
  const background = (): Promise<string> => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole('combobox', { name: 'Theme' }).selectOption('Dark');
  await expect.poll(background).not.toBe(light);
  await page.getByRole('combobox', { name: 'Theme' }).selectOption('As the system');
  await expect.poll(background).toBe(light);
  await page.emulateMedia({ colorScheme: 'dark' });
  await expect.poll(background).not.toBe(light);
});

test('nothing moves when motion is to be reduced', async () => {
  const page = await open({ view: 'activity', reducedMotion: true });
  const moving = await page.evaluate(() => document.getAnimations().filter((it) => it.playState === 'running').length);
  expect(moving).toBe(0);
  const transition = await page.evaluate(() => getComputedStyle(document.querySelector('main button') as Element).transitionDuration);
  expect(transition).toBe('0s');
});

test('an idle window has no timer', async () => {
  const page = await open({ view: 'settings' });
  await page.getByText('General').waitFor();
  const timers = await page.evaluate(async () => {
    let count = 0;
    const { setInterval: interval, setTimeout: timeout } = window;
    window.setInterval = ((...args: Parameters<typeof interval>) => ((count += 1), interval(...args))) as typeof interval;
    window.setTimeout = ((...args: Parameters<typeof timeout>) => ((count += 1), timeout(...args))) as typeof timeout;
    await new Promise((resolve) => timeout(resolve, 1500));
    return count;
  });
  expect(timers).toBe(0);
});
