// Words on the ground of their relevance. One listener for all of them: a text of many hundred words stays smooth.

import { h, signed } from './dom.js';

const tip = document.getElementById('tip');

// `more` are switches that stand beside it; `said` is filled with how colours of different rows compare.
export function key(said = h('span', { className: 'soft' }, ' each row has full colour at its own largest relevance'), more = []) {
  return h('div', { className: 'key' }, h('p', { 'aria-label': 'Key to the colours', role: 'group' },
    h('span', { className: 'w add', style: { '--o': 1 } }, 'adds to the score'), ' ',
    h('span', { className: 'w take', style: { '--o': 1 } }, 'takes away from it'), ' ', said), more);
}

export function look(value, scale) {
  const share = scale > 0 && Number.isFinite(value) ? Math.min(1, Math.abs(value) / scale) : 0;
  return { kind: value > 0 ? 'add' : value < 0 ? 'take' : 'none', share };
}

// One method's row. `masked` are numbers of words. An `inert` row is only to be read: no word of it can be masked.
// `numbers` are what stands under the words where the page shows numbers.
export function row(cells, relevance, scale, masked, label, inert = false, numbers = []) {
  const line = h('div', { className: 'words', role: 'group', 'aria-label': label });
  let first = true;
  cells.forEach((cell, i) => {
    const { kind, share } = look(relevance[i], scale);
    const can = cell.word !== null && !inert;
    const hidden = can && masked.has(cell.word);
    if (cell.gap && i) line.append(' ');
    line.append(h('span', {
      className: `w ${kind}${can ? ' can' : ''}${cell.word === null ? ' special' : ''}${hidden ? ' masked' : ''}`,
      style: { '--o': share.toFixed(3) },
      'data-i': i,
      'data-n': numbers[i],
      role: can ? 'button' : undefined,
      tabindex: can ? (first ? 0 : -1) : undefined,
      'aria-pressed': can ? String(hidden) : undefined,
      'aria-label': can ? `${cell.text}, ${signed(relevance[i], scale)}${hidden ? ', masked' : ''}` : undefined,
    }, cell.text));
    if (can) first = false;
  });
  return line;
}

// Pointer, touch and keyboard for all rows inside `root`.
export function listen(root, { act, numbers }) {
  const at = (event) => event.target.closest?.('.w[data-i]');
  root.addEventListener('click', (event) => {
    const found = at(event);
    if (found?.classList.contains('can')) act(Number(found.dataset.i), found);
  });
  root.addEventListener('keydown', (event) => {
    const found = at(event);
    if (!found) return;
    const all = [...found.parentElement.querySelectorAll('.w.can')];
    const here = all.indexOf(found);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = event.key === 'Home' ? 0 : event.key === 'End' ? all.length - 1 : here + (step ?? 0);
    if (event.key === 'Enter' || event.key === ' ') act(Number(found.dataset.i), found);
    else if (event.key === 'Escape') hide();
    else if (next !== here && all[next]) { focus(all, next); } else if (step === undefined) return;
    event.preventDefault();
  });
  root.addEventListener('pointerover', (event) => { const found = at(event); if (found) show(found, numbers); });
  root.addEventListener('pointerout', (event) => { if (at(event)) hide(); });
  root.addEventListener('focusin', (event) => { const found = at(event); if (found) show(found, numbers); });
  root.addEventListener('focusout', hide);
}

function focus(all, next) {
  all.forEach((word, i) => { word.tabIndex = i === next ? 0 : -1; });
  all[next].focus();
}

function show(word, numbers) {
  const lines = numbers(Number(word.dataset.i));
  if (!lines) { hide(); return; }
  tip.replaceChildren(
    h('b', {}, word.textContent),
    h('table', {}, h('tbody', {}, lines.map(([name, amount, now]) =>
      h('tr', { className: now ? 'now' : '' }, h('th', { scope: 'row' }, name), h('td', {}, amount))))),
  );
  tip.hidden = false;
  const box = word.getBoundingClientRect();
  const own = tip.getBoundingClientRect();
  const left = Math.max(8, Math.min(box.left, innerWidth - own.width - 8));
  const above = box.top - own.height - 8; // the row that comes next stays to be seen
  tip.style.setProperty('left', `${left}px`);
  tip.style.setProperty('top', `${above >= 0 ? above : lowest(word, box) + 8}px`);
}

// Where there is no room above: below the whole row, and of that row's words at least the one.
function lowest(word, box) {
  const row = word.closest('.words')?.getBoundingClientRect();
  return row && row.bottom + 120 < innerHeight ? row.bottom : box.bottom;
}

export function hide() {
  tip.hidden = true;
}

addEventListener('scroll', hide, { passive: true });
