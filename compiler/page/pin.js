// Compares A, the pinned state, with B, the current one: in words, by where the time went, and on one time axis.

function makePin() {
  const $ = id => document.getElementById(id), view = makeView($('diff-picture'), { height: () => Math.max(420, 0.8 * innerHeight) });
  let a = null, b = null, waits = false; // waits: whether the next b becomes a
  const runner = makeRunner(({ code, stdout, stderr, files }) => {
    $('diff-text').textContent = code <= 1 && stdout ? stdout : stderr;
    const [, data] = (files['diff.html'] || '').match(/<script type="application\/json" id="data">(.*?)<\/script>/s) || [];
    if (data) view.show(readTimeline(data), true);
    else view.clear();
  });
  const folder = (name, files) => Object.fromEntries(['streams.txt', 'timeline.tsv', 'report.json', 'timeline.txt']
    .filter(f => files[f]).map(f => [`${name}/${f}`, files[f]]));

  function told() {
    $('pin').setAttribute('aria-pressed', String(a !== null));
    $('pin').textContent = a ? `A: ${a.name} ✕` : 'Pin A';
    $('pin').title = a ? 'let A go' : 'keep this as A; what you change from here on is B';
    differ();
  }

  function differ() {
    $('diff-hint').hidden = a !== null;
    $('diff-picture').hidden = $('diff-text').hidden = a === null;
    if (a === null || b === null || $('diff').hidden) return;
    const [from, to] = [`A_${a.name}`, `B_${b.name}`];
    runner.run({ args: ['diff', from, to, '--html', '/out/diff.html'],
      files: { ...folder(from, a.files), ...folder(to, b.files), 'out/.keep': '' } });
  }

  differ();
  return {
    toggle() { // pins the current state as A, or releases A
      const lets = a || waits;
      a = lets ? null : b;
      waits = !lets && !b;
      told();
      return !lets;
    },
    changed() { // there is a new state, whose files will follow
      b = null;
    },
    show(name, files) {
      b = { name, files };
      if (waits) a = b;
      waits = false;
      told();
    },
    opened: differ,
    view,
  };
}
