// Layers by heads as a grid of buttons, coloured by relevance. A number stands in every cell, and what takes away is lined.

import { h, signed } from './dom.js';
import { look } from './heat.js';

export class HeadGrid {
  // `open(group, head)` is called when a head is chosen; `off` says which heads are switched off.
  constructor(open) {
    this.open = open;
    this.element = h('div', { className: 'wide head-grid', role: 'grid', 'aria-label': 'Relevance by layer and head' });
    this.element.addEventListener('keydown', (event) => this.step(event));
  }

  show(groups, chosen, off) {
    const scale = Math.max(...groups.flatMap((group) => group.relevance.map(Math.abs)), 0);
    const most = Math.max(...groups.map((group) => group.relevance.length), 0);
    const first = chosen ?? { group: 0, head: 0 };
    const focused = this.element.contains(document.activeElement) && document.activeElement.dataset.at; // a late answer takes no focus away
    this.element.replaceChildren(
      h('div', { role: 'row', className: 'heads-row' }, h('span', { role: 'columnheader', className: 'soft' }, 'head'), Array.from({ length: most }, (_, i) => h('span', { role: 'columnheader', className: 'soft' }, i))),
      ...groups.map((group, g) => h('div', { role: 'row', className: 'heads-row' },
        h('span', { role: 'rowheader', title: group.module }, group.label),
        group.relevance.map((value, head) => this.cell(group, g, head, value, scale, first, chosen, off)))));
    if (focused) this.focus(...focused.split(','));
  }

  cell(group, g, head, value, scale, first, chosen, off) {
    const { kind, share } = look(value, scale);
    const now = chosen?.group === g && chosen.head === head;
    const gone = off.has(`heads|${group.module}|${head}`);
    return h('span', { role: 'gridcell' }, h('button', {
      type: 'button', className: `head w ${kind}${now ? ' now' : ''}${gone ? ' masked' : ''}`, style: { '--o': share.toFixed(3) },
      tabindex: first.group === g && first.head === head ? 0 : -1, 'aria-pressed': String(now), 'data-at': `${g},${head}`,
      'aria-label': `${group.label}, head ${head}: relevance ${signed(value, scale)}${gone ? ', switched off' : ''}`,
      onclick: () => this.open(g, head),
    }, signed(value, scale)));
  }

  step(event) {
    const at = event.target.dataset?.at?.split(',').map(Number);
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [];
    if (!at || down === undefined) return;
    const next = this.element.querySelector(`[data-at="${at[0] + down},${at[1] + right}"]`);
    if (next) { event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
    event.preventDefault();
  }

  focus(group, head) { this.element.querySelector(`[data-at="${group},${head}"]`)?.focus(); }
}
