// The streams of all ranks, as text to change by hand: the proof runs on what is there, and what refutes it is marked, in
// the text and in the picture.

const LONG_STREAMS = 400000; // characters that a person reads and edits; longer ones can be downloaded

// In a counterexample, "rank 0 lane send 1, line 11: SEND_F 0 1 to 1 waits…": the lines that it names.
function namedLines(why) {
  return [...why.matchAll(/\bline (\d+)/g)].map(m => Number(m[1]));
}

// The titles of a picture that a line of a rank's lane is about: its job, and the message that it sends or takes.
function titlesOf(lines, number) {
  let rank = -1;
  for (let i = number - 1; i >= 0 && rank < 0; i--) {
    const m = (lines[i] || '').match(/^rank (\d+)/);
    if (m) rank = Number(m[1]);
  }
  const op = (lines[number - 1] || '').match(/^([A-Z]+)(?:_([A-Z]+))? (\d+) (\S+)/), tensor = (lines[number - 1] || '').match(/\bt\+?=(\S+)/);
  const peer = (lines[number - 1] || '').match(/ (to|from) (\d+)/);
  const [from, to] = peer && peer[1] === 'to' ? [rank, peer[2]] : peer ? [peer[2], rank] : [];
  return title =>
    (op && !op[2] && title.startsWith(`${op[3]}${op[1]}${op[4]}:`) && title.includes(`rank ${rank};`)) ||
    (peer && tensor && title.startsWith(tensor[1] + ',') && title.includes(`from rank ${from} to rank ${to};`));
}

// say(how, text): what stands in the page's verdict
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
    try { verdict = JSON.parse(stdout); } catch { /* unreadable: stderr says why */ }
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
    const numbers = code === 1 ? namedLines(why) : (why.match(/streams\.txt:(\d+)/) || []).slice(1).map(Number);
    editor.mark(numbers.map(n => [n, '']));
    const lines = editor.text.split('\n'), tests = numbers.map(n => titlesOf(lines, n));
    view.mark(code === 1 ? title => tests.some(test => test(title)) : null);
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
    show(text) { // what was compiled; edits of an older program are gone with it
      compiled = text;
      const long = text.length > LONG_STREAMS;
      editor.area.disabled = long;
      $('program').hidden = long;
      $('restore').hidden = true;
      $('why').hidden = true;
      view.mark(null);
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
    opened() { // drawn only then
      if (editor.area.disabled) return;
      if (unseen) editor.show(compiled);
      unseen = false;
      prove();
    },
    editor,
  };
}
