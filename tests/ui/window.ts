// A window of the app in headless Chromium, driven as a user would.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import axe from 'axe-core';
import { chromium, type Browser, type Locator, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, inject } from 'vitest';

export const views = ['home', 'servers', 'clients', 'sandbox', 'memory', 'activity', 'settings'] as const;

export type View = (typeof views)[number];

export interface Options {
  view?: View;
  open?: string;
  part?: string;
  scenario?: 'full' | 'first-run' | 'empty' | 'many' | 'loading' | 'error' | 'failed';
  /** Commands that are refused. */
  fail?: string[];
  theme?: 'light' | 'dark';
  size?: [width: number, height: number];
  reducedMotion?: boolean;
  /** The clock stands, so that durations of what goes on do not change a picture. */
  still?: boolean;
}

/** The hour at which every window opens, so that pictures do not change by the clock. */
const NOW = new Date('2026-11-30T09:30:00');

let browser: Browser;
let page: Page | null = null;
let complaints: string[] = [];

beforeAll(async () => {
  const places = [process.env['RUNBRIDGE_CHROMIUM'], '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
  const executablePath = places.find((it) => it && existsSync(it));
  if (!executablePath) throw new Error('Chromium was not found; install it (apt install chromium) or name it in RUNBRIDGE_CHROMIUM');
  browser = await chromium.launch({
    executablePath,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
    env: {
      ...process.env,
      FONTCONFIG_FILE: fileURLToPath(new URL('fonts.conf', import.meta.url)),
      TZ: 'UTC',
      LANG: 'C.UTF-8',
    },
  });
});

afterEach(async () => {
  await page?.context().close();
  page = null;
  const said = complaints;
  complaints = [];
  expect(said, 'the console stays silent').toEqual([]);
});

afterAll(() => browser?.close());

/** Opens a window; it is closed after the test, which fails if the console had something to say. */
export async function open(options: Options = {}): Promise<Page> {
  const { view = 'home', scenario = 'full', theme = 'light', size = [1080, 720], fail = [] } = options;
  const context = await browser.newContext({
    viewport: { width: size[0], height: size[1] },
    colorScheme: theme,
    reducedMotion: options.reducedMotion ? 'reduce' : 'no-preference',
    timezoneId: 'UTC',
    locale: 'en-GB',
  });
  page = await context.newPage();
  page.setDefaultTimeout(10_000);
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(error.message));
  if (options.still) await page.clock.setFixedTime(NOW);
  else await page.clock.install({ time: NOW });
  const query = new URLSearchParams({
    view,
    scenario,
    play: 'off',
    fail: fail.join(','),
  });
  if (options.open) query.set('open', options.open);
  if (options.part) query.set('part', options.part);
  await page.goto(`${inject('address')}?${query}`);
  await page.locator('h1').waitFor({ state: 'attached' });
  await page.waitForFunction(() => 'recorded' in window);
  return page;
}

/** Nothing that axe finds wrong, in words that lead to it. */
export async function accessible(page: Page): Promise<void> {
  await page.evaluate(axe.source);
  const found = await page.evaluate(async () => {
    const { violations } = await (window as unknown as { axe: typeof axe }).axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    });
    return violations.flatMap((it) => it.nodes.map((node) => `${it.id}: ${node.html.slice(0, 160)} ${node.failureSummary ?? ''}`));
  });
  expect(found).toEqual([]);
}

/** Nothing is wider than the window, and what can be pressed is large enough to be hit. */
export async function fits(page: Page): Promise<void> {
  const wrong = await page.evaluate(() => {
    const found: string[] = [];
    const name = (it: Element): string =>
      `${it.tagName.toLowerCase()} ${it.getAttribute('aria-label') ?? it.textContent?.trim().slice(0, 40) ?? ''}`;
    if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth} px wide`);
    const scrolls = (it: Element | null): boolean =>
      it !== null && (['auto', 'scroll'].includes(getComputedStyle(it).overflowX) || scrolls(it.parentElement));
    for (const it of document.querySelectorAll('main *')) {
      const box = it.getBoundingClientRect();
      if (box.width > 1 && box.right > innerWidth + 1 && !scrolls(it.parentElement))
        found.push(`${name(it)} ends at ${Math.round(box.right)} px`);
    }
    for (const it of document.querySelectorAll('button, input, select, textarea, summary, [role="tab"]')) {
      if (!it.checkVisibility() || it.closest('.skip')) continue;
      // A row's button covers its row, and a label is pressed for its radio or box.
      const around = it.matches('[data-row]')
        ? it.closest('li')
        : it.matches('[type="radio"], [type="checkbox"]:not([role])')
          ? it.closest('label')
          : it;
      const box = (around ?? it).getBoundingClientRect();
      if (box.height < 27.5 || box.width < 27.5) found.push(`${name(it)} is ${Math.round(box.width)} × ${Math.round(box.height)} px`);
    }
    return found;
  });
  expect(wrong).toEqual([]);
}

/** A server of the recorded bridge asks something; gives the card. */
export async function asked(page: Page, what: 'form' | 'confirm' | 'page'): Promise<Locator> {
  await page.evaluate((it) => (window as unknown as { recorded: Recorded }).recorded.asks(it), what);
  const card = page.getByRole('region', { name: /asks you$/ });
  await card.waitFor();
  return card;
}

/** What makes things happen in the recorded bridge. */
export interface Recorded {
  emit(change: object, lose?: boolean): void;
  playRun(step: number): Promise<void>;
  asks(what: 'form' | 'confirm' | 'page'): void;
  serverBecomesReady(name: string): void;
  serverSays(name: string, said: { stderr?: string; log?: string }): void;
  clientForgets(id: string): void;
}
