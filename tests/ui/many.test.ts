// A thousand tools and ten thousand runs: only what is seen is drawn, and all of it can be reached.

import { expect, test } from 'vitest';
import { open } from './window';

/** Rows of a window of 720 pixels with those in reserve; far above it, something is not virtual. */
const ROWS_MAX = 40;

test('a thousand tools', async () => {
  const page = await open({
    view: 'servers',
    open: 'warehouse',
    scenario: 'many',
  });
  const list = page.getByRole('list', { name: 'Tools' });
  await list.getByText('find_item_0000').waitFor();
  expect(await list.getByRole('listitem').count()).toBeLessThan(ROWS_MAX);
  expect(await list.getByRole('listitem').first().getAttribute('aria-setsize')).toBe('1000');
  await list.getByRole('button', { name: 'find_item_0000' }).focus();
  await page.keyboard.press('End');
  await list.getByText('price_item_0999').waitFor();
  expect(await list.getByRole('listitem').count()).toBeLessThan(ROWS_MAX);
  await page.getByRole('searchbox', { name: 'Search tools' }).fill('item_0777');
  await expect.poll(() => list.getByRole('listitem').count()).toBe(1);
});

test('ten thousand runs', async () => {
  const page = await open({ view: 'activity', scenario: 'many' });
  const list = page.getByRole('list', { name: 'Runs' });
  await page.getByText('10,000 runs on record').waitFor();
  await list.getByRole('button').first().focus();
  let size = '0';
  for (let page_ = 0; page_ < 60 && size !== '10001'; page_ += 1) {
    await page.keyboard.press('End');
    const before = size;
    await expect.poll(async () => (size = (await list.getByRole('listitem').last().getAttribute('aria-setsize')) ?? '0')).not.toBe(before);
  }
  expect(size).toBe('10001');
  await page.keyboard.press('End');
  await expect.poll(() => list.getByRole('listitem').last().getAttribute('aria-posinset')).toBe('10001');
  expect(await list.getByRole('listitem').count()).toBeLessThan(ROWS_MAX);
});

test('a fast scroll over a thousand tools never shows an empty list', async () => {
  const page = await open({
    view: 'servers',
    open: 'warehouse',
    scenario: 'many',
  });
  await page.getByText('find_item_0000').waitFor();
  const gaps = await page.evaluate(async () => {
    const viewport = document.querySelector('ul[aria-label="Tools"]')?.parentElement as HTMLElement;
    let empty = 0;
    for (let top = 900; top < 40_000; top += 900) {
      // The rows have to be there when the browser has told of the scroll, which is before it paints.
      const told = new Promise((resolve) => viewport.addEventListener('scroll', resolve, { once: true }));
      viewport.scrollTop = top;
      await told;
      const box = viewport.getBoundingClientRect();
      for (const y of [box.top + 10, box.bottom - 10]) {
        if (!document.elementFromPoint(box.left + 40, y)?.closest('li')) empty += 1;
      }
    }
    return empty;
  });
  expect(gaps).toBe(0);
});
