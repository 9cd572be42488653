// Elements made of values. Text goes in as text, never as markup: nothing here reads HTML from a string.

const SVG = 'http://www.w3.org/2000/svg';

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else element.setAttribute(name === 'className' ? 'class' : name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, props = {}, ...children) => filled(document.createElement(tag), props, children);
export const svg = (tag, props = {}, ...children) => filled(document.createElementNS(SVG, tag), props, children);

// A number with its sign and as many places as its scale deserves; a true minus, so that columns line up.
export function signed(value, scale = Math.abs(value)) {
  if (!Number.isFinite(value)) return 'n/a';
  const size = Math.abs(scale);
  const places = size === 0 ? 2 : Math.min(6, Math.max(2, 1 - Math.floor(Math.log10(size))));
  const shown = Math.abs(value).toFixed(places);
  if (Number(shown) === 0) return shown;
  return (value < 0 ? '−' : '+') + shown;
}

export const percent = (share) => {
  const value = share * 100;
  if (value === 0 || value === 100) return `${value} %`;
  return `${value < 99.95 && value >= 0.05 ? value.toFixed(1) : value.toFixed(2)} %`;
};

export function debounced(wait, act) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), wait);
  };
}

// Enter with Ctrl or Cmd, in a box of several lines.
export function onCtrlEnter(box, act) {
  box.addEventListener('keydown', (e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); act(); } });
  return box;
}

// The last parts of a module's dotted name: `bert.encoder.layer.3` is "layer 3".
export function short(name) {
  const parts = name.split('.');
  const last = parts.length - 1;
  return /^\d+$/.test(parts[last]) && last > 0 ? `${parts[last - 1]} ${parts[last]}` : parts[last];
}

// A number and what is counted: 1 row, 1,234 rows.
export const counted = (number, unit) => `${number.toLocaleString('en')} ${number === 1 ? unit : plural(unit)}`;

export const plural = (unit) => (/(ch|ss)$/.test(unit) ? `${unit}es` : `${unit}s`);
