// How many layers the lines of a ledger belong to. Embeddings, a pooler or a classifier are no layers; a layer that all
// share (as ALBERT's) is one; encoder and decoder are counted apart.

const STACK = /^(.*?)([^.]*(?:layer|block|stage)[^.]*|h)\.\d+$/i;

export function counted(names) {
  const stacks = new Map();
  let others = 0;
  for (const name of names) {
    const found = STACK.exec(name);
    if (!found) { others += 1; continue; }
    const stack = `${found[1]}${found[2]}`;
    stacks.set(stack, (stacks.get(stack) ?? 0) + 1);
  }
  const said = [...stacks].map(([stack, count]) => {
    const side = stacks.size > 1 ? /encoder|decoder/i.exec(stack)?.[0].toLowerCase() ?? '' : '';
    const shared = /layer_groups$/.test(stack) ? 'shared ' : '';
    return `${count} ${side ? `${side} ` : ''}${shared}layer${count === 1 ? '' : 's'}`;
  });
  const more = others ? [`${others} other module${others === 1 ? '' : 's'}`] : [];
  return [...said, ...more].join(' and ');
}
