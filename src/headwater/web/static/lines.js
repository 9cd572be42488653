// Lines from a sentence of the answer to its sources, as thick as their shares. On a narrow window there are none.

import { svg } from './dom.js';

const LEAST = 0.05; // of all that documents give: less has no line

export function drawLines(frame, place, from, sources) {
  place.replaceChildren();
  const box = frame.getBoundingClientRect();
  const end = from?.getClientRects()[0];
  if (!end) return;
  const edge = frame.firstElementChild.getBoundingClientRect().right - box.left;
  sources.filter(({ share }) => share > LEAST).forEach(({ element, share }) => {
    const own = [...element.getClientRects()].at(-1);
    const [x0, y0] = [own.right - box.left, own.bottom + 4 - box.top]; // between its line and the next to the edge of the column: under others it is no mark of theirs
    const [x1, y1] = [end.left - box.left - 26, (end.top + end.bottom) / 2 - box.top];
    const middle = (edge + x1) / 2;
    place.append(svg('path', { d: `M${x0} ${y0} H${Math.max(x0, edge)} C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`, 'stroke-width': 1 + 7 * share, 'stroke-opacity': 0.35 + 0.6 * share }));
  });
}
