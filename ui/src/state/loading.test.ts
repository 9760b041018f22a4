import { expect, test } from 'vitest';
import { Loading } from './loading.svelte';

test('what changes while it is read is read once more, however often it changed', async () => {
  const loading = new Loading<number>();
  const answers: ((value: number) => void)[] = [];
  const send = (): Promise<number> => new Promise((resolve) => answers.push(resolve));
  const first = loading.refresh(send);
  void loading.refresh(send);
  void loading.refresh(send);
  expect(answers.length).toBe(1);
  answers[0]?.(1);
  await expect.poll(() => answers.length).toBe(2);
  expect(loading.value).toBe(1);
  answers[1]?.(2);
  await first;
  expect([loading.value, answers.length]).toEqual([2, 2]);
  void loading.refresh(send);
  expect(answers.length).toBe(3);
});
