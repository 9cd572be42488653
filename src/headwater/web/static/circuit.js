// The circuit: the parts that carry most of the score as a picture, opened node by node: what comes in, what goes out.

import { Latest, post } from './api.js';
import { h, signed } from './dom.js';
import { drawing } from './drawing.js';

const MOST = 12; // edges of a node that are listed

export class CircuitCard {
  // `body()` is what was asked for last; nothing where nothing was.
  constructor(status, body) {
    Object.assign(this, { status, body });
    this.latest = new Latest(status);
    this.count = h('select', {}, [15, 30, 60].map((count) => h('option', { value: count }, count)));
    this.picture = h('div', { className: 'wide circuit-picture', role: 'region', tabindex: 0, 'aria-label': 'Circuit', hidden: true });
    this.panel = h('div', { className: 'circuit-node', 'aria-live': 'polite' });
    this.picture.addEventListener('click', (event) => { const at = event.target.closest?.('[data-item]'); if (at) this.open(Number(at.dataset.item)); });
    this.element = h('section', { className: 'card circuit' }, h('h2', {}, 'Circuit'),
      h('div', { className: 'under' }, h('label', { className: 'inline' }, 'parts', this.count), h('button', { type: 'button', className: 'quiet', id: 'trace', onclick: () => this.trace() }, 'Trace the circuit')),
      h('p', { className: 'soft hint' }, 'The heads and feed-forward layers with most relevance, and what flows between them and by no other part. One backward pass for each.'), this.picture, this.panel);
  }

  clear() {
    this.latest.stop();
    this.found = null;
    this.picture.hidden = true;
    this.picture.replaceChildren();
    this.panel.replaceChildren();
  }

  async trace() {
    const body = this.body();
    if (!body) return;
    const found = await this.latest.run((options) => post('/api/inside/circuit', { ...body, nodes: Number(this.count.value) }, options));
    if (!found || this.body() !== body) return;
    this.found = found;
    this.picture.replaceChildren(drawing(found.svg, `Circuit of ${found.nodes.length} nodes and ${found.edges.length} edges`));
    this.picture.hidden = false;
    this.open(found.nodes.length - 1, false);
  }

  // One node: its sum, and the nodes beside it, each of which opens in turn.
  open(number, focus = true) {
    const { nodes, edges, closed } = this.found;
    const node = nodes[number];
    this.picture.querySelectorAll('[data-item]').forEach((one) => one.classList.toggle('now', Number(one.dataset.item) === number));
    const into = edges.filter((edge) => edge.end === number);
    const out = edges.filter((edge) => edge.start === number);
    const heading = h('h3', { tabindex: -1 }, node.label);
    this.panel.replaceChildren(heading,
      h('p', {}, `Relevance ${signed(node.relevance)}. `, h('span', { className: closed ? 'closed' : 'open' }, closed ? 'Every node adds up.' : 'Not every node adds up.')),
      h('div', { className: 'pair' },
        this.table('Comes from', into.map((edge) => [edge.start, edge.relevance]), [['biases', node.sources], ['parts that are left out', node.from_left_out]], node, node.kind === 'words'),
        this.table('Goes to', out.map((edge) => [edge.end, edge.relevance]), [['parts that are left out', node.to_left_out]], node, node.kind === 'score')));
    if (focus) heading.focus();
  }

  table(title, edges, others, node, ends) {
    if (ends) return h('p', { className: 'soft' }, node.kind === 'words' ? 'A word: nothing comes into it.' : 'The score: nothing leaves it.');
    const size = Math.abs(node.relevance);
    const rest = edges.slice(MOST).reduce((sum, [, amount]) => sum + amount, 0);
    const more = edges.length > MOST ? [[`${edges.length - MOST} other nodes`, rest]] : [];
    return h('table', { className: 'numbers' }, h('caption', {}, title),
      h('tbody', {}, edges.slice(0, MOST).map(([other, amount]) => h('tr', {}, h('th', { scope: 'row' }, h('button', { type: 'button', className: 'opens', onclick: () => this.open(other) }, this.found.nodes[other].label)), h('td', {}, signed(amount, size)))),
        [...more, ...others].filter(([, amount]) => amount).map(([name, amount]) => h('tr', {}, h('th', { scope: 'row', className: 'soft' }, name), h('td', {}, signed(amount, size))))),
      h('tfoot', {}, h('tr', {}, h('th', { scope: 'row' }, 'sum'), h('td', {}, signed(node.relevance, size)))));
  }
}
