// What all views choose from: methods, the class that is explained, and what it is set against.

import { h } from './dom.js';

const GROUPS = {
  rules: 'Relevance propagation and gradients', attention: 'Attention', captum: 'From captum; slower', chance: 'Chance', other: 'Others',
};

// The methods, and before its like the model's default where that has a parameter of its own, as in `lrp-secant(0.02)`.
function withUsual(methods, usual) {
  const place = methods.findIndex((m) => m.name === usual?.split('(')[0]);
  if (place < 0 || methods.some((m) => m.name === usual)) return methods;
  return methods.toSpliced(place, 0, { ...methods[place], name: usual });
}

// A folding list of check boxes; never none, never more than the server takes. `usual` is the model's default.
export function methodPicker(known, chosen, change, { most = 8, id, usual }) {
  const methods = withUsual(known, usual);
  const count = h('span', { className: 'soft' });
  const refused = h('p', { className: 'too-many', role: 'alert' });
  const boxes = new Map();
  const told = () => { count.textContent = ` ${chosen().length} of at most ${most}`; };
  const all = new Set([...Object.keys(GROUPS), ...methods.map((m) => m.group)]); // a plug-in's group is called by its own name
  const groups = [...all].map((group) => {
    const name = Object.hasOwn(GROUPS, group) ? GROUPS[group] : group;
    const own = methods.filter((m) => m.group === group);
    return own.length ? h('fieldset', {}, h('legend', {}, name), own.map((method) => {
      const box = h('input', {
        type: 'checkbox', value: method.name, onchange: () => {
          const now = new Set(chosen());
          if (box.checked) now.add(method.name); else now.delete(method.name);
          refused.textContent = now.size > most ? `At most ${most} methods stand side by side: take one away before you add ${method.name}.` : now.size ? '' : 'One method must stay.';
          if (!now.size || now.size > most) { box.checked = !box.checked; return; }
          change(methods.map((m) => m.name).filter((n) => now.has(n)));
          told();
        },
      });
      boxes.set(method.name, box);
      return h('label', { className: 'check' }, box, h('span', {}, h('b', {}, method.name), h('small', {}, method.name === usual ? `the default for this model: ${method.summary}` : method.summary)));
    })) : null;
  });
  const element = h('details', { className: 'picker', id }, h('summary', {}, 'Methods', count), refused, groups);
  return {
    element,
    show() {
      boxes.forEach((box, name) => { box.checked = chosen().includes(name); });
      told();
    },
  };
}

// Two lists: what is explained, and what it is set against. Values are indices of classes, '' for none.
export function targetPicker(change) {
  const target = h('select', { onchange: () => change() });
  const versus = h('select', { onchange: () => change() });
  let names = [];
  const label = (i) => (names[i].includes(' - ') || names.indexOf(names[i]) !== i ? String(i) : names[i]);
  return {
    element: h('div', { className: 'row' },
      h('label', {}, 'Explain', target), h('label', {}, 'rather than', versus)),
    fill(classes) {
      if (classes.join('\n') === names.join('\n')) return;
      const [a, b] = [target.value, versus.value];
      names = classes;
      const options = () => classes.map((name, i) => h('option', { value: i }, name));
      target.replaceChildren(h('option', { value: '' }, 'what is predicted'), ...options());
      versus.replaceChildren(h('option', { value: '' }, 'nothing: the score itself'), ...options());
      this.set(a, b);
    },
    set(a, b) { target.value = names[a] === undefined ? '' : a; versus.value = names[b] === undefined ? '' : b; },
    get: () => [target.value, versus.value],
    // As the API takes it. Set against something, what is predicted must be named.
    asked(prediction) {
      const first = target.value === '' ? (versus.value === '' ? null : names.indexOf(prediction)) : Number(target.value);
      if (first === null || first < 0) return null;
      return versus.value === '' ? label(first) : `${label(first)} - ${label(Number(versus.value))}`;
    },
    // What `ask(target)` gives; asked twice where what is predicted is set against something: the first answer names it.
    async answered(ask) {
      const found = await ask(this.asked());
      const wanted = this.asked(found.prediction);
      return wanted === this.asked() ? found : ask(wanted);
    },
  };
}

export function outputPicker(change) {
  const select = h('select', { onchange: () => change() },
    ['logit', 'advantage', 'probability', 'log-probability'].map((name) => h('option', { value: name }, name)));
  return { element: h('label', {}, 'as', select), select };
}

export function examples(name, given, act) {
  return h('div', { className: 'examples', role: 'group', 'aria-label': name },
    given.map(([said, value]) => h('button', { type: 'button', className: 'chip', onclick: () => act(value) }, said)));
}
