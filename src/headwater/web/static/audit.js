// Where relevance is lost: from the score to the inputs, layer by layer, for two methods.

import { h, short, signed } from './dom.js';
import { drawing } from './drawing.js';
import { roundToSum, placesFor, shown } from './sums.js';

export function audit(found) {
  return h('div', { className: 'audit' },
    h('ul', { className: 'facts' }, found.rows.map((row) => h('li', {}, said(row)))),
    h('p', { className: 'soft' }, 'From the score back to the inputs: at every layer, what is still there, what biases and constants took, and what was lost are together the score.'),
    h('div', { className: 'chart' }, h('div', { className: 'pair' }, found.rows.map((row) => h('figure', { className: 'flow' }, h('figcaption', {}, h('b', {}, row.method)),
      drawing(row.svg, `${row.method}: relevance, taken and lost at every layer, together the score of ${signed(row.score)}`))))),
    h('div', { className: 'pair' }, found.rows.map(table)));
}

function said(row) {
  const share = Math.abs(row.lost) / (Math.abs(row.score) || 1);
  const most = row.layers.flatMap((layer) => layer.leaks).sort((a, b) => Math.abs(b.amount) - Math.abs(a.amount))[0];
  if (row.closed) return [h('b', {}, row.method), ` keeps everything: ${told(row)}.`];
  return [h('b', {}, row.method), ` ${row.lost > 0 === row.score > 0 ? 'loses' : 'invents'} ${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of the score on the way: ${told(row)}.`,
    most ? ` Largest break: ${most.operation} in ${most.module || 'the model'} (${signed(most.amount)}).` : ''];
}

// What arrives at the inputs and what went elsewhere, as a sum that is right as it stands.
function told(row) {
  const places = placesFor(row.score);
  const parts = roundToSum([row.inputs, row.sources, row.lost], row.score, places);
  const names = ['inputs', 'biases and constants', 'lost'];
  const said = names.map((name, i) => [name, parts[i]]).filter(([, part], i) => i === 0 || Number(part.toFixed(places)) !== 0);
  return `${said.map(([name, part]) => `${name} ${shown(part, places).replace('+', '')}`).join(' + ')} = ${shown(row.score, places).replace('+', '')}`;
}

// The layers as they are shown: what leaves one arrives at the next, and every row and the whole add up.
function settled(row) {
  const places = placesFor(row.score);
  const [inputs, sources, lost] = roundToSum([row.inputs, row.sources, row.lost], row.score, places);
  const readout = row.score - row.layers[0].arrives;
  const [own, ...taken] = roundToSum([readout, ...row.layers.map((layer) => layer.sources)], sources, places);
  const missing = roundToSum(row.layers.map((layer) => layer.lost), lost, places);
  let arrives = Number(row.score.toFixed(places)) - own;
  const layers = row.layers.map((layer, i) => {
    const leaves = arrives - taken[i] - missing[i];
    const amounts = [arrives, taken[i], missing[i], leaves].map((amount) => shown(amount, places));
    arrives = leaves;
    return amounts;
  });
  return { layers, inputs: shown(inputs, places) };
}

function table(row) {
  const seen = settled(row);
  const loud = (amount) => Math.abs(amount) > 0.01 * Math.abs(row.score);
  return h('div', { className: 'wide', tabindex: 0, role: 'region', 'aria-label': `${row.method}, layer by layer` },
    h('table', { className: 'numbers' },
      h('caption', {}, row.method),
      h('thead', {}, h('tr', {}, ['layer', 'arrives', 'biases take', 'lost', 'leaves'].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, row.layers.map((layer, k) => h('tr', {},
        h('th', { scope: 'row' }, layer.leaks.length ? h('details', {}, h('summary', {}, short(layer.name)),
          h('ul', { className: 'leaks' }, layer.leaks.map((leak) => h('li', {}, `${leak.operation} `, h('small', {}, inside(leak.module, layer.name)), ` ${signed(leak.amount, row.score)}`)))) : short(layer.name)),
        seen.layers[k].map((amount, i) => h('td', { className: i === 2 && loud(layer.lost) ? 'loud' : '' }, amount))))),
      h('tfoot', {}, h('tr', {}, h('th', { scope: 'row' }, 'inputs'), h('td', {}), h('td', {}), h('td', {}), h('td', {}, seen.inputs)))));
}

const inside = (module, layer) => (module.startsWith(`${layer}.`) ? module.slice(layer.length + 1) : module);
