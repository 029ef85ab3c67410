// One run of the compiler: a fresh instance of the module, as a process is. First message: {module, scripts}. Then
// {id, files: {path: text}, args}; the answer is {id, code, stdout, stderr, files: {name: text of /out}, ms}.
'use strict';
let module, scripts;

function write(FS, path, text) {
  FS.mkdirTree('/' + path.slice(0, path.lastIndexOf('/')));
  FS.writeFile('/' + path, text);
}

function read(FS, folder, into, prefix) {
  for (const name of FS.readdir(folder)) {
    if (name[0] === '.') continue;
    const path = folder + '/' + name;
    if (FS.isDir(FS.stat(path).mode)) read(FS, path, into, prefix + name + '/');
    else into[prefix + name] = FS.readFile(path, { encoding: 'utf8' });
  }
  return into;
}

async function run({ id, files, args }) {
  const start = performance.now(), out = [], errors = [];
  const pianola = await createPianola({
    instantiateWasm(imports, done) { WebAssembly.instantiate(module, imports).then(done); return {}; },
    print: line => out.push(line), printErr: line => errors.push(line), quit: (status, error) => { throw error; },
  });
  for (const [path, text] of Object.entries({ ...scripts, ...files })) write(pianola.FS, path, text);
  let code;
  try {
    code = pianola.callMain(args);
  } catch (error) {
    if (error.status === undefined) errors.push(`pianola: error: the page's compiler stopped: ${error.message || error}`);
    code = error.status === undefined ? 2 : error.status;
  }
  const made = pianola.FS.analyzePath('/out').exists ? read(pianola.FS, '/out', {}, '') : {};
  postMessage({ id, code, stdout: out.join('\n'), stderr: errors.join('\n'), files: made, ms: performance.now() - start });
}

onmessage = ({ data }) => {
  if (data.module) ({ module, scripts } = data);
  else run(data);
};
