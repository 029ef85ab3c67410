// A picture of the compiler with zoom and pan, as in compiler/draw/page.js. It lives in a shadow root, since it has its
// own classes. A large picture is in the document only where it is visible: each line of its text is one element.

const MANY = 6000; // elements in the document at once
const LEAST = 400; // narrowest visible part, in the picture's units, however full it is
const pictureStyle = `
:host { position: relative }
svg { display: block; width: 100%; height: 100%; cursor: grab; touch-action: pan-y pinch-zoom }
svg:active { cursor: grabbing }
svg > rect:first-of-type { fill: var(--paper) }
svg text { fill: var(--ink) }
svg text.n { fill: #000 }
svg text.n.w { fill: #fff }
svg text.a { fill: var(--faint) }
svg text.l { paint-order: stroke; stroke: var(--paper); stroke-width: 3px }
svg .g, svg .d { stroke: var(--line) }
svg .o { stroke: var(--paper) }
svg .c { stroke: var(--ink) }
svg rect.c:not(.o) { fill: none }
svg .u { fill: var(--memory) }
svg .f { fill: var(--faint) }
svg .q { stroke: var(--faint) }
svg .m, svg .j { stroke: var(--ink) }
svg .e { fill: var(--ink) }
svg pattern path { stroke: var(--line) }
svg .o.need, svg .m.show { stroke: var(--alarm) }
svg .o.need { stroke-width: 2.4 }
svg .o.this { stroke: var(--ink); stroke-width: 2.8 }
svg .m.show { display: inline; stroke-width: 1.6; opacity: 1 }
svg .o.bad { stroke: var(--alarm); stroke-width: 3.2; stroke-dasharray: 5 2 }
svg .m.bad { display: inline; stroke: var(--alarm); stroke-width: 2.4; opacity: 1 }
svg .flag path { fill: var(--alarm) }
svg .flag text { font-size: 9.5px; font-weight: 650; fill: var(--alarm); paint-order: stroke; stroke: var(--paper); stroke-width: 3.5px }
@media print { svg { max-height: 150mm } }`;

const svgOf = text => (text.match(/<svg [^>]*viewBox[\s\S]*<\/svg>/) || [''])[0];

