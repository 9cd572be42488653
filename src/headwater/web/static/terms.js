// A word explained where it stands: point at it, tap it, or reach it by Tab. The words come from the server, whose
// glossary has the same.

import { h } from './dom.js';

const tip = document.getElementById('tip');
const meanings = new Map();

export function learn(about) {
  Object.entries(about.words).forEach(([word, meaning]) => meanings.set(word, meaning));
  about.methods.forEach((method) => meanings.set(method.name, `a method. ${method.summary}`));
}

export const knows = (word) => meanings.has(word);

// `word` is what is explained, `label` what stands there; '?' is said as a question. Without a meaning it is text.
export function term(word, label = word) {
  const meaning = meanings.get(word);
  if (!meaning) return h('span', {}, label);
  const element = h('button', {
    type: 'button', className: label === '?' ? 'term ask' : 'term', 'aria-label': label === '?' ? `What is meant by ${word}?` : `${label}, a word explained`,
    'aria-description': `${word}: ${meaning}`,
  }, label);
  const show = () => explain(element, word, meaning);
  element.addEventListener('pointerenter', show);
  element.addEventListener('focus', show);
  element.addEventListener('click', show);
  element.addEventListener('pointerleave', () => { if (document.activeElement !== element) hide(); });
  element.addEventListener('blur', hide);
  element.addEventListener('keydown', (event) => { if (event.key === 'Escape') hide(); });
  return element;
}

function explain(element, word, meaning) {
  tip.replaceChildren(h('b', {}, word), ` ${meaning}. `);
  tip.hidden = false;
  const [box, own] = [element.getBoundingClientRect(), tip.getBoundingClientRect()];
  const below = box.bottom + 6 + own.height < innerHeight;
  tip.style.setProperty('left', `${Math.max(8, Math.min(box.left, innerWidth - own.width - 8))}px`);
  tip.style.setProperty('top', `${below ? box.bottom + 6 : box.top - own.height - 6}px`);
}

function hide() { tip.hidden = true; }
