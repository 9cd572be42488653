// The frame: tabs, palette, theme, the link, and which view is on.

import { AnswerView } from './answer.js';
import { get } from './api.js';
import { h } from './dom.js';
import { GenerationView } from './generation.js';
import { ImageView } from './images.js';
import { InsideView } from './inside.js';
import { MoleculeView } from './molecules.js';
import { ResultsView } from './results.js';
import { SimilarView } from './similar.js';
import { state } from './state.js';
import { learn } from './terms.js';
import { TextView } from './text.js';
import { Welcome } from './welcome.js';

const main = document.getElementById('main');
const tabs = document.querySelector('.tabs');
const palette = document.getElementById('palette');
const theme = document.getElementById('theme');

const VIEWS = {
  text: ['Text', TextView],
  images: ['Images', ImageView],
  molecules: ['Molecules', MoleculeView],
  generation: ['Generated text', GenerationView],
  answer: ['Answer', AnswerView],
  similar: ['Two texts', SimilarView],
  inside: ['Inside', InsideView],
  results: ['Results', ResultsView],
};

const views = new Map();
let about;

function paint() {
  const chosen = about.palettes.find((p) => p.name === state.get('palette')) ?? about.palettes[0];
  palette.value = chosen.name;
  for (const side of ['positive', 'negative']) {
    for (const ground of ['light', 'dark']) {
      document.documentElement.style.setProperty(`--${side}-${ground}`, chosen[side][ground].join(' '));
    }
  }
}

function dress() {
  const chosen = localStorage.getItem('headwater-theme') ?? 'auto';
  theme.value = chosen;
  if (chosen === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

function open(name, focus = false) {
  const chosen = Object.hasOwn(VIEWS, name) ? name : 'text';
  for (const tab of tabs.children) {
    const on = tab.dataset.view === chosen;
    tab.setAttribute('aria-selected', String(on));
    tab.tabIndex = on ? 0 : -1;
    if (on && focus) tab.focus();
  }
  if (!views.has(chosen)) {
    const [said, View] = VIEWS[chosen];
    const view = new View(about);
    view.element.id = `panel-${chosen}`;
    view.element.setAttribute('role', 'tabpanel');
    view.element.setAttribute('aria-label', said);
    main.append(view.element);
    views.set(chosen, view);
  }
  views.forEach((view, other) => { view.element.hidden = other !== chosen; });
  views.get(chosen).show();
}

function tab([name, [said]]) {
  return h('button', {
    type: 'button', role: 'tab', id: `tab-${name}`, 'data-view': name, 'aria-controls': `panel-${name}`,
    onclick: () => { state.set({ tab: name === 'text' ? '' : name }); open(name); },
    onkeydown: (event) => {
      const names = Object.keys(VIEWS);
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = names[(names.indexOf(name) + step + names.length) % names.length];
      state.set({ tab: next === 'text' ? '' : next });
      open(next, true);
      event.preventDefault();
    },
  }, said);
}

async function start() {
  about = await get('/api/about');
  learn(about);
  main.append(new Welcome(document.getElementById('what')).element);
  tabs.append(...Object.entries(VIEWS).map(tab));
  palette.append(...about.palettes.map((p) => h('option', { value: p.name }, p.said.split(',')[0])));
  palette.addEventListener('change', () => {
    state.set({ palette: palette.value === about.palettes[0].name ? '' : palette.value });
    paint();
    views.get(state.get('tab', 'text'))?.repaint?.();
  });
  theme.addEventListener('change', () => { localStorage.setItem('headwater-theme', theme.value); dress(); });
  document.getElementById('link').addEventListener('click', copy);
  document.getElementById('about').textContent = `Headwater ${about.version} · nothing leaves this machine`;
  paint();
  dress();
  state.follow(() => { paint(); open(state.get('tab', 'text')); });
  open(state.get('tab', 'text'));
}

async function copy(event) {
  const button = event.currentTarget;
  try {
    await navigator.clipboard.writeText(state.link());
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'It is in the address bar';
  }
  setTimeout(() => { button.textContent = 'Copy link'; }, 2000);
}

start().catch((error) => main.append(h('p', { className: 'note', role: 'alert' }, `The explorer could not start: ${error.message}`)));