// info: where operations are explained; bar: a slider over time, a note on hidden parts, and buttons; mostHigh(): the
// most of the window's height that the picture may take
function makeView(host, info, bar, mostHigh) {
  const root = host.attachShadow({ mode: 'open' });
  let svg = null, all = [0, 0, 1, 1], view = all, lit = [], drag = null, large = null, asked = 0, wrong = [], unseen = false;
  const scroll = bar.querySelector('input[type=range]'), sight = bar.querySelector('span');
  const hint = matchMedia('(pointer: coarse)').matches ? 'Tap an operation to see what it needs; dragging sideways pans.' :
    'Point at an operation to see what it needs; the wheel zooms, dragging pans. Keys: arrows, + − 0, and , . from one to the next.';
  const title = e => (e.querySelector('title') || { textContent: '' }).textContent;
  const id = name => root.getElementById(name);

  const wide = () => Math.max(all[2], host.clientWidth / 1.25); // wide windows leave a margin, rather than draw giants
  const whole = (high = host.clientHeight) => { // the width that shows all rows in a window this high
    const tall = (all[3] / Math.max(high, 1)) * host.clientWidth;
    return tall > 1.01 * wide() ? tall : wide();
  };
  const first = () => Math.max(host.clientWidth, 300) / 0.62; // widest part of a new picture
  const shape = () => host.clientHeight / Math.max(1, host.clientWidth);

  const widthOf = w => Math.max(Math.min(all[2], 60), Math.min(w, large ? Math.min(large.widest, all[2]) : whole()));

  function look(x, w) { // keeps the height in proportion, and the view within the picture
    w = widthOf(w);
    let h = w * shape(), y = view[1];
    x = Math.max(0, Math.min(x, all[2] - w));
    y = Math.max(0, Math.min(y, all[3] - h));
    view = [x, h >= all[3] ? 0 : y, w, h];
    if (!asked) asked = requestAnimationFrame(draw);
  }

  function draw() {
    asked = 0;
    if (!svg) return;
    if (large) fill();
    svg.setAttribute('viewBox', view.map(v => v.toFixed(2)).join(' '));
    for (const l of root.querySelectorAll('text.l')) l.setAttribute('transform', `translate(${Math.max(0, view[0]).toFixed(2)} 0)`);
    scroll.hidden = view[2] >= all[2] * 0.999;
    scroll.value = (1000 * view[0]) / Math.max(1e-9, all[2] - view[2]);
    const hidden = view[3] < all[3] * 0.97;
    sight.textContent = hidden ? `${Math.round((100 * view[3]) / all[3])} % of the height in sight: ↑ ↓, drag, or All` : '';
  }

  // Indexes a large picture's lines by the x where they begin.
  const xBehind = { '<rect class="o': ' x="', '<text class="n': ' x="', '<text class="a': ' x="', '<path class="g': 'M', '<path class="m': 'M' };
  function sort(text, part) {
    const lines = text.split('\n'), fixed = [], placed = [];
    for (const line of lines) {
      const begins = xBehind[line.slice(0, 14)], x = begins ? parseFloat(line.slice(line.indexOf(begins, 14) + begins.length)) : NaN;
      if (Number.isNaN(x)) { fixed.push(line); continue; }
      if (placed.length === 0) fixed.push('<g id="placed"></g>');
      placed.push([x, line]);
    }
    placed.sort((a, b) => a[0] - b[0]);
    const width = part ? Math.min(first(), all[2]) : all[2], n = part ? placed.filter(([x]) => x <= width).length : placed.length;
    const widest = n <= MANY / 2 ? Infinity : Math.max(LEAST, (width * MANY) / 2 / n);
    return { part, fixed: fixed.join('\n'), placed, widest, from: 1, to: 0, later: 0 };
  }

  // Merges all jobs of a colour into one element, which renders in a fraction of the time. A glance needs no titles.
  function joined(lines) {
    const paths = new Map(), rest = lines.filter(line => {
      const m = line.match(/^<rect class="(o[ c]*)" fill="(#\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"><\/rect>$/);
      if (!m) return true;
      const [, kind, fill, x, y, w, h] = m, key = `<path class="${kind}" fill="${fill}" d="`;
      paths.set(key, (paths.get(key) || '') + `M${x} ${y}h${w}v${h}h-${w}z`);
      return false;
    });
    const grid = rest.filter(line => line.startsWith('<path class="g"')), names = rest.filter(line => !line.startsWith('<path class="g"'));
    const jobs = [...paths].sort(([a], [b]) => a.includes('"o c"') - b.includes('"o c"')).map(([begin, d]) => `${begin}${d}"/>`);
    return [...grid, ...jobs, ...names].join('\n');
  }

  function fill(widen = false) { // renders the visible part first, and its surroundings later
    const [x, , w] = view, anew = large.from > large.to, around = anew ? 0 : w / 2;
    if (!widen && x >= large.from && x + w <= large.to) return;
    large.from = x - around;
    large.to = x + w + around;
    if (anew && !large.part) large.later = setTimeout(() => { if (svg) fill(true); }, 150);
    const html = [];
    for (const [at, line] of large.placed) {
      if (at > large.to) break;
      if (at >= large.from - 60) html.push(line);
    }
    id('placed').innerHTML = large.part ? joined(html) : html.join('\n');
    lit = [];
    markNow();
  }

  function light(e, as) {
    e.classList.add(as);
    lit.push([e, as]);
  }

  const words = (e, key) => (e.dataset[key] || '').split(' ').filter(Boolean);

  function need(word) { // highlights it, and returns a line that describes it
    const [from, number] = word.split(':'), before = id('o' + from), message = number && id('m' + number);
    if (before) light(before, 'need');
    if (message) light(message, 'show');
    return 'needs ' + (before ? title(before) : message ? '' : 'rank.instruction ' + from) +
      (message ? (before ? ', by ' : '') + title(message) : '');
  }

  function explain(op) {
    const same = [op, ...words(op, 't').map(twin => id('o' + twin)).filter(Boolean)], lines = [title(op)];
    for (const [e, as] of lit) e.classList.remove(as);
    lit = [];
    for (const e of same) light(e, 'this');
    for (const e of same) lines.push(...words(e, 'p').map(need));
    for (const origin of words(op, 'r').map(r => id('o' + r)).filter(Boolean)) {
      light(origin, 'root');
      lines.push('root: ' + title(origin));
    }
    info.textContent = [...new Set(lines)].join('\n');
  }

  function step(by) { // moves from operation to operation, along a rank, with the keyboard
    const ops = [...root.querySelectorAll('.o')].filter(e => title(e));
    if (ops.length === 0) return;
    const now = ops.findIndex(e => e.classList.contains('this'));
    const op = ops[now < 0 ? 0 : (now + by + ops.length) % ops.length], x = Number(op.getAttribute('x')) || view[0];
    if (x < view[0] || x > view[0] + view[2]) look(x - view[2] / 2, view[2]);
    explain(op);
  }

  function at(event) {
    const box = host.getBoundingClientRect(), k = view[2] / Math.max(1, box.width);
    return [view[0] + (event.clientX - box.left) * k, view[1] + (event.clientY - box.top) * k];
  }

  const middle = () => [view[0] + view[2] / 2, view[1] + view[3] / 2];
  function zoom([x, y], by) { // keeps the point (x, y) in place
    const w = widthOf(view[2] * by), k = w / view[2];
    view[1] = y - (y - view[1]) * k;
    look(x - (x - view[0]) * k, w);
  }

  function flag(text, e, before) { // marks something not drawn at a job that it precedes or follows
    const of = name => Number(e.getAttribute(name)), x = of('x') + (before ? 0 : of('width')), y = of('y');
    svg.insertAdjacentHTML('beforeend', `<g class="flag"><path d="M${x} ${y + 1}l-5 -8h10z"/><text x="${x + 7}" y="${y - 2}">${escapeHtml(text)}</text></g>`);
  }

  function markNow() {
    for (const e of root.querySelectorAll('.bad')) e.classList.remove('bad');
    for (const e of root.querySelectorAll('.flag')) e.remove();
    if (wrong.length === 0) return;
    const drawn = [...root.querySelectorAll('.o, .m')].map(e => [e, title(e)]);
    for (const { name, match, near, before } of wrong) {
      const found = drawn.filter(([, text]) => match(text)), beside = near && found.length === 0 && drawn.find(([, text]) => near(text));
      for (const [e] of found) e.classList.add('bad');
      if (beside) flag(name, beside[0], before);
    }
  }

  // Scrolls to the marks. It searches the text, since not all of a large picture is in the document.
  function bring() {
    const tests = wrong.flatMap(({ match, near }) => (near ? [match, near] : [match]));
    const titles = large ? large.placed.map(([x, line]) => [x, (line.match(/<title>([^<]*)/) || ['', ''])[1]]) :
      [...root.querySelectorAll('.o, .m')].map(e => [parseFloat(e.getAttribute('x') || e.getAttribute('d').slice(1)), title(e)]);
    const at = titles.filter(([, text]) => tests.some(test => test(text))).map(([x]) => x);
    if (at.length && !at.some(x => x >= view[0] && x < view[0] + view[2])) look(Math.min(...at) - view[2] / 3, view[2]);
  }

  root.addEventListener('mouseover', event => {
    const e = event.target.closest('.o, .m, path[class]');
    if (e && e.classList.contains('o') && title(e)) explain(e);
    else if (e && title(e)) info.textContent = title(e);
  });
  host.addEventListener('wheel', event => {
    if (!svg) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) look(view[0] + ((event.deltaX || event.deltaY) / host.clientWidth) * view[2], view[2]);
    else zoom(at(event), Math.exp(event.deltaY * 0.0015));
  }, { passive: false });
  host.addEventListener('pointerdown', event => { drag = [event.clientX, event.clientY, view[0], view[1]]; });
  addEventListener('pointerup', () => { drag = null; });
  addEventListener('pointercancel', () => { drag = null; });
  addEventListener('pointermove', event => {
    if (!drag || !svg) return;
    const k = view[2] / host.clientWidth;
    view[1] = drag[3] + (drag[1] - event.clientY) * k;
    look(drag[2] + (drag[0] - event.clientX) * k, view[2]);
  });
  host.addEventListener('dblclick', () => look(0, whole()));
  bar.addEventListener('click', event => {
    const by = event.target.dataset.zoom;
    if (by && svg) by === 'all' ? look(0, whole()) : zoom(middle(), Number(by));
  });
  host.addEventListener('keydown', event => {
    const act = {
      ArrowLeft: () => look(view[0] - view[2] / 8, view[2]), ArrowRight: () => look(view[0] + view[2] / 8, view[2]),
      ArrowUp: () => { view[1] -= view[3] / 8; look(view[0], view[2]); }, ArrowDown: () => { view[1] += view[3] / 8; look(view[0], view[2]); },
      '+': () => zoom(middle(), 0.8), '=': () => zoom(middle(), 0.8), '-': () => zoom(middle(), 1.25), 0: () => look(0, whole()),
      '.': () => step(1), ',': () => step(-1),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  let before = null; // the view before printing, which shows everything
  addEventListener('beforeprint', () => { before = view.slice(); if (svg) { view = [0, 0, all[2], all[3]]; if (large) fill(); svg.setAttribute('viewBox', view.join(' ')); host.style.height = 'auto'; } });
  addEventListener('afterprint', () => { if (before) { view = before; fit(false); } });
  scroll.addEventListener('input', () => look((scroll.value / 1000) * (all[2] - view[2]), view[2]));
  new ResizeObserver(() => requestAnimationFrame(() => { if (svg) fit(unseen); })).observe(host); // later: fit sets the height

  function fit(anew) { // as high as the picture, if the window allows; a narrow window shows a part of readable size
    unseen = host.clientWidth === 0 && (unseen || anew);
    if (host.clientWidth === 0) return;
    const most = Math.floor(mostHigh()), frame = host.offsetHeight - host.clientHeight, width = whole(most) < first() ? whole(most) : Math.min(wide(), first());
    if (anew) view = [0, 0, width, 0];
    host.style.height = `${Math.round(Math.min(most, (all[3] / (anew ? width : Math.max(view[2], 1))) * host.clientWidth)) + frame}px`;
    look(view[0], view[2]);
  }

  function show(text, keep, part = false) {
    const picture = svgOf(text), box = (picture.match(/viewBox="([^"]*)"/) || ['', '0 0 1 1'])[1].split(' ').map(Number);
    const same = keep && svg && box[2] === all[2] && box[3] === all[3], glanced = same && large && large.part;
    all = box;
    if (large) clearTimeout(large.later);
    const widest = glanced ? large.widest : 0;
    large = part || picture.length > 100 * MANY ? sort(picture, part) : null;
    if (large && glanced) large.widest = widest; // the same picture, so the same view
    lit = [];
    root.innerHTML = large ? large.fixed : picture;
    root.append(Object.assign(document.createElement('style'), { textContent: pictureStyle }));
    svg = root.querySelector('svg');
    if (!svg) return;
    svg.removeAttribute('width');
    svg.removeAttribute('height');
    svg.setAttribute('preserveAspectRatio', 'xMinYMin meet');
    info.textContent = hint;
    if (same) look(view[0], view[2]);
    else fit(true);
    markNow();
  }

  return {
    show: (text, keep) => show(text, keep), // keep: keeps the view if the picture has the same size
    // The parts of a large picture that a glance shows: of a new picture, and of the current one.
    sight: () => [0, first(), view[0], view[0] + view[2]],
    glance: text => show(text, true, true),
    complete(text) { // replaces a glance by the whole picture
      if (large && large.part) show(text, true);
    },
    mark(list) { // errors: [{name, match(title), near(title), before}], as in streams.js
      wrong = list;
      if (!svg) return;
      markNow();
      bring();
    },
    clear() {
      root.replaceChildren();
      svg = null;
      host.style.height = '';
      info.textContent = '';
    },
    root,
  };
}
