// The API, read off its own document: routes, what they take, what they give.

import { get } from './api.js';
import { h } from './dom.js';

const main = document.getElementById('main');
const named = (reference) => reference.split('/').at(-1);

function type(schema) {
  if (!schema) return '';
  if (schema.$ref) return h('a', { href: `#${named(schema.$ref)}` }, named(schema.$ref));
  if (schema.anyOf) return schema.anyOf.flatMap((one, i) => (i ? [' or ', type(one)] : [type(one)]));
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === 'array') return ['list of ', type(schema.items)];
  return schema.type ?? 'anything';
}

function bounds(schema) {
  const names = { minLength: 'at least', maxLength: 'at most', minimum: 'from', maximum: 'to', minItems: 'at least', maxItems: 'at most' };
  const said = Object.entries(names).filter(([name]) => schema[name] !== undefined).map(([name, word]) => `${word} ${schema[name]}`);
  const many = schema.type === 'string' ? ' characters' : schema.type === 'array' ? ' entries' : '';
  return [said.length ? said.join(', ') + many : '', schema.default !== undefined ? `default ${JSON.stringify(schema.default)}` : '', schema.description ?? ''].filter(Boolean).join('; ');
}

function table(rows) {
  return h('div', { className: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Fields' }, h('table', { className: 'numbers' },
    h('tbody', {}, rows.map(([name, kind, note]) => h('tr', {}, h('th', { scope: 'row' }, h('code', {}, name)), h('td', { className: 'text' }, kind), h('td', { className: 'text' }, note))))));
}

function route(path, method, one) {
  const body = one.requestBody?.content['application/json']?.schema;
  const given = one.responses['200'] ?? one.responses['202'] ?? one.responses['204'];
  const answer = given?.content?.['application/json']?.schema;
  const parameters = (one.parameters ?? []).map((p) => [p.name, [type(p.schema), h('small', {}, ` in the ${p.in}`)], bounds({ ...p.schema, description: p.description })]);
  return h('section', { className: 'card' },
    h('h2', { className: 'path' }, h('code', {}, `${method.toUpperCase()} ${path}`)),
    h('p', {}, one.description ?? ''),
    h('p', { className: 'soft' }, body ? ['takes ', type(body), ', '] : '', 'gives ', answer ? type(answer) : Object.keys(given?.content ?? {}).join(', ') || 'nothing'),
    parameters.length ? table(parameters) : null);
}

function schema(name, one) {
  const rows = Object.entries(one.properties ?? {}).map(([field, own]) => [field, type(own), bounds(own)]);
  return h('section', { className: 'card', id: name }, h('h2', { className: 'path' }, h('code', {}, name)), one.description ? h('p', {}, one.description) : null, table(rows));
}

const found = await get('/api/openapi.json');
main.append(
  h('p', {}, found.info.description, ' As a document: ', h('a', { href: '/api/openapi.json' }, 'openapi.json'), '.'),
  h('pre', { className: 'card' }, `curl -s ${location.origin}/api/explain -H 'content-type: application/json' \\\n  -d '{"text": "a gripping film", "methods": ["lrp"]}'`),
  ...Object.entries(found.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, one]) => route(path, method, one))),
  h('h1', {}, 'What it takes and gives'),
  ...Object.entries(found.components.schemas).map(([name, one]) => schema(name, one)));
