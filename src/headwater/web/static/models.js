// Which model a view shows, and the choice among those that were named when the server started.

import { h } from './dom.js';
import { state } from './state.js';

// Of one kind, or of several separated by blanks: then those that are there, and the first in any case.
const modelsOf = (about, kind) => {
  const kinds = kind.split(' ');
  const own = kinds.flatMap((one) => about.models.filter((model) => model.kind === one));
  return kinds.length < 2 ? own : own.filter((model, i) => !i || model.state !== 'absent');
};

// The model that the address names, else the first of its kind.
export const chosenModel = (about, kind, key) => {
  const own = modelsOf(about, kind);
  return own.find((model) => model.name === state.get(key)) ?? own[0];
};

// Whether there is nothing that could answer, and what stands in place of the view then.
export const isMissing = (model) => model.state === 'absent' || model.state === 'failed';
export const missingNote = (model, title) => h('div', {}, h('div', { className: 'note' }, h('h1', {}, title), h('p', {}, model.hint)));

// What requests name: nothing for the first, so that links without a choice stay short.
export const modelAsked = (about, kind, model) => (model.name === modelsOf(about, kind)[0].name ? null : model.name);

export function modelLine(about, kind, key, change) {
  const own = modelsOf(about, kind);
  if (own.length < 2) return h('p', { className: 'which' }, 'Model ', h('b', {}, own[0].name));
  const select = h('select', { 'data-models': kind, onchange: () => {
    state.set({ [key]: select.value === own[0].name ? '' : select.value });
    change();
  } }, own.map((model) => h('option', { value: model.name }, model.name)));
  select.value = chosenModel(about, kind, key).name;
  return h('label', { className: 'which' }, 'Model', select);
}

// The model that the address names now, after a step back or forward; the choice shows it.
export function followedModel(element, about, kind, key) {
  const model = chosenModel(about, kind, key);
  const select = element.querySelector(`[data-models="${kind}"]`);
  if (select) select.value = model.name;
  return model;
}
