// Where relevance is lost: from the score to the inputs, layer by layer, for two methods.

import { lines } from './chart.js';
import { h, short, signed } from './dom.js';

export function audit(found) {
  const names = [...new Set(found.rows.flatMap((row) => row.layers.map((layer) => layer.name)))];
  const places = ['score', ...names.slice(1).map(short), 'inputs'];
  const series = found.rows.map((row) => ({ name: row.method, values: [...names.map((name, i) => arriving(row, name, i)), row.inputs] }));
  return h('div', { className: 'audit' },
    h('ul', { className: 'facts' }, found.rows.map((row) => h('li', {}, said(row)))),
    h('figure', {},
      h('figcaption', {}, 'Relevance that is still there, on its way from the score back to the inputs'),
      lines({ series, places, title: `Relevance arriving at each layer, for ${found.rows.map((r) => r.method).join(' and ')}`, label: found.output })),
    h('div', { className: 'pair' }, found.rows.map(table)));
}

// At a layer that a method does not name, what the one before it let go.
function arriving(row, name, i) {
  const own = row.layers.find((layer) => layer.name === name);
  return own?.arrives ?? row.layers[Math.min(i, row.layers.length) - 1]?.leaves ?? row.score;
}

function said(row) {
  const share = Math.abs(row.lost) / (Math.abs(row.score) || 1);
  const most = row.layers.flatMap((layer) => layer.leaks).sort((a, b) => Math.abs(b.amount) - Math.abs(a.amount))[0];
  if (row.closed) return [h('b', {}, row.method), ` keeps everything: what the layers' biases do not take arrives at the inputs (${signed(row.inputs)} of ${signed(row.score)}).`];
  return [h('b', {}, row.method), ` ${row.lost > 0 === row.score > 0 ? 'loses' : 'invents'} ${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of the score on the way; the inputs keep ${signed(row.inputs, row.score)} of ${signed(row.score)}.`,
    most ? ` Largest break: ${most.operation} in ${most.module || 'the model'} (${signed(most.amount)}).` : ''];
}

function table(row) {
  const loud = (amount) => Math.abs(amount) > 0.01 * Math.abs(row.score);
  return h('div', { className: 'wide', tabindex: 0, role: 'region', 'aria-label': `${row.method}, layer by layer` },
    h('table', { className: 'numbers' },
      h('caption', {}, row.method),
      h('thead', {}, h('tr', {}, ['layer', 'arrives', 'biases take', 'lost', 'leaves'].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, row.layers.map((layer) => h('tr', {},
        h('th', { scope: 'row' }, layer.leaks.length ? h('details', {}, h('summary', {}, short(layer.name)),
          h('ul', { className: 'leaks' }, layer.leaks.map((leak) => h('li', {}, `${leak.operation} `, h('small', {}, inside(leak.module, layer.name)), ` ${signed(leak.amount, row.score)}`)))) : short(layer.name)),
        [layer.arrives, layer.sources, layer.lost, layer.leaves].map((amount, i) =>
          h('td', { className: i === 2 && loud(amount) ? 'loud' : '' }, signed(amount, row.score)))))),
      h('tfoot', {}, h('tr', {}, h('th', { scope: 'row' }, 'inputs'), h('td', {}), h('td', {}), h('td', {}), h('td', {}, signed(row.inputs, row.score))))));
}

const inside = (module, layer) => (module.startsWith(`${layer}.`) ? module.slice(layer.length + 1) : module);
