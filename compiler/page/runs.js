// Runs of the compiler in workers. Each runner shows one thing, so its newest request wins. A newer request stops a run
// that has taken long, but lets a recent one finish, so that a dragged control shows intermediate states.

async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
}

const spares = { module: null, scripts: null, url: '', idle: [] }; // idle workers, at least one

function freshWorker() {
  const worker = new Worker(spares.url);
  worker.postMessage({ module: spares.module, scripts: spares.scripts });
  return worker;
}

function takeWorker() {
  const worker = spares.idle.pop() || freshWorker();
  if (spares.idle.length === 0) setTimeout(() => { if (spares.idle.length === 0) spares.idle.push(freshWorker()); }, 0);
  return worker;
}

async function startRuns() {
  const text = async packed => new TextDecoder().decode(await unpack(packed));
  const [module, glue, scripts] = await Promise.all([unpack(packed.module), text(packed.glue), text(packed.scripts)]);
  spares.module = await WebAssembly.compile(module);
  spares.scripts = JSON.parse(scripts);
  spares.url = URL.createObjectURL(new Blob([glue, packed.worker], { type: 'text/javascript' }));
  return spares.scripts;
}

const PATIENCE = 150; // ms that a run may take before a newer request stops it, and before the page says that it runs

// answered: called with (answer, request) when a run ends; running: called with whether a run takes long
function makeRunner(answered, running = () => {}) {
  let now = null, next = null, slow = 0, count = 0;

  function stop() {
    clearTimeout(slow);
    running(false);
    if (now) now.worker.terminate();
    now = null;
  }

  function begin(request) {
    const id = ++count, worker = takeWorker();
    now = { id, worker, since: performance.now() };
    slow = setTimeout(() => {
      running(true);
      if (next) overtake();
    }, PATIENCE);
    worker.onmessage = ({ data }) => {
      if (!now || id !== now.id) return;
      if (spares.idle.length < 2) spares.idle.push(worker);
      else worker.terminate();
      clearTimeout(slow);
      running(false);
      now = null;
      const waiting = next;
      next = null;
      if (waiting) begin(waiting);
      answered(data, request);
    };
    worker.onerror = event => {
      stop();
      answered({ id, code: 2, stdout: '', stderr: 'pianola: error: ' + event.message, files: {}, ms: 0 }, request);
    };
    worker.postMessage({ id, files: request.files || {}, args: request.args, first: request.first, look: request.look });
  }

  function overtake() {
    const request = next;
    next = null;
    stop();
    begin(request);
  }

  return {
    run(request) {
      if (!now) return begin(request);
      next = request;
      if (performance.now() - now.since >= PATIENCE) overtake();
    },
    cancel() {
      next = null;
      const was = now !== null;
      stop();
      return was;
    },
  };
}
