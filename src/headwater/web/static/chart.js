// Lines over named places. Every series has its own dash and marker, so that colour is not the only sign.

import { svg } from './dom.js';

const DASHES = ['', '7 4', '2 3', '10 4 2 4', '4 2', '12 3', '2 2 6 2', '1 4'];
const MARKS = [
  (x, y) => svg('circle', { cx: x, cy: y, r: 4 }),
  (x, y) => svg('rect', { x: x - 3.6, y: y - 3.6, width: 7.2, height: 7.2 }),
  (x, y) => svg('path', { d: `M${x} ${y - 4.6}l4.4 8h-8.8z` }),
  (x, y) => svg('path', { d: `M${x} ${y - 5}l5 5l-5 5l-5-5z` }),
];

function ticks(low, high) {
  const step = 10 ** Math.floor(Math.log10((high - low) / 3 || 1));
  const size = [1, 2, 5, 10].map((n) => n * step).find((n) => (high - low) / n <= 5) ?? step;
  const found = [];
  for (let at = Math.ceil(low / size) * size; at <= high + size / 1e6; at += size) found.push(Math.abs(at) < size / 1e6 ? 0 : at);
  return found;
}

// `series` are {name, values}, one value a place; `places` are their names. With `x` numbers, places lie to scale.
export function lines({ series, places, x, title, label, height = 240, across = '' }) {
  const narrow = innerWidth < 640;
  const [width, left, right, top, bottom] = [narrow ? 400 : 720, narrow ? 34 : 56, narrow ? 58 : 96, 14, across ? 46 : 32];
  const all = series.flatMap((one) => one.values).filter(Number.isFinite);
  const [least, most] = [Math.min(0, ...all), Math.max(0, ...all)];
  const room = (most - least || 1) * 0.06;
  const [low, high] = [least - (least < 0 ? room : 0), most + room];
  const count = places.length;
  const px = (i) => {
    const share = x ? (x[i] - x[0]) / (x[count - 1] - x[0] || 1) : i / Math.max(1, count - 1);
    return left + share * (width - left - right);
  };
  const py = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
  const every = Math.ceil(count / (narrow ? 5 : 9));
  const drawn = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title, className: 'chart' });
  for (const tick of ticks(low, high)) {
    drawn.append(svg('line', { x1: left, x2: width - right, y1: py(tick), y2: py(tick), className: tick === 0 ? 'axis' : 'grid' }),
      svg('text', { x: left - 8, y: py(tick) + 4, className: 'tick end' }, `${Math.round(tick * 1e6) / 1e6}`.replace('-', '−')));
  }
  places.forEach((name, i) => {
    if (i % every && i !== count - 1) return;
    drawn.append(svg('text', { x: px(i), y: height - bottom + 20, className: 'tick middle' }, name));
  });
  if (across) drawn.append(svg('text', { x: (left + width - right) / 2, y: height - 6, className: 'tick middle' }, across));
  if (label) drawn.append(svg('text', { x: 4, y: 11, className: 'tick' }, label));
  const ends = [];
  series.forEach((one, number) => {
    const points = one.values.map((value, i) => [px(i), py(value)]);
    const group = svg('g', { className: `series s${number % 8}` },
      svg('polyline', { points: points.map((p) => p.map((v) => v.toFixed(1)).join(',')).join(' '), 'stroke-dasharray': DASHES[number % 8] }),
      points.map(([a, b], i) => (count <= 24 ? svg('g', {}, MARKS[number % 4](a, b), svg('title', {}, `${one.name}, ${places[i]}: ${one.values[i].toPrecision(4)}`)) : null)));
    drawn.append(group);
    ends.push({ name: one.name, y: points[count - 1][1], number });
  });
  ends.sort((a, b) => a.y - b.y).forEach((end, i) => {
    if (i && end.y - ends[i - 1].y < 14) end.y = ends[i - 1].y + 14;
    drawn.append(svg('text', { x: width - right + 10, y: end.y + 4, className: `name s${end.number % 8}` }, end.name));
  });
  return drawn;
}
