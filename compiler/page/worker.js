// One run of the compiler, in a fresh instance of the module, like a process. The first message is {module, scripts}.
// Each later one is {id, files: {path: text}, args, first, look: {by, with}}, and the answer {id, code, stdout, stderr,
// files: {name: text of /out}, ms}. first: only what the page shows first is requested.
'use strict';
let module, scripts, ready;

function write(FS, path, text) {
  FS.mkdirTree('/' + path.slice(0, path.lastIndexOf('/')));
  FS.writeFile('/' + path, text);
}

const utf8 = new TextDecoder();
function read(FS, folder, into = {}, prefix = '') {
  for (const name of FS.readdir(folder)) {
    const path = folder + '/' + name;
    if (name[0] === '.') continue;
    if (FS.isDir(FS.stat(path).mode)) read(FS, path, into, prefix + name + '/');
    else into[prefix + name] = utf8.decode(FS.readFile(path));
  }
  return into;
}

// Creates an instance ahead of its run, while no one is waiting.
async function prepare() {
  const out = [], errors = [];
  const pianola = await createPianola({
    instantiateWasm(imports, done) { WebAssembly.instantiate(module, imports).then(done); return {}; },
    print: line => out.push(line), printErr: line => errors.push(line), quit: (status, error) => { throw error; },
  });
  for (const [path, text] of Object.entries(scripts)) write(pianola.FS, path, text);
  return { pianola, out, errors };
}

async function run({ id, files, args, first, look }) {
  const start = performance.now(), { pianola, out, errors } = await ready, { FS } = pianola;
  let code;
  pianola.first = first;
  pianola.look = look;
  for (const [path, text] of Object.entries(files)) write(FS, path, text);
  try {
    code = pianola.callMain(args);
  } catch (error) {
    if (error.status === undefined) errors.push(`pianola: error: the page's compiler stopped: ${error.message || error}`);
    code = error.status === undefined ? 2 : error.status;
  }
  postMessage({ id, code, stdout: out.join('\n'), stderr: errors.join('\n'), files: FS.analyzePath('/out').exists ? read(FS, '/out') : {},
    ms: performance.now() - start });
  ready = prepare();
}

onmessage = ({ data }) => {
  if (data.module) {
    ({ module, scripts } = data);
    ready = prepare();
  } else run(data);
};
