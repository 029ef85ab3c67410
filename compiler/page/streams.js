// The streams of all ranks as editable text. The proof runs on the current text; a counterexample is marked in the text
// and in the picture.

const LONG_STREAMS = 400000; // characters; longer streams are not shown, but can be downloaded

// Returns the lines that a counterexample names, as in "rank 0 lane send 1, line 11: SEND_F 0 1 to 1 waits…", or by
// their operation, as in "meets RECV_F 0 0 from 0 on rank 1".
function namedLines(why, lines) {
  const numbers = [...why.matchAll(/\bline (\d+)/g)].map(m => Number(m[1]));
  for (const [, what, rank] of why.matchAll(/ meets ([A-Z].*?) on rank (\d+)/g)) {
    const begin = lines.findIndex(l => l.startsWith(`rank ${rank} lane`)), at = lines.findIndex((l, i) => i > begin && l.startsWith(what + ' '));
    if (begin >= 0 && at >= 0) numbers.push(at + 1);
  }
  return numbers;
}

// Returns whether a title, "0F3: forward of stage 0, microbatch 3; rank 0; 1 to 2 units", belongs to a row of this
// rank. Equal ranks share a row, "; ranks 0, 8–11; ".
function ofRank(title, rank) {
  const m = title.match(/; ranks? ([\d, –]+);/);
  return m !== null && m[1].split(', ').map(run => run.split('–').map(Number)).some(([a, b = a]) => a <= rank && rank <= b);
}

// Returns a test for titles of the job "F 0 3" on a rank. Equal members of a team share a row, where "0.1F3" is 0F3.
function titleOfJob(job, rank) {
  const [, op, stage, batch] = job.match(/^([A-Z]) ([\d.]+)(?: ([\d.]+))?(?= |$)/) || [];
  const names = [stage, (stage || '').split('.')[0]].map(of => `${of}${op}${batch || ''}:`);
  return title => op !== undefined && names.some(name => title.startsWith(name)) && ofRank(title, rank);
}

// Returns how a line of a lane appears in a picture: {name, match, near, before}. match(title) tests for this job, or
// for the message that is sent or received. If it is not drawn, like a collective, near(title) tests for a job next to
// it: one that it waits for or, with `before`, one that waits for it.
function drawnAs(lines, number) {
  const line = lines[number - 1] || '', [, name] = line.match(/^([A-Z_]+ \S+)/) || [];
  if (!name) return null;
  let rank = -1;
  for (let i = number - 1; i >= 0 && rank < 0; i--) {
    const m = lines[i].match(/^rank (\d+)/);
    if (m) rank = Number(m[1]);
  }
  if (/^[A-Z] /.test(name)) return { name, match: titleOfJob(line, rank) };
  const tensor = line.match(/\bt\+?=(\S+)/), [, way, peer] = line.match(/ (to|from) (\d+)/) || [], [from, to] = way === 'to' ? [rank, peer] : [peer, rank];
  const match = title => Boolean(way && tensor) && title.startsWith(tensor[1] + ',') && title.includes(`from rank ${from} to rank ${to};`);
  const awaited = [...line.matchAll(/[(,] ?([A-Z] [\d.]+(?: [\d.]+)?)(?=[,)])/g)].map(m => m[1]).pop();
  const full = (line.match(/^[A-Z_]+ \S+(?: [\d.]+)?/) || [''])[0], waits = new RegExp(`^[A-Z] .*wait\\([^)]*${full.replace(/[.#]/g, '\\$&')}\\b`);
  let begin = number - 1, end = number; // the rank's lines
  while (begin > 0 && !lines[begin].startsWith(`rank ${rank} lane compute`)) begin--;
  while (end < lines.length && !(lines[end].startsWith('rank ') && !lines[end].startsWith(`rank ${rank} `))) end++;
  const waiting = awaited ? undefined : lines.slice(begin, end).find(l => waits.test(l));
  return { name, match, near: titleOfJob(awaited || waiting || '', rank), before: !awaited };
}

// say(how, text): sets the page's verdict
function makeStreams(view, say) {
  const $ = id => document.getElementById(id);
  let compiled = '', timer = 0, unseen = false;
  const editor = makeEditor($('program'), { label: 'Streams, in text form', colour: colourStreams, names: [], changed: () => {
    $('restore').hidden = editor.text === compiled;
    $('claim').textContent = 'proving';
    clearTimeout(timer);
    timer = setTimeout(prove, 60);
  } });

  const runner = makeRunner(({ code, stdout, stderr }) => {
    let verdict = {};
    try { verdict = JSON.parse(stdout); } catch { /* not JSON: stderr has the error */ }
    const why = code === 0 ? '' : verdict.why || stderr.trim();
    const edited = editor.text !== compiled;
    $('claim').className = code === 0 ? 'good' : 'bad';
    $('claim').textContent = code === 0 ? `${edited ? 'Edited; proved' : 'Proved'}: no order that the machines allow goes wrong` :
      code === 1 ? `Refuted: ${verdict.claim}` : 'Not readable';
    if (!document.body.classList.contains('stale'))
      say($('claim').className, code === 0 ? `Proved${edited ? ', as edited' : ''}: no race, no deadlock, every gradient complete` :
        code === 1 ? `Edited streams refuted: ${verdict.claim}` : 'Edited streams cannot be read');
    $('why').hidden = !why;
    $('why').textContent = why;
    $('claims').innerHTML = (verdict.claims || []).map(c => `<li class="${c.holds === null ? 'open' : c.holds ? 'good' : 'bad'}">${c.holds === null ? 'not decided' : c.holds ? 'holds' : 'refuted'} <b>${escapeHtml(c.claim)}</b> ${escapeHtml(c.says)}</li>`).join('');
    const lines = editor.text.split('\n');
    const numbers = code === 1 ? namedLines(why, lines) : (why.match(/streams\.txt:(\d+)/) || []).slice(1).map(Number);
    editor.mark(numbers.map(n => [n, '']));
    view.mark(code === 1 ? numbers.map(n => drawnAs(lines, n)).filter(Boolean) : []);
    if (code && numbers.length && document.activeElement !== editor.area) editor.go(numbers[0]);
  });

  function prove() {
    runner.run({ args: ['verify', 'streams.txt', '--json'], files: { 'streams.txt': editor.text } });
  }

  $('restore').addEventListener('click', () => {
    $('restore').hidden = true;
    editor.replace(compiled);
  });

  return {
    get edited() { return !unseen && !editor.area.disabled && editor.text !== compiled; },
    get text() { return editor.text; },
    show(text) { // shows compiled streams; drops edits of another program
      if (this.edited && text === compiled) return prove();
      compiled = text;
      const long = text.length > LONG_STREAMS;
      editor.area.disabled = long;
      $('program').hidden = long;
      $('restore').hidden = true;
      $('why').hidden = true;
      view.mark([]);
      if (long) {
        $('claim').className = '';
        $('claim').textContent = `${(text.length / 1e6).toFixed(1)} MB: too long to show; Download has them`;
        $('claims').replaceChildren();
        return;
      }
      unseen = true;
      $('claim').textContent = '';
      if (!$('streams').hidden) this.opened();
    },
    opened() { // renders only now
      if (editor.area.disabled) return;
      if (unseen) editor.show(compiled);
      unseen = false;
      prove();
    },
    editor,
  };
}
