// What is on the screen as a drawing for slides: no frame, no buttons, twice the size. It is laid out aside at the width
// of a slide, measured, and written as SVG: every word where the browser put it, on the ground that it has there.

import { h, svg } from './dom.js';

const AWAY = '.save, .hint, .status, .pager, .test button, .opened button, input, textarea, .tabs, .heard, .asked label:has(input), label:has(> input), details:not([open]) > :not(summary), .term.ask, [hidden]';
const SCALE = 2;
const LOOKS = ['fill', 'fill-opacity', 'stroke', 'stroke-opacity', 'stroke-width', 'stroke-dasharray', 'opacity', 'text-anchor', 'font-size', 'font-weight', 'font-family'];

const pen = h('canvas', { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
const colours = new Map();

// A colour as any program reads it: [#rrggbb, opacity].
function colour(said) {
  if (!colours.has(said)) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = said;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    colours.set(said, [`#${[r, g, b].map((v) => v.toString(16).padStart(2, '0')).join('')}`, a / 255]);
  }
  return colours.get(said);
}

// The cards that belong to a saver: of the first card of a view all that is open, the prediction first; of others, it.
function parts(saver) {
  const card = saver.closest('.card');
  const view = card.closest('.view');
  const all = [...(view?.querySelectorAll('.results > .card') ?? [])];
  const first = all.findIndex((one) => one.querySelector(':scope > .headed .save')); // a verdict may stand before it
  if (!view || card !== all[first]) return [card];
  const beside = view.querySelectorAll('.side > .card:not(.choices, .from)');
  return [...all.slice(0, first), ...beside, card, ...view.querySelectorAll('.side > .from'), ...all.slice(first + 1)].filter((one) => one.offsetParent !== null && !(one.localName === 'details' && !one.open));
}

// A copy without what can only be clicked; a list shows what was chosen in it.
function copied(card) {
  const copy = card.cloneNode(true);
  const lists = copy.querySelectorAll('select');
  card.querySelectorAll('select').forEach((list, i) => lists[i].replaceWith(h('b', {}, ` ${list.selectedOptions[0]?.textContent ?? ''}`)));
  copy.querySelectorAll(AWAY).forEach((one) => one.remove());
  copy.querySelectorAll('.numbered .w[data-n]').forEach((word) => word.append(h('span', { className: 'number' }, word.dataset.n)));
  copy.querySelectorAll('[id]').forEach((one) => { if (!one.closest('svg')) one.removeAttribute('id'); });
  return copy;
}

export function slide(saver) {
  const stage = h('div', { className: 'slide', 'aria-hidden': 'true' }, parts(saver).map(copied));
  document.body.append(stage);
  try {
    return written(stage);
  } finally {
    stage.remove();
  }
}

function written(stage) {
  const whole = stage.getBoundingClientRect();
  const width = Math.max(whole.width, stage.scrollWidth);
  const place = { x: whole.left, y: whole.top };
  const [ground, ink] = [colour(getComputedStyle(stage).backgroundColor)[0], colour(getComputedStyle(stage).color)[0]];
  const made = svg('svg', { xmlns: 'http://www.w3.org/2000/svg', width: width * SCALE, height: whole.height * SCALE, viewBox: `0 0 ${width} ${whole.height}` },
    svg('defs', {}, svg('pattern', { id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' }, svg('rect', { width: 2, height: 6, fill: ink, 'fill-opacity': 0.28 }))),
    svg('rect', { width, height: whole.height, fill: ground }));
  for (const child of stage.children) walk(child, made, place);
  return new XMLSerializer().serializeToString(made);
}

function walk(element, into, place) {
  const style = getComputedStyle(element);
  if (style.display === 'none' || style.visibility === 'hidden') return;
  if (element.localName === 'svg') { into.append(nested(element, place)); return; }
  boxes(element, style, into, place);
  for (const node of element.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) words(node, style, into, place);
    else if (node.nodeType === Node.ELEMENT_NODE) walk(node, into, place);
  }
}

const fixed = (value) => Number(value.toFixed(2));

function boxes(element, style, into, place) {
  const [fill, opacity] = colour(style.backgroundColor);
  const hatched = style.backgroundImage.includes('repeating-linear-gradient');
  if (opacity > 0 || hatched) {
    for (const box of element.getClientRects()) {
      const shape = { x: fixed(box.left - place.x), y: fixed(box.top - place.y), width: fixed(box.width), height: fixed(box.height), rx: Math.min(parseFloat(style.borderTopLeftRadius) || 0, box.height / 2) };
      if (opacity > 0) into.append(svg('rect', { ...shape, fill, 'fill-opacity': fixed(opacity) }));
      if (hatched) into.append(svg('rect', { ...shape, fill: 'url(#hatch)' }));
    }
  }
  const box = element.getBoundingClientRect();
  for (const [side, y] of [['Top', box.top], ['Bottom', box.bottom]]) {
    const [stroke, strong] = colour(style[`border${side}Color`]);
    const thick = parseFloat(style[`border${side}Width`]);
    if (thick && strong && style[`border${side}Style`] !== 'none') {
      into.append(svg('line', { x1: fixed(box.left - place.x), x2: fixed(box.right - place.x), y1: fixed(y - place.y), y2: fixed(y - place.y), stroke, 'stroke-opacity': fixed(strong), 'stroke-width': thick }));
    }
  }
}

// Every word as a text of its own, as wide as it was: so lines break where they did, whatever font there is.
function words(node, style, into, place) {
  const font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  pen.font = font;
  const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = pen.measureText('x');
  const range = document.createRange();
  for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const found = range.getClientRects();
    if (found.length === 1) text(word, found[0], { style, up, down }, into, place);
    else [...word].reduce((at, letter) => { // a long word that goes over several lines
      range.setStart(node, index + at);
      range.setEnd(node, index + at + letter.length);
      text(letter, range.getBoundingClientRect(), { style, up, down }, into, place);
      return at + letter.length;
    }, 0);
  }
}

function text(said, box, { style, up, down }, into, place) {
  if (!box.width) return;
  const [fill, opacity] = colour(style.color);
  const [x, y] = [fixed(box.left - place.x), fixed(box.top - place.y + (box.height - up - down) / 2 + up)];
  const shown = style.textTransform === 'uppercase' ? said.toUpperCase() : said;
  into.append(svg('text', {
    x, y, fill, 'fill-opacity': fixed(opacity), 'font-size': style.fontSize, 'font-family': style.fontFamily, 'font-weight': style.fontWeight,
    'font-style': style.fontStyle === 'normal' ? null : style.fontStyle, textLength: fixed(box.width), lengthAdjust: 'spacingAndGlyphs',
  }, shown));
  const [line, strong] = colour(style.textDecorationColor);
  const drawn = (at) => into.append(svg('line', { x1: x, x2: fixed(x + box.width), y1: fixed(at), y2: fixed(at), stroke: line, 'stroke-opacity': fixed(strong), 'stroke-width': 2 }));
  if (style.textDecorationLine.includes('underline')) drawn(y + down * 0.9);
  if (style.textDecorationLine.includes('line-through')) drawn(y - up * 0.3);
}

// A chart or a picture, its looks written into it: where it goes there is no style sheet.
function nested(element, place) {
  const box = element.getBoundingClientRect();
  const copy = element.cloneNode(true);
  const [from, to] = [[element, ...element.querySelectorAll('*')], [copy, ...copy.querySelectorAll('*')]];
  from.forEach((one, i) => {
    const style = getComputedStyle(one);
    to[i].removeAttribute('class');
    to[i].removeAttribute('style');
    for (const name of LOOKS) {
      const value = style.getPropertyValue(name);
      if ((name === 'fill' || name === 'stroke') && value !== 'none' && !value.startsWith('url')) {
        const [plain, opacity] = colour(value);
        to[i].setAttribute(name, plain);
        if (opacity < 1) to[i].setAttribute(`${name}-opacity`, fixed(opacity));
      } else if (value && !(name.endsWith('-opacity') && to[i].hasAttribute(name))) to[i].setAttribute(name, value);
    }
  });
  copy.setAttribute('x', fixed(box.left - place.x));
  copy.setAttribute('y', fixed(box.top - place.y));
  copy.setAttribute('width', fixed(box.width));
  copy.setAttribute('height', fixed(box.height));
  return copy;
}
