// What servers ask, as a user answers it.

import { expect, test } from 'vitest';
import { accessible, asked, open } from './window';

test('a form is filled in by keyboard, told what is wrong with it, and sent', async () => {
  const page = await open({ view: 'servers' });
  const search = page.getByRole('searchbox', { name: 'Search servers' });
  await search.focus();
  const card = await asked(page, 'form');
  // Whoever types is not interrupted.
  expect(await search.evaluate((it) => it === document.activeElement)).toBe(true);
  await page.getByRole('status').filter({ hasText: 'linear asks you' }).waitFor({ state: 'attached' });
  await card.getByText('A run of Claude Desktop waits for your answer, 5 min more').waitFor();

  await card.getByRole('textbox', { name: 'Title' }).fill('Bad');
  await card.getByRole('textbox', { name: 'Estimate' }).fill('21');
  await card.getByRole('textbox', { name: 'Due' }).fill('soon');
  await page.keyboard.press('Enter');
  await card.getByText('Write at least 5 characters.').waitFor();
  await card.getByText('It needs a value.').waitFor();
  await card.getByText('It must be at most 13.').waitFor();
  await card.getByText('Write a date such as 2026-11-30.').waitFor();
  // The first of them has the focus.
  expect(await card.getByRole('textbox', { name: 'Title' }).evaluate((it) => it === document.activeElement)).toBe(true);
  await accessible(page);

  await card.getByRole('textbox', { name: 'Title' }).fill('Checkout fails');
  await card.getByRole('combobox', { name: 'Team' }).selectOption('Payments');
  await card.getByRole('textbox', { name: 'Estimate' }).fill('3');
  await card.getByRole('textbox', { name: 'Due' }).fill('');
  await card.getByRole('checkbox', { name: 'Speed' }).check();
  await card.getByRole('switch', { name: 'Tell the team' }).click();
  await card.getByRole('button', { name: 'Send answer' }).click();
  await card.waitFor({ state: 'detached' });
  const answers = await page.evaluate(() => (window as unknown as { recorded: { answers: unknown[] } }).recorded.answers);
  expect(answers).toEqual([
    {
      type: 'accept',
      values: '{"title":"Checkout fails","team":"pay","estimate":3,"labels":["bug","perf"],"notify":false}',
    },
  ]);
});

test('several questions wait in line, and each is declined or closed', async () => {
  const page = await open();
  const card = await asked(page, 'page');
  await asked(page, 'confirm');
  await card.getByText('1 more question after this').waitFor();
  await card.getByRole('heading', { name: 'github asks you' }).waitFor();
  await card.getByText('a page of github.com opens in your browser').waitFor();
  await card.getByText('https://github.com/orgs/acme/policies').waitFor();
  await card.getByRole('button', { name: 'Open page' }).click();
  await card.getByRole('heading', { name: 'filesystem asks you' }).waitFor();
  await card.getByRole('button', { name: 'Close without an answer' }).click();
  await card.waitFor({ state: 'detached' });
  await asked(page, 'confirm');
  await card.getByRole('button', { name: 'Agree' }).waitFor();
  await card.getByRole('button', { name: 'Decline' }).click();
  await card.waitFor({ state: 'detached' });
  const answers = await page.evaluate(() => (window as unknown as { recorded: { answers: unknown[] } }).recorded.answers);
  expect(answers).toEqual([{ type: 'accept', values: '{}' }, { type: 'dismiss' }, { type: 'decline' }]);
});

test('an answer that is refused leaves the card, and says why', async () => {
  const page = await open({ fail: ['answer_question'] });
  const card = await asked(page, 'confirm');
  await card.getByRole('button', { name: 'Agree' }).click();
  await page.getByText('answer_question was refused').waitFor();
  await card.getByRole('button', { name: 'Agree' }).waitFor();
});

test('a question that nobody waits for any more goes away', async () => {
  const page = await open();
  const card = await asked(page, 'form');
  await page.evaluate(() => {
    const { recorded } = window as unknown as { recorded: { emit(change: object): void } };
    recorded.emit({ type: 'question_closed', id: '1' });
  });
  await card.waitFor({ state: 'detached' });
});
