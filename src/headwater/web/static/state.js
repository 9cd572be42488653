// The whole state stands in the address, behind the #: a link holds the view. Defaults are left out.

const listeners = new Set();
let values = read();

function read() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function write() {
  const kept = Object.entries(values).filter(([, value]) => value !== '' && value !== undefined && value !== null);
  const hash = new URLSearchParams(kept).toString();
  history.replaceState(null, '', hash ? `#${hash}` : location.pathname);
}

export const state = {
  get: (name, otherwise = '') => values[name] ?? otherwise,
  list: (name, otherwise = []) => (values[name] ? values[name].split('|') : otherwise),
  set(changes) {
    for (const [name, value] of Object.entries(changes)) {
      values[name] = Array.isArray(value) ? value.join('|') : value === '' ? undefined : String(value);
    }
    write();
  },
  link: () => location.href,
  follow(act) {
    listeners.add(act);
  },
};

addEventListener('hashchange', () => {
  values = read();
  listeners.forEach((act) => act());
});
