// The time, for what is still going on. It ticks only while someone shows something that lasts, so that
// an idle window has no timer.

import { createSubscriber } from 'svelte/reactivity';

const TICK_MS = 500;

const tick = createSubscriber((update) => {
  const timer = setInterval(update, TICK_MS);
  return () => clearInterval(timer);
});

/** Now; whoever reads it in a template is drawn again at every tick. */
export function ticking(): number {
  tick();
  return Date.now();
}
