// The page: each change to the scripts or the controls starts a compile, and every part shows the results.

const $ = id => document.getElementById(id);
const IDLE = 120; // ms without a change before background work starts
const FIRST = 'schedules/1f1b.lua';

async function main() {
  const scripts = await startRuns();
  const folder = name => Object.keys(scripts).filter(p => p.startsWith(name) && p.lastIndexOf('/') === name.length - 1 && !p.endsWith('.d.lua'));
  const short = path => path.replace(/^.*\/|\.lua$/g, '');
  let good = null; // the last result without an error
  let set = {}, params = [], idle = 0, tried = '', mended = null; // set: {parameter or --option: value}, as on the command line

  function say(how, text) { // shows the verdict; how: good, bad or ''
    $('verdict').className = how;
    $('verdict').textContent = text;
  }

  function note(text) { // shows a message until the next change
    $('note').hidden = !text;
    $('note').textContent = text;
  }

  const view = makeView($('picture'), { lanes: true, changed: looked, height: () => Math.max(240, innerHeight * 0.55) });
  const streams = makeStreams(view, say), pin = makePin();
  const compare = makeCompare(folder('schedules/'), () => ({ path: mine.path.schedule, files: mine.files, flags: compareFlags() }), path => take('schedule', path));
  const controls = makeControls($('controls'), (name, text) => {
    set[name] = text;
    compile();
  });
  const mine = makeScripts(scripts, namesOf(scripts['schedules/pianola.d.lua']), compile);

  // Options of `show`: what to draw, and in which colours.
  const drawn = { '--color-by': ['op', 'mb', 'stage'], '--with': ['', 'lanes', 'sends', 'lanes,sends'] }, WITH = [0, 1, 8, 9];
  const chosen = name => Math.max(0, drawn[name].indexOf(set[name]));
  const look = () => ({ by: chosen('--color-by'), with: WITH[chosen('--with')] });
  const lookFlags = () => Object.keys(drawn).filter(name => chosen(name)).flatMap(name => [name, set[name]]);
  const showLook = () => view.chosen({ by: drawn['--color-by'][chosen('--color-by')], lanes: Boolean(chosen('--with') & 1), sends: Boolean(chosen('--with') & 2) });
  function looked({ by, lanes, sends }) { // the picture shows it already, except for lanes
    const before = look().with & 1;
    set['--color-by'] = by;
    set['--with'] = drawn['--with'][lanes + 2 * sends];
    for (const name of Object.keys(drawn)) if (!chosen(name)) delete set[name];
    if ((look().with & 1) !== before) compile();
    else changed();
  }

  function flags() {
    const given = ([name, value]) => (!name.startsWith('--') ? ['-D', `${name}=${value}`] : value === 'true' ? [name] : value === 'false' ? [] : [name, value]);
    const out = Object.entries(set).filter(([name]) => !(name in drawn)).flatMap(given);
    if (mine.path.model) out.push('--model', mine.path.model);
    if (mine.path.cluster) out.push('--cluster', mine.path.cluster);
    return out;
  }

  function compareFlags() { // sizes for all schedules, without parameters that only this script has
    const all = new Set(['workers', 'batches', 'tensor', ...params.filter(p => p.script !== 'schedule').map(p => p.name)]);
    return flags().filter((f, i, list) => (f === '-D' ? all.has(list[i + 1].split('=')[0]) : list[i - 1] === '-D' ? all.has(f.split('=')[0]) : true));
  }

  const quoteShell = word => (/^[\w./=,+-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`);
  // Returns the command, which names edited scripts as they will be named once downloaded.
  function commandLine() {
    const edited = Object.keys(mine.edits), own = path => (edited.some(kind => mine.path[kind] === path) ? path.replace(/^.*\//, '') : path);
    const line = ['pianola', 'show', ...[mine.path.schedule, ...flags(), ...lookFlags()].map(own)].map(quoteShell).join(' ');
    return edited.length ? `${line}  # with the edited ${edited.join(' and ')}: Download saves ${edited.length > 1 ? 'them' : 'it'}` : line;
  }

  const runner = makeRunner((answer, request) => {
    if (answer.code === 0) shown(answer, request);
    else refused(answer);
  }, running => {
    $('running').hidden = !running;
    document.body.classList.toggle('runs', running);
  });
  // Idle-time work on the parts that are not visible: the streams, and the files of A and B.
  const finisher = makeRunner((answer, request) => { if (answer.code === 0) whole(answer, request); });
  const saver = makeRunner(async ({ code, stderr, files: made }, request) => {
    if (code === 0) save(request.name, request.png ? await pngOf(made.file) : new Blob([made.file]));
    else note(stderr);
  });

  // The address contains the state, so that a reload or a bookmark restores it. While nothing has changed, it contains
  // none.
  let remembered = 0;
  async function remember() {
    const state = { path: mine.path, text: mine.edits, set }, fresh = mine.path.schedule === FIRST && !mine.path.model && !mine.path.cluster &&
      Object.keys({ ...state.text, ...set }).length === 0;
    const of = remembered, link = fresh ? '' : await linkOf(state);
    if (of !== remembered) return; // a newer change is pending
    try {
      history.replaceState(null, '', location.href.split('#')[0] + link);
    } catch { /* too many calls, or too long for this browser */ }
  }

  function changed() {
    clearTimeout(remembered);
    remembered = setTimeout(remember, 3 * IDLE);
    $('command').textContent = commandLine();
  }

  function compile() {
    clearTimeout(idle);
    note('');
    finisher.cancel();
    changed();
    runner.run({ args: ['compile', mine.path.schedule, ...flags(), '-o', '/out'], files: mine.files, name: short(mine.path.schedule), first: true, look: look() });
  }

  function figures(report, said) {
    const peak = Math.max(...report.ranks.map(r => r.peak_bytes));
    const rows = [['makespan', timeText(report.makespan, report.unit)], ['bubble', `${(100 * report.bubble).toFixed(1)} %`],
      ['largest memory', bytesText(peak)], ['live activations', Math.max(...report.ranks.map(r => r.peak_activations))],
      ['received', bytesText(report.ranks.reduce((sum, r) => sum + r.bytes_received, 0))],
      ['lower bound', timeText(report.lower_bound, report.unit)]];
    const beside = name => (name === 'bubble' && said ? ` <small>${escapeHtml(said)}</small>` : '');
    $('figures').innerHTML = rows.map(([name, value]) => `<div><dt>${name}</dt><dd>${value}${beside(name)}</dd></div>`).join('');
    return rows.map(([name, value]) => `${name} ${value}`).join(', ');
  }

  function shown(answer, request) {
    good = { name: request.name, request, whole: false };
    finish();
    pin.changed();
    tried = '';
    params = JSON.parse(answer.files['params.json']);
    const report = JSON.parse(answer.files['report.json']);
    document.body.classList.remove('stale');
    say('good', 'Proved: no race, no deadlock, every gradient complete');
    $('verdict').title = `compiled and proved in ${Math.round(answer.ms)} ms`;
    $('error').hidden = $('help').hidden = true;
    mine.mark(null);
    controls.show(params, mine.path.model !== '');
    const timeline = readTimeline(answer.files['view.json']), words = figures(report, timeline.note);
    view.show(timeline, true);
    $('caption').innerHTML = `<b>${escapeHtml(good.name)}</b>: ${report.workers} ranks, ${report.stages} stages, ${report.batches} microbatches; ${escapeHtml(words)}. <code>${escapeHtml(commandLine())}</code>`;
    $('report-text').textContent = answer.files['report.txt'];
    document.title = `${good.name} – Pianola`;
    compare.changed();
    document.body.dataset.shown = String(Number(document.body.dataset.shown || 0) + 1);
  }

  function finish() {
    const { first, ...all } = good.request;
    idle = setTimeout(() => finisher.run({ ...all, of: good }), IDLE);
  }

  function whole({ files }, { of }) {
    if (good !== of) return;
    good.whole = true;
    streams.show(files['streams.txt']);
    pin.show(of.name, files);
    document.body.dataset.whole = document.body.dataset.shown;
  }

  function refused({ code, stderr }) {
    if (good && !good.whole) finish(); // the last picture stays
    const stranger = stderr.match(/-D (\w+)=[^:]*: no script has a parameter/);
    if (stranger && stranger[1] in set && tried !== stranger[1]) { // a parameter of an earlier script
      tried = stranger[1];
      delete set[stranger[1]];
      return compile();
    }
    document.body.classList.add('stale');
    const at = stderr.match(/^(.*?):(\d+): error: ([^\n]*)/m), [, first = ''] = stderr.match(/error: (?:\S+\.lua: )?([^:;\n]*)/) || [], kind = mine.mark(at && { file: at[1], line: Number(at[2]), text: at[3] });
    say('bad', code === 1 ? 'Not proved' : kind ? `Error in line ${at[2]}${kind === 'schedule' ? '' : ` of the ${kind}`}` : `Error: ${first}`);
    $('verdict').title = '';
    help(kind, at, stderr);
    $('error').hidden = false;
    $('error').textContent = stderr.trim();
    document.body.dataset.failed = String(Number(document.body.dataset.failed || 0) + 1);
  }

  // Offers fixes for the error: a jump to its line and, if the message names a value that is missing, setting that
  // parameter.
  function help(kind, at, stderr) {
    const [, name, value] = stderr.match(/: (\w+) = ([\d.e+-]+)$/m) || [];
    const declared = name && Object.entries(mine.files).some(([, text]) => new RegExp(`\\bparams\\s*\\{[^}]*\\b${name}\\s*=`).test(text));
    mended = declared ? [name, value] : null;
    $('mend').hidden = !declared;
    if (declared) $('mend').textContent = `Set ${name} = ${value}`;
    $('go').hidden = !kind;
    if (kind) $('go').textContent = `Go to line ${at[2]}`;
    $('go').onclick = () => mine.go(kind, Number(at[2]));
    $('help').hidden = !kind && !declared;
  }

  function take(kind, path) { // opens a script from the list; sizes that every schedule has stay set
    const lost = kind === 'schedule' ? name => !['workers', 'batches'].includes(name) : () => true;
    for (const p of params) if (p.script === kind && lost(p.name)) delete set[p.name];
    $(kind).value = path;
    mine.take(kind, path);
  }

  async function open(fragment) {
    const given = fragment.length > 1 ? await stateOf(fragment) : null;
    let lacks = fragment.length > 1 && !given ? 'This link holds no schedule that can be read: it may have been cut.' : '';
    const to = { schedule: FIRST, model: '', cluster: '', ...(given && given.path) }, text = given ? given.text : {};
    for (const kind of kinds) // a script that this page lacks must come with its text
      if (to[kind] && !(to[kind] in scripts) && text[kind] === undefined) {
        lacks += `This page has no ${to[kind]}, which the link names. `;
        to[kind] = kind === 'schedule' ? FIRST : '';
      }
    set = given ? given.set : {};
    for (const kind of kinds) $(kind).value = to[kind];
    showLook();
    mine.open(to, text);
    compile();
    note(lacks);
  }

  function saveScript(kind) {
    const path = mine.path[kind];
    if (path) save(path.replace(/^.*\//, ''), new Blob([mine.files[path]]));
    else note(`There is no ${kind} to download: pick one above.`);
  }

  const tabs = makeTabs($('tabs'), tab => {
    document.querySelector('figure').hidden = tab.id === 'tab-diff' && !$('diff-picture').hidden; // it has its own
    const part = { streams, diff: pin, compare }[tab.getAttribute('aria-controls')];
    if (part) part.opened();
  });

  for (const path of folder('schedules/')) {
    const first = scripts[path].match(/^-- ([^\n]*)/);
    $('schedule').append(Object.assign(new Option(short(path), path), { title: first ? first[1] : '' }));
  }
  $('model').append(new Option('unit costs', ''), ...folder('schedules/models/').map(p => new Option(short(p), p)));
  $('cluster').append(new Option('free links', ''), ...folder('schedules/clusters/').map(p => new Option(short(p), p)));
  for (const kind of kinds) $(kind).addEventListener('change', () => take(kind, $(kind).value));
  $('pin').addEventListener('click', () => tabs.open($(pin.toggle() ? 'tab-diff' : 'tab-report')));
  $('mend').addEventListener('click', () => {
    const [name, value] = mended;
    set[name] = value;
    compile();
    $('verdict').focus(); // since the button disappears
  });
  $('cancel').addEventListener('click', () => {
    if (!runner.cancel()) return;
    say('', 'Cancelled');
    if (good && !good.whole) finish();
    document.body.classList.add('stale');
  });
  $('share').addEventListener('click', async () => {
    const link = await linkOf({ path: mine.path, text: mine.edits, set });
    history.replaceState(null, '', link);
    $('share').textContent = 'Link in the address bar';
    try {
      await navigator.clipboard.writeText(location.href);
      $('share').textContent = 'Link copied';
    } catch { /* the link is in the address bar */ }
    setTimeout(() => { $('share').textContent = 'Share'; }, 2500);
  });
  addEventListener('hashchange', () => open(location.hash));
  for (const [name] of downloads) $('download').append(new Option(name, name));
  $('download').addEventListener('change', () => {
    const chosen = downloads.find(([name]) => name === $('download').value);
    $('download').value = '';
    if (!chosen || !good) return;
    const [, end, from] = chosen, name = good.name + end;
    if (from.script) saveScript(from.script);
    else if (from.format === 'streams' && streams.edited) save(name, new Blob([streams.text]));
    else saver.run({ name, png: from.png, args: ['show', mine.path.schedule, ...flags(), ...(['svg', 'html'].includes(from.format) ? lookFlags() : []), '--format', from.format, '-o', '/out/file'], files: { ...mine.files, 'out/.keep': '' } });
  });
  const theme = () => { document.documentElement.dataset.theme = $('theme').value; };
  $('theme').addEventListener('change', () => {
    theme();
    try { localStorage.setItem('pianola-theme', $('theme').value); } catch { /* storage is disabled */ }
  });
  try {
    $('theme').value = localStorage.getItem('pianola-theme') || '';
    theme();
  } catch { /* storage is disabled */ }
  makeSplit($('split'), document.querySelector('main'));
  await open(location.hash);
}

main().catch(error => {
  $('verdict').className = 'bad';
  $('verdict').textContent = `This browser cannot run the page: ${error.message}. It needs WebAssembly with exceptions: Chrome 95, Firefox 113, Safari 16.4.`;
  console.error(error);
});
