// Requests to our own server: each can be cancelled, says its place while it waits, and comes again when told to.

const LOOK = 350; // ms between two looks at the place in the line
const PATIENCE = 150; // times that a busy server or a model that is being read is asked again

class Problem extends Error {
  constructor(kind, message, status) {
    super(message);
    this.kind = kind;
    this.status = status;
  }
}

const name = () => [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, '0')).join('');
const pause = (ms, signal) => new Promise((go, stop) => {
  const timer = setTimeout(go, ms);
  signal?.addEventListener('abort', () => { clearTimeout(timer); stop(signal.reason); }, { once: true });
});

const AWAY = 'The server does not answer: it was stopped, or the connection is lost. Start it again with “headwater app”; this page goes on from here.';

// `fetch`, whose failure is a sentence. What was cancelled stays cancelled.
async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (options?.signal?.aborted || error.name === 'AbortError') throw error;
    throw new Problem('away', AWAY);
  }
}

async function problem(response) {
  try {
    const found = await response.json();
    if (found.message) return new Problem(found.error, found.message, response.status);
    const first = found.detail?.[0];
    return new Problem('refused', first ? `${first.loc?.slice(1).join(' ')}: ${first.msg}` : 'The server refused this, and did not say why.', response.status);
  } catch {
    return new Problem('server', 'The server failed at this; what it printed in its terminal says why.', response.status);
  }
}

async function once(path, body, signal, onPlace) {
  const job = name();
  let waiting = true;
  const watch = async () => {
    while (waiting) {
      await pause(LOOK, signal);
      if (!waiting) return;
      const found = await fetch(`/api/jobs/${job}`, { signal });
      if (found.ok && waiting) onPlace?.((await found.json()).place);
    }
  };
  watch().catch(() => {});
  try {
    const response = await reach(path, {
      method: 'POST',
      signal,
      headers: { 'content-type': 'application/json', 'X-Headwater-Job': job },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw await problem(response);
    return response;
  } finally {
    waiting = false;
  }
}

async function asked(path, body, { signal, onPlace, onWait } = {}) {
  for (let turn = 0; ; turn += 1) {
    try {
      return await once(path, body, signal, onPlace);
    } catch (error) {
      if (!(error instanceof Problem) || !['busy', 'loading'].includes(error.kind) || turn >= PATIENCE) throw error;
      onWait?.(error.message);
      await pause(1000, signal);
    }
  }
}

export const post = async (path, body, options) => (await asked(path, body, options)).json();
export const file = async (path, body, options) => (await asked(path, body, options)).blob();

export async function fetched(path) {
  const response = await reach(path);
  if (!response.ok) throw await problem(response);
  return response.blob();
}

export async function get(path) {
  const response = await reach(path);
  if (!response.ok) throw await problem(response);
  return response.json();
}

// The model of a kind, read where it has not been; waits until it is there.
export async function ready(kind, { signal, onWait, name: chosen } = {}) {
  for (;;) {
    const found = (await get('/api/about')).models.find((model) => model.kind === kind && (!chosen || model.name === chosen));
    if (found.state === 'ready') return found;
    if (found.state === 'absent' || found.state === 'failed') throw new Problem('absent', found.hint);
    if (found.state === 'idle') await reach(`/api/models/${kind}?name=${encodeURIComponent(found.name)}`, { method: 'POST', signal });
    onWait?.(`${found.name} is being read, once …`);
    await pause(LOOK, signal);
  }
}

// One question at a time: a new one cancels the one before. `status` says how it stands.
export class Latest {
  constructor(status) {
    this.status = status;
  }

  async run(act) {
    this.stop();
    const control = new AbortController();
    this.control = control;
    this.status.working(() => { control.abort(); this.status.say('cancelled'); });
    const started = performance.now();
    try {
      const found = await act({
        signal: control.signal,
        onPlace: (place) => { if (this.control === control) this.status.place(place); },
        onWait: (said) => { if (this.control === control) this.status.wait(said); },
      });
      if (this.control !== control) return undefined;
      this.control = undefined;
      this.status.done(Math.round(performance.now() - started));
      return found;
    } catch (error) {
      if (this.control !== control || control.signal.aborted) return undefined;
      this.control = undefined;
      this.status.fail(error.message);
      this.failed?.(error.message);
      return undefined;
    }
  }

  stop() {
    this.control?.abort();
    this.control = undefined;
  }
}
