// The whole state stands in the address, behind the #: a link holds the view. Defaults are left out. A change is a step
// of the browser's history, so that back and forward walk the states; a burst of typing is one step.

const BURST = 2500; // ms: what is typed within is one step
const TYPED = new Set(['text', 'mask', 'find', 'smiles']); // what changes with every key
const QUIET = new Set(['at', 'sat', 'book']); // where one looks, not what is shown: no step of its own

const listeners = new Set();
let values = read();
let typed = -Infinity; // when the last key of a burst was

function read() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function address() {
  const kept = Object.entries(values).filter(([, value]) => value !== '' && value !== undefined && value !== null);
  const hash = new URLSearchParams(kept).toString();
  return hash ? `#${hash}` : '';
}

function write(names) {
  const next = address();
  if (next === location.hash) return;
  const now = performance.now();
  const typing = names.every((name) => TYPED.has(name)) && names.some((name) => name !== 'mask');
  const same = names.every((name) => QUIET.has(name)) || (typing && now - typed < BURST);
  typed = typing ? now : -Infinity;
  history[same ? 'replaceState' : 'pushState'](null, '', next || location.pathname);
}

export const state = {
  get: (name, otherwise = '') => values[name] ?? otherwise,
  list: (name, otherwise = []) => (values[name] ? values[name].split('|') : otherwise),
  set(changes) {
    const changed = [];
    for (const [name, value] of Object.entries(changes)) {
      const kept = Array.isArray(value) ? value.join('|') : value === '' ? undefined : String(value);
      if ((values[name] || undefined) !== (kept || undefined)) changed.push(name);
      values[name] = kept;
    }
    if (changed.length) write(changed);
  },
  link: () => location.href,
  follow(act) {
    listeners.add(act);
  },
};

addEventListener('popstate', () => {
  const before = address();
  values = read();
  typed = -Infinity;
  if (address() !== before) listeners.forEach((act) => act());
});
