// The picture in a page: which time is visible, what is selected and found, and when to paint.

const SLICE = 6; // milliseconds of preparation between frames
const colourNames = ['paper', 'ink', 'faint', 'line', 'memory', 'accent', 'alarm', 'idle'];
const printed = { paper: '#ffffff', ink: '#000000', faint: '#444444', line: '#cccccc', memory: '#b8bec6', accent: '#0062a3', alarm: '#b3261e', idle: '#e9ecef' };

function inkOf(host, printing) { // the page's colours
  const style = getComputedStyle(host), css = Object.fromEntries(colourNames.map(name => [name, printing ? printed[name] : style.getPropertyValue(`--${name}`).trim()]));
  const long = hex => (hex.length === 4 ? `#${[...hex.slice(1)].map(c => c + c).join('')}` : hex);
  return { css, paper: rgbOf(long(css.paper)), idle: rgbOf(long(css.idle)) };
}

// options: { height(): the most CSS pixels of the window; changed({by, sends, lanes}): the user chose another look;
// lanes: whether `changed` can bring lanes; global: whether keys work everywhere }
function makeView(host, options) {
  const parts = makeParts(host), { stage, rows, map } = parts, c = rows.getContext('2d', { alpha: false }), m = map.getContext('2d', { alpha: false }), frames = makeFrames(c);
  const look = { by: 'op', sends: false, lanes: false, memory: null, tall: false, unfold: false };
  let f = null, asked = 0, preparing = 0, mapped = '', fixed = false, marks = [], printing = null;

  // ---- painting ----

  const dpr = () => Math.min(2, printing ? 2 : devicePixelRatio || 1);

  function sized(canvas, width, height) { // sets a canvas's size; returns whether it changed
    const w = Math.max(1, Math.round(width * f.dpr)), h = Math.max(1, Math.round(height * f.dpr));
    canvas.style.height = `${height}px`;
    if (canvas.width === w && canvas.height === h) return false;
    Object.assign(canvas, { width: w, height: h });
    return true;
  }

  function ask() {
    if (!asked && f) asked = requestAnimationFrame(() => paint());
  }

  function paint() {
    asked = 0;
    if (!f || f.width < 1) return;
    const begin = performance.now();
    sized(rows, f.width, f.layout.height);
    frames.paint(f);
    paintOverview();
    host.dataset.frame = (performance.now() - begin).toFixed(1);
    if (!preparing) preparing = setTimeout(prepare);
  }

  function prepare() { // gets ready for fast frames, a little at a time
    preparing = 0;
    if (f && !frames.prepare(f, SLICE)) preparing = setTimeout(prepare);
  }

  function paintOverview() {
    const height = 34, width = plotWidth(f), key = [f.width, f.dpr, f.ink.css.paper, look.by, look.unfold].join();
    if (sized(map, width, height) || mapped !== key) {
      Object.assign(map.style, { marginLeft: `${f.layout.left}px`, width: `${width}px` });
      Object.assign(parts.view.style, { bottom: '0px', height: `${height}px` });
      paintMap(m, f, map.width, map.height);
      mapped = key;
    }
    const share = t => (t / Math.max(1, f.timeline.end)) * width;
    Object.assign(parts.view.style, { left: `${f.layout.left + share(f.from)}px`, width: `${Math.max(3, share(f.to) - share(f.from))}px` });
  }

  function recolour() {
    if (!f) return;
    f.ink = inkOf(host, printing);
    f.mixers = [makeMixer(f.timeline, paletteOf(f.timeline, look.by, f.ink.paper))];
    if (f.timeline.panels > 1) f.mixers.push(makeMixer(f.timeline, shiftPalette(f.timeline)));
    explainColours();
    mapped = '';
    frames.forget();
    ask();
  }

  function explainColours() {
    if (f.ink) parts.legend.innerHTML = legendHtml(f, look.by);
  }

  function arrange() { // places rows for the current size
    if (!f) return;
    f.width = stage.clientWidth;
    f.dpr = dpr();
    f.layout = layoutOf(f.timeline, Math.max(140, Math.floor(printing ? 560 : options.height())), look);
    f.layout.left = marginOf(c, f);
    scroll(f.y);
    parts.memory.checked = f.layout.entries.some(e => e.memory);
    explainColours();
    mapped = '';
    frames.forget();
    ask();
  }

  // ---- moving ----

  function see(from, to) { // shows these times, as closely as the timeline allows
    const end = Math.max(1, f.timeline.end), w = Math.max(Math.min(end, 4), Math.min(to - from, end)), a = Math.max(0, Math.min(from, end - w));
    fixed = w < end;
    Object.assign(f, { from: a, to: a + w });
    if (parts.table.open) listSoon();
    ask();
  }

  function zoom(x, by) { // x: keeps its time in place; null: the middle
    const t = x === null ? (f.from + f.to) / 2 : timeAt(f, Math.max(f.layout.left, x)), w = Math.max(Math.min(f.timeline.end, 4), (f.to - f.from) * by) / (f.to - f.from);
    see(t - (t - f.from) * w, t + (f.to - t) * w);
  }

  function scroll(y) { // shows the rows from this height on, as far as there are rows
    f.y = Math.round(Math.max(0, Math.min(y, f.layout.bottom - f.layout.height + RULER)) * f.dpr) / f.dpr; // whole pixels
  }

  function pan(dx, dy) {
    scroll(f.y + dy);
    const t = (dx / plotWidth(f)) * (f.to - f.from);
    see(f.from + t, f.to + t);
  }

  function reveal(i) { // scrolls an operation into view
    const { start, end } = f.timeline.ops, w = f.to - f.from, [b] = boxesOf(f, i), wide = (plotWidth(f) * (end[i] - start[i])) / 24;
    const out = start[i] < f.from || end[i] > f.to;
    if (out || wide < w / 8) see((start[i] + end[i]) / 2 - Math.min(w, wide * 4) / 2, (start[i] + end[i]) / 2 + Math.min(w, wide * 4) / 2);
    if (b.y < RULER || b.y + b.h > f.layout.height) scroll(f.y + b.y - f.layout.height / 2);
  }

  function say(text) {
    if (parts.info.textContent !== text) parts.info.textContent = text;
  }

  let pinned = -1;
  function light(i, entry) { // highlights operation i without selecting it; -1: highlights the selection
    if (i === f.place.op) return;
    f.place = { ...(i >= 0 ? placeOf(f, i) : nothing()), ...marked() };
    if (i >= 0) say(explain(f, i, entry));
    ask();
  }

  function select(i, entry) {
    pinned = i;
    f.range = i >= 0 ? null : f.range;
    light(i, entry);
    if (i < 0) say(f.range ? rangeText(f.timeline, ...f.range) : hint());
  }

  // ---- marks ----

  function marked() {
    const bad = [], flags = [];
    for (const mark of marks) {
      bad.push(...mark.found);
      if (mark.found.length === 0 && mark.beside >= 0) flags.push({ op: mark.beside, name: mark.name, before: mark.before });
    }
    return { bad, flags };
  }

  function mark(list) { // finds what each mark names, by the titles of operations, and of messages and their receivers
    marks = list.map(mark => ({ ...mark, found: [], beside: -1 }));
    if (!f) return;
    const { timeline } = f, needs = list.length ? needsOf(timeline) : null;
    for (let i = 0; list.length && i < timeline.n; i++) {
      const title = titleOf(timeline, i), brought = [];
      for (let j = needs.at[i]; j < needs.at[i + 1]; j++) if (needs.tensor[j] >= 0) brought.push(messageTitle(timeline, j));
      for (const one of marks) {
        if (one.match(title) || brought.some(one.match)) one.found.push(i);
        if (one.beside < 0 && one.near && one.near(title)) one.beside = i;
      }
    }
    f.place = { ...f.place, ...marked() };
    const at = [...f.place.bad, ...f.place.flags.map(flag => flag.op)];
    if (at.length && !at.some(i => timeline.ops.start[i] >= f.from && timeline.ops.start[i] < f.to)) {
      const first = Math.min(...at.map(i => timeline.ops.start[i])), w = f.to - f.from;
      see(first - w / 3, first + (2 * w) / 3);
    }
    ask();
  }

  // ---- finding ----

  function find(text) { // selects the first operation of this name after the selected one; returns whether there is one
    const { timeline } = f, wanted = text.trim().toUpperCase(), rank = wanted.match(/^RANK (\d+)$/) || wanted.match(/^R(\d+)$/);
    if (!wanted) return false;
    if (rank) return findRank(Number(rank[1]));
    const names = i => [nameOf(timeline, i), timeline.kinds[kindOf(timeline, i)][0] + batchText(timeline, i)].map(name => name.toUpperCase());
    for (let k = 1; k <= timeline.n; k++) {
      const i = (Math.max(-1, pinned) + k) % timeline.n, [full, short] = names(i);
      if (full !== wanted && short !== wanted) continue;
      select(i);
      reveal(i);
      return true;
    }
    return false;
  }

  function findRank(r) {
    const e = f.layout.entries.find(({ row, who }) => row.ranks.some(([a, b]) => a <= r && r <= b) && (who === `rank ${r}` || !who.startsWith('rank ')));
    if (!e) return false;
    scroll(e.y - f.layout.height / 3);
    say(describe(f, { region: 'names', op: -1, entry: e }));
    ask();
    return true;
  }

  // ---- tables ----

  let listing = 0;
  function listSoon() {
    clearTimeout(listing);
    listing = setTimeout(() => {
      const [from, to] = f.range || [f.from, f.to];
      parts.table.lastElementChild.innerHTML = ranksTable(f.timeline, from, to) + jobsTable(f.timeline, from, to);
    }, 80);
  }

  const hint = () => (matchMedia('(pointer: coarse)').matches ? TOUCH_HINT : HINT);

  const go = {
    open: () => f !== null && f.width > 0,
    width: () => plotWidth(f),
    isRuler: (x, y) => hitAt(f, x, y).region === 'ruler',
    zoom, pan,
    all() { f.y = 0; see(0, f.timeline.end); },
    centre(share) {
      const w = f.to - f.from, t = share * f.timeline.end;
      see(t - w / 2, t + w / 2);
    },
    hover(x, y) {
      const found = hitAt(f, x, y);
      rows.style.cursor = found.region === 'ruler' ? 'col-resize' : found.op >= 0 ? 'pointer' : 'grab';
      if (pinned >= 0 || f.range) return;
      light(found.op, found.entry);
      if (found.op < 0) say(describe(f, found) || hint());
    },
    click(x, y) {
      const found = hitAt(f, x, y);
      f.range = null;
      select(found.op === pinned ? -1 : found.op, found.entry);
      if (found.op < 0 && describe(f, found)) say(describe(f, found));
    },
    measure(x0, x1) {
      const clip = t => Math.max(0, Math.min(t, f.timeline.end));
      f.range = [x0, x1].map(x => clip(timeAt(f, x))).sort((a, b) => a - b);
      pinned = -1;
      f.place = { ...nothing(), ...marked() };
      say(f.range[1] > f.range[0] ? rangeText(f.timeline, ...f.range) : '');
      if (parts.table.open) listSoon();
      ask();
    },
    focus() { // shows the range, or the selection with its needs
      const { ops } = f.timeline, i = f.place.op;
      if (f.range) see(...f.range);
      else if (i >= 0) see(ops.start[i] - (ops.end[i] - ops.start[i]) * 3, ops.end[i] + (ops.end[i] - ops.start[i]) * 3);
      else go.all();
    },
    clear() {
      f.range = null;
      pinned = -1;
      light(-1);
      say(hint());
      ask();
    },
    step(by) { // moves to the next operation of the row, then of the next row
      const { n } = f.timeline;
      if (n === 0) return;
      const i = f.place.op < 0 ? 0 : (f.place.op + by + n) % n;
      select(i);
      reveal(i);
    },
    follow(by) { // moves to what the selection waited for, or to what first needs it; without a selection, pans
      const i = f.place.op;
      if (i < 0) return pan((by * plotWidth(f)) / 8, 0);
      const users = usersOf(f.timeline), j = by < 0 ? lastNeed(f.timeline, i) : -1;
      const to = by < 0 ? (j < 0 ? -1 : needsOf(f.timeline).op[j]) : [...users.op.subarray(users.at[i], users.at[i + 1])].sort((a, b) => f.timeline.ops.start[a] - f.timeline.ops.start[b])[0] ?? -1;
      if (to < 0) return;
      select(to);
      reveal(to);
    },
    change(by) { // moves to the row above or below, at the same time; without a selection, scrolls
      const i = f.place.op;
      if (i < 0) return pan(0, by * Math.max(12, f.layout.job));
      const { rows: all, ops } = f.timeline, row = all[all.indexOf(rowOf(f.timeline, i)) + by];
      if (!row || row.lanes[0].first === row.lanes[0].end) return;
      const to = Math.min(row.lanes[0].end - 1, firstAfter(ops.end, row.lanes[0].first, row.lanes[0].end, ops.start[i]));
      select(to);
      reveal(to);
    },
  };

  moveWithMouse(parts, go);
  const keys = moveWithKeys(options.global ? window : stage, parts, go);
  for (const button of host.querySelectorAll('[data-key]')) button.addEventListener('click', () => { if (go.open()) keys[button.dataset.key](); });
  parts.find.addEventListener('keydown', event => {
    if (event.key === 'Escape') stage.focus();
    if (event.key === 'Enter' && f) parts.said.textContent = find(parts.find.value) ? '' : parts.find.value.trim() ? `no ${parts.find.value.trim()}` : '';
  });
  parts.by.addEventListener('change', () => { look.by = parts.by.value; recolour(); told(); });
  parts.sends.addEventListener('change', () => { look.sends = parts.sends.checked; ask(); told(); });
  parts.lanes.addEventListener('change', () => { look.lanes = parts.lanes.checked; told(); });
  for (const name of ['memory', 'tall', 'fold']) parts[name].addEventListener('change', () => {
    if (name === 'fold') look.unfold = !parts.fold.checked;
    else look[name] = parts[name].checked;
    arrange();
  });
  parts.table.addEventListener('toggle', () => { if (parts.table.open && f) listSoon(); });
  const told = () => { if (options.changed) options.changed({ by: look.by, sends: look.sends, lanes: look.lanes }); };

  function chosen(given) { // sets the controls
    Object.assign(look, given);
    parts.by.value = look.by;
    parts.sends.checked = look.sends;
    parts.lanes.checked = look.lanes;
  }

  new ResizeObserver(() => { if (f && !printing && stage.clientWidth !== f.width) arrange(); }).observe(stage);
  addEventListener('resize', () => { if (!printing) arrange(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolour);
  new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ['data-theme'] });
  addEventListener('beforeprint', () => { // everything, in light colours
    if (!f || printing) return;
    printing = { from: f.from, to: f.to, y: f.y, tall: look.tall };
    look.tall = false;
    Object.assign(f, { from: 0, to: f.timeline.end, y: 0 });
    recolour();
    arrange();
    cancelAnimationFrame(asked);
    paint();
  });
  addEventListener('afterprint', () => {
    if (!f || !printing) return;
    const { tall, ...before } = printing;
    printing = null;
    look.tall = tall;
    Object.assign(f, before);
    recolour();
    arrange();
  });

  function show(timeline, keep) {
    const same = keep && f && fixed && f.timeline.end === timeline.end && f.timeline.tick === timeline.tick;
    f = { timeline, from: same ? f.from : timeline.from, to: same ? f.to : Math.max(timeline.to, timeline.from + 1), y: same ? f.y : 0, place: nothing(), range: null, look };
    pinned = -1;
    marks = [];
    if (!options.changed) chosen({ by: timeline.by, sends: timeline.sends });
    arrange();
    offer(host, timeline, f.layout, Boolean(options.lanes));
    recolour();
    say(hint());
    const later = window.requestIdleCallback || (act => setTimeout(act, 200));
    later(() => { if (f && f.timeline === timeline) needsOf(timeline); });
  }

  return host.viewer = {
    show, mark, find, chosen,
    hit: (x, y) => hitAt(f, x, y),
    clear() {
      clearTimeout(listing);
      f = null;
      parts.info.textContent = '';
      parts.legend.innerHTML = '';
      c.clearRect(0, 0, rows.width, rows.height);
    },
    paint,
    boxes: i => boxesOf(f, i), // in CSS pixels of the canvas
    get frame() { return f; },
    parts,
  };
}
