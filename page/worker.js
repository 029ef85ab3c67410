// One run of the compiler: a fresh instance of the module, as a process is. First message: {module, scripts}. Then
// {id, files: {path: text}, args}; the answer is {id, code, stdout, stderr, files: {name: text of /out}, ms}. Where what is
// in sight comes first, the answer has `more`, and {id, rest: true, files} follows.
'use strict';
let module, scripts, ready;

function write(FS, path, text) {
  FS.mkdirTree('/' + path.slice(0, path.lastIndexOf('/')));
  FS.writeFile('/' + path, text);
}

const utf8 = new TextDecoder();
function read(FS, folder, into, prefix, known) {
  for (const name of FS.readdir(folder)) {
    if (name[0] === '.' || prefix + name in known) continue;
    const path = folder + '/' + name;
    if (FS.isDir(FS.stat(path).mode)) read(FS, path, into, prefix + name + '/', known);
    else into[prefix + name] = utf8.decode(FS.readFile(path));
  }
  return into;
}

// An instance that waits for its run: made while nobody does.
async function prepare() {
  const out = [], errors = [], page = { seen: null };
  const pianola = await createPianola({
    instantiateWasm(imports, done) { WebAssembly.instantiate(module, imports).then(done); return {}; },
    print: line => out.push(line), printErr: line => errors.push(line), quit: (status, error) => { throw error; },
    seen() { page.seen(); },
  });
  for (const [path, text] of Object.entries(scripts)) write(pianola.FS, path, text);
  return { pianola, out, errors, page };
}

async function run({ id, files, args }) {
  const start = performance.now(), { pianola, out, errors, page } = await ready;
  let first = null, code;
  const taken = known => (pianola.FS.analyzePath('/out').exists ? read(pianola.FS, '/out', {}, '', known) : {});
  const tell = answer => postMessage({ id, stdout: out.join('\n'), stderr: errors.join('\n'), ms: performance.now() - start, ...answer });
  page.seen = () => tell({ code: 0, files: first = taken({}), more: true });
  for (const [path, text] of Object.entries(files)) write(pianola.FS, path, text);
  try {
    code = pianola.callMain(args);
  } catch (error) {
    if (error.status === undefined) errors.push(`pianola: error: the page's compiler stopped: ${error.message || error}`);
    code = error.status === undefined ? 2 : error.status;
  }
  tell({ code, files: taken(first || {}), rest: first !== null });
  ready = prepare();
}

onmessage = ({ data }) => {
  if (data.module) {
    ({ module, scripts } = data);
    ready = prepare();
  } else run(data);
};
