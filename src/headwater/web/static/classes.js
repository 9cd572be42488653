// The prediction: a bar for every class, and beside it what it becomes when words are masked.

import { h, percent } from './dom.js';

export function classes(before, after, prediction) {
  const best = [...before].sort((a, b) => b.probability - a.probability).slice(0, 6).map((c) => c.name);
  const shown = before.filter((c) => best.includes(c.name));
  return h('ul', { className: 'classes' }, shown.map((one) => {
    const now = after?.find((c) => c.name === one.name);
    return h('li', { className: one.name === prediction ? 'best' : '' },
      h('span', { className: 'label' }, one.name),
      h('span', { className: 'share' }, now ? [h('s', {}, percent(one.probability)), ' → ', h('b', {}, percent(now.probability))] : percent(one.probability)),
      h('span', { className: 'meter', 'aria-hidden': 'true' },
        h('i', { className: now ? 'was' : 'is', style: { width: `${one.probability * 100}%` } }),
        now ? h('i', { className: 'is', style: { width: `${now.probability * 100}%` } }) : null));
  }));
}
