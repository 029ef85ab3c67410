// The page: what the user chose is `state`; each change of it compiles, and what comes back is shown everywhere.

const $ = id => document.getElementById(id);
const state = { schedule: 'schedules/1f1b.lua', model: '', cluster: '', set: {} }; // the script's text is the editor's

async function main() {
  const scripts = await startRuns();
  const folder = name => Object.keys(scripts).filter(p => p.startsWith(name) && p.lastIndexOf('/') === name.length - 1 && !p.endsWith('.d.lua'));
  const short = path => path.replace(/^.*\/|\.lua$/g, '');
  const known = namesOf(scripts['schedules/pianola.d.lua']), functions = new Set(known.filter(n => /\(/.test(n.detail)).map(n => n.name));
  let good = null; // the last answer without an error
  let params = [], idle = 0, tried = '';

  function say(how, text) { // the verdict; how: good, bad or neither
    $('verdict').className = how;
    $('verdict').textContent = text;
  }

  const view = makeView($('picture'), $('info'), $('scroll'), () => Math.max(220, innerHeight * 0.62));
  const streams = makeStreams(view, say), pin = makePin();
  const compare = makeCompare(folder('schedules/'), () => ({ path: state.schedule, text: editor.text, flags: compareFlags() }));
  const controls = makeControls($('controls'), (name, text) => {
    state.set[name] = text;
    compile();
  });
  const editor = makeEditor($('script'), { label: 'Schedule script, in Lua', colour: text => colourLua(text, functions), names: known, changed: compile });

  function flags() {
    const out = Object.entries(state.set).flatMap(([name, value]) => ['-D', `${name}=${value}`]);
    if (state.model) out.push('--model', state.model);
    if (state.cluster) out.push('--cluster', state.cluster);
    return out;
  }

  function compareFlags() { // sizes for all; what only this script has as a parameter is its own
    const all = new Set(['workers', 'batches', 'tensor', ...params.filter(p => p.script !== 'schedule').map(p => p.name)]);
    return flags().filter((f, i, list) => (f === '-D' ? all.has(list[i + 1].split('=')[0]) : list[i - 1] === '-D' ? all.has(f.split('=')[0]) : true));
  }

  const quoteShell = word => (/^[\w./=,+-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`);
  const commandLine = () => ['pianola', 'show', state.schedule, ...flags()].map(quoteShell).join(' ');
  const files = () => ({ [state.schedule]: editor.text });

  const runner = makeRunner((answer, request) => {
    if (answer.code === 0) shown(answer, request);
    else refused(answer);
  }, running => {
    $('running').hidden = !running;
    document.body.classList.toggle('runs', running);
  }, whole);
  // What operations need, for hovering: drawn again, when there is time.
  const explainer = makeRunner(({ files: made }, request) => {
    if (good && request.of === good && made['page.html']) view.show(made['page.html'], true);
  });
  const saver = makeRunner(async ({ code, stderr, files: made }, request) => {
    if (code === 0) save(request.name, new Blob([Object.values(made)[0]]));
    else $('info').textContent = stderr;
  });

  function compile() {
    clearTimeout(idle);
    explainer.cancel();
    $('command').textContent = commandLine();
    runner.run({ args: ['compile', state.schedule, ...flags(), '-o', '/out'], files: files(), name: short(state.schedule) });
  }

  function figures(report) {
    const peak = Math.max(...report.ranks.map(r => r.peak_bytes));
    const rows = [['makespan', timeText(report.makespan, report.unit)], ['bubble', `${(100 * report.bubble).toFixed(1)} %`],
      ['largest memory', bytesText(peak)], ['live activations', Math.max(...report.ranks.map(r => r.peak_activations))],
      ['received', bytesText(report.ranks.reduce((sum, r) => sum + r.bytes_received, 0))],
      ['lower bound', timeText(report.lower_bound, report.unit)]];
    $('figures').innerHTML = rows.map(([name, value]) => `<div><dt>${name}</dt><dd>${value}</dd></div>`).join('');
    return rows.map(([name, value]) => `${name} ${value}`).join(', ');
  }

  function shown(answer, request) {
    good = request.of = { ...answer, name: request.name };
    good.whole = new Promise(resolve => { request.resolve = resolve; });
    tried = '';
    params = JSON.parse(answer.files['params.json']);
    const report = JSON.parse(answer.files['report.json']);
    document.body.classList.remove('stale');
    say('good', 'Proved: no race, no deadlock, every gradient complete');
    $('verdict').title = `compiled and proved in ${Math.round(answer.ms)} ms`;
    $('error').hidden = true;
    editor.mark([]);
    controls.show(params, state.model !== '');
    view.show(answer.files['timeline.svg'], true);
    const words = figures(report);
    $('caption').innerHTML = `<b>${escapeHtml(good.name)}</b>: ${report.workers} ranks, ${report.stages} stages, ${report.batches} microbatches; ${escapeHtml(words)}. <code>${escapeHtml(commandLine())}</code>`;
    $('report-text').textContent = answer.files['report.txt'];
    document.title = `${good.name} – Pianola`;
    compare.changed();
    document.body.dataset.shown = String(Number(document.body.dataset.shown || 0) + 1);
  }

  // What is not in sight at once: the streams, and what A and B and downloads are made of.
  function whole(answer, request) {
    const of = request.of;
    Object.assign(of.files, answer.files);
    request.resolve();
    if (good !== of) return;
    streams.show(of.files['streams.txt']);
    pin.show(of.name, of.files);
    document.body.dataset.whole = document.body.dataset.shown;
    if (of.files['timeline.svg'].length < 100 * MANY)
      idle = setTimeout(() => explainer.run({ of, args: [...request.args.slice(0, -2).map((a, i) => (i ? a : 'show')), '--format', 'html', '-o', '/out/page.html'], files: { ...request.files, 'out/.keep': '' } }), 250);
  }

  function refused({ code, stderr }) {
    const stranger = stderr.match(/-D (\w+)=[^:]*: no script has a parameter/);
    if (stranger && stranger[1] in state.set && tried !== stranger[1]) { // a parameter that the script had before
      tried = stranger[1];
      delete state.set[stranger[1]];
      return compile();
    }
    document.body.classList.add('stale');
    const at = stderr.match(/^(.*?):(\d+): error: ([^\n]*)/m), mine = at && (at[1] === state.schedule || state.schedule.endsWith('/' + at[1]));
    say('bad', code === 1 ? 'Not proved' : mine ? `Error in line ${at[2]}` : 'Error');
    $('verdict').title = '';
    $('error').hidden = false;
    $('error').textContent = stderr.trim();
    editor.mark(mine ? [[Number(at[2]), at[3]]] : []);
    document.body.dataset.failed = String(Number(document.body.dataset.failed || 0) + 1);
  }

  function take(path) { // a schedule from the list, in the editor; the sizes that it knows, too, stay
    state.schedule = path;
    const keep = new Set(['workers', 'batches', ...params.filter(p => p.script !== 'schedule').map(p => p.name)]);
    for (const name of Object.keys(state.set)) if (!keep.has(name)) delete state.set[name];
    $('schedule').value = path;
    editor.replace(scripts[path]); // an edit, so it compiles
  }

  function takeOther(kind, path) {
    state[kind] = path;
    for (const p of params) if (p.script === kind) delete state.set[p.name];
    compile();
  }

  async function open(fragment) {
    const given = fragment.length > 1 ? await stateOf(fragment) : null;
    if (fragment.length > 1 && !given) $('info').textContent = 'This link holds no schedule that can be read.';
    if (given) {
      Object.assign(state, { schedule: given.schedule, set: given.set, model: given.model in scripts ? given.model : '', cluster: given.cluster in scripts ? given.cluster : '' });
      if (!(state.schedule in scripts) && given.text === undefined) state.schedule = 'schedules/1f1b.lua';
    }
    $('schedule').value = state.schedule;
    $('model').value = state.model;
    $('cluster').value = state.cluster;
    editor.show(given && given.text !== undefined ? given.text : scripts[state.schedule]);
    compile();
  }

  function openTab(tab) {
    for (const other of $('tabs').children) {
      const on = other === tab;
      other.setAttribute('aria-selected', String(on));
      other.tabIndex = on ? 0 : -1;
      $(other.getAttribute('aria-controls')).hidden = !on;
    }
    document.querySelector('figure').hidden = tab.id === 'tab-diff' && !$('diff-picture').hidden; // A and B has both
    const part = { streams, diff: pin, compare }[tab.getAttribute('aria-controls')];
    if (part) part.opened();
  }

  for (const path of folder('schedules/')) {
    const first = scripts[path].match(/^-- ([^\n]*)/);
    $('schedule').append(Object.assign(new Option(short(path), path), { title: first ? first[1] : '' }));
  }
  $('model').append(new Option('unit costs', ''), ...folder('schedules/models/').map(p => new Option(short(p), p)));
  $('cluster').append(new Option('free links', ''), ...folder('schedules/clusters/').map(p => new Option(short(p), p)));
  $('schedule').addEventListener('change', () => take($('schedule').value));
  $('model').addEventListener('change', () => takeOther('model', $('model').value));
  $('cluster').addEventListener('change', () => takeOther('cluster', $('cluster').value));
  $('pin').addEventListener('click', () => openTab($(pin.toggle() ? 'tab-diff' : 'tab-report')));
  $('cancel').addEventListener('click', () => {
    if (!runner.cancel()) return;
    say('', 'Cancelled');
    document.body.classList.add('stale');
  });
  $('share').addEventListener('click', async () => {
    const link = await linkOf({ ...state, text: editor.text === scripts[state.schedule] ? undefined : editor.text });
    history.replaceState(null, '', link);
    $('share').textContent = 'Link in the address bar';
    try {
      await navigator.clipboard.writeText(location.href);
      $('share').textContent = 'Link copied';
    } catch { /* the address bar has it */ }
    setTimeout(() => { $('share').textContent = 'Share'; }, 2500);
  });
  addEventListener('hashchange', () => open(location.hash));
  for (const [name] of downloads) $('download').append(new Option(name, name));
  $('download').addEventListener('change', async () => {
    const chosen = downloads.find(([name]) => name === $('download').value);
    $('download').value = '';
    if (!chosen || !good) return;
    const [, end, from] = chosen, name = good.name + end;
    if (from.script) save(name, new Blob([editor.text]));
    else if (from.png) save(name, await pngOf(good.files[from.file]));
    else if (from.file) { // it may be on its way
      const of = good;
      await of.whole;
      save(name, new Blob([of.files[from.file]]));
    } else saver.run({ name, args: ['show', state.schedule, ...flags(), '--format', from.format, '-o', '/out/file'], files: { ...files(), 'out/.keep': '' } });
  });
  $('theme').addEventListener('change', () => { document.documentElement.dataset.theme = $('theme').value; });
  $('tabs').addEventListener('click', event => { if (event.target.role === 'tab') openTab(event.target); });
  $('tabs').addEventListener('keydown', event => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key], tabs = [...$('tabs').children];
    if (!by) return;
    const tab = tabs[(tabs.indexOf(document.activeElement) + by + tabs.length) % tabs.length];
    tab.focus();
    openTab(tab);
  });
  openTab($('tab-report'));
  await open(location.hash);
}

main().catch(error => {
  $('verdict').className = 'bad';
  $('verdict').textContent = `This browser cannot run the page: ${error.message}. It needs WebAssembly with exceptions: Chrome 95, Firefox 113, Safari 16.4.`;
  console.error(error);
});
