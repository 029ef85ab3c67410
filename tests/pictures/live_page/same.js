// Checks that the page's compiler equals the native one. `same.js PIANOLA N` compiles every schedule with both, as it is and
// N times with other sizes, models and clusters, and compares all files, exit codes and errors, byte for byte. So it also
// tests that outputs do not depend on the machine: one is x86-64 with glibc, the other has 32-bit pointers and musl.
'use strict';
const { spawnSync } = require('child_process'), fs = require('fs'), path = require('path');
const create = require(path.resolve('build/page/pianola.js'));
const [native, tries] = [process.argv[2], Number(process.argv[3])];

function put(fs_, folder) {
  fs_.mkdir('/' + folder);
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    const name = folder + '/' + entry.name;
    if (entry.isDirectory()) put(fs_, name);
    else fs_.writeFile('/' + name, fs.readFileSync(name));
  }
}

async function inPage(module, args) {
  const files = {}, errors = [];
  const page = await create({
    instantiateWasm(imports, done) { WebAssembly.instantiate(module, imports).then(instance => done(instance)); return {}; },
    print() {}, printErr: line => errors.push(line), quit: (status, error) => { throw error; },
  });
  put(page.FS, 'schedules');
  let code;
  try {
    code = page.callMain(['compile', ...args, '-o', '/out']);
  } catch (error) {
    code = error.status === undefined ? String(error) : error.status;
  }
  try {
    for (const name of page.FS.readdir('/out')) if (name[0] !== '.') files[name] = Buffer.from(page.FS.readFile('/out/' + name));
  } catch { /* no output folder */ }
  return { code, errors: errors.join('\n').trim(), files };
}

const shown = { 'streams.txt': ['--format', 'streams'], 'timeline.tsv': ['--format', 'tsv'], 'timeline.txt': ['--ascii'],
  'report.json': ['--format', 'json'], 'view.json': ['--format', 'html'] };
const dataOf = html => Buffer.from(/<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html)[1].replaceAll('\\u003c', '<'));

function differ(mine, args) { // returns the first difference from the native program's output, or ''
  for (const [name, how] of Object.entries(shown)) {
    const other = spawnSync(native, ['show', ...args, ...how], { maxBuffer: 1 << 28 }), errors = String(other.stderr).trim();
    if (mine.code !== other.status || mine.errors !== errors)
      return `exit ${mine.code} instead of ${other.status}:\n${mine.errors}\ninstead of\n${errors}`;
    if (mine.code !== 0) return '';
    const wanted = name === 'view.json' ? dataOf(other.stdout) : other.stdout;
    if (!mine.files[name] || !mine.files[name].equals(wanted)) return name + ' differs';
  }
  return '';
}

let seed = 1;
const random = n => (seed = (seed * 48271) % 2147483647) % n; // Park & Miller 1988
const pick = list => list[random(list.length)];

(async () => {
  const module = await WebAssembly.compile(fs.readFileSync('build/page/pianola.wasm'));
  const named = folder => fs.readdirSync(folder).filter(n => n.endsWith('.lua') && !n.endsWith('.d.lua')).map(n => folder + '/' + n);
  const schedules = named('schedules'), models = named('schedules/models'), clusters = named('schedules/clusters');
  const cases = schedules.map(schedule => [schedule]);
  for (let i = 0; i < tries; i++) {
    const args = [pick(schedules)];
    if (random(2)) args.push('-D', 'workers=' + (2 + random(7)));
    if (random(2)) args.push('-D', 'batches=' + (1 + random(24)));
    if (random(3) === 0) args.push('--model', pick(models));
    if (random(2)) args.push('--cluster', pick(clusters));
    if (random(4) === 0) args.push('--recompute');
    cases.push(args);
  }
  let failed = 0, refused = 0;
  for (const args of cases) {
    const mine = await inPage(module, args), why = differ(mine, args);
    refused += mine.code !== 0;
    if (why) {
      failed++;
      console.log(`FAIL: compile ${args.join(' ')}: ${why}`);
    }
  }
  console.log(`both refused ${refused}\n${cases.length - failed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
})();
