// A drawing that the server made, built anew from what is harmless in it: shapes, text and their looks. No element and
// no attribute that is not listed gets into the page.

import { svg } from './dom.js';

const ELEMENTS = new Set('svg g rect circle ellipse line path polygon polyline text tspan title defs pattern image'.split(' '));
const LOOKS = new Set(('fill fill-opacity fill-rule stroke stroke-width stroke-opacity stroke-linecap stroke-linejoin '
  + 'stroke-dasharray stroke-miterlimit opacity font-size font-weight font-family font-style text-anchor').split(' '));
const PLACES = new Set(('x y x1 x2 y1 y2 cx cy r rx ry d points width height viewBox transform id patternUnits '
  + 'patternTransform preserveAspectRatio dx dy pointer-events').split(' '));

export function drawing(text, label) {
  const read = new DOMParser().parseFromString(text, 'image/svg+xml');
  const made = built(read.documentElement);
  if (!made) throw new Error('the drawing could not be read');
  made.setAttribute('role', 'img');
  made.setAttribute('aria-label', label);
  return made;
}

function built(node) {
  if (!ELEMENTS.has(node.localName)) return null;
  const made = svg(node.localName);
  for (const { name, value } of node.attributes) {
    if (LOOKS.has(name) || PLACES.has(name)) made.setAttribute(name, value);
    else if (name === 'data-item' && /^\d+$/.test(value)) made.setAttribute('data-item', value);
    else if (name === 'href' && /^data:image\/png;base64,[A-Za-z0-9+/=]+$/.test(value)) made.setAttribute('href', value);
  }
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) made.append(child.data);
    else if (child.nodeType === Node.ELEMENT_NODE) made.append(built(child) ?? '');
  }
  return made;
}
