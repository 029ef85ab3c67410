// The script of timeline and diff pages. The picture fills the window's width and takes as much of its height as it
// needs; the report is beside it if both have room. The wheel, + and - zoom; dragging and arrows pan; a double click
// and 0 show everything. Comma and full stop step through operations. Pointing at an operation, or stepping to it,
// shows what it needs, by which message, with how many bytes.
// An operation's data-p lists what it needs, as RANK.INSTRUCTION, with :MESSAGE appended if it came by message; in a
// diff, as PANEL and number. There, data-t also lists where else the operation is drawn, and data-r the root that made
// it earlier or later.
'use strict';
const id = name => document.getElementById(name);
const main = document.querySelector('main'), host = id('picture'), info = id('info'), svg = host.querySelector('svg');
const [, , wide, high] = svg.getAttribute('viewBox').split(' ').map(Number);
const top0 = Number(host.dataset.top); // above it are the picture's own heading and figures, which the page repeats
const labels = svg.querySelectorAll('text.l');
const title = e => (e.querySelector('title') || { textContent: '' }).textContent;
let view = [0, top0, wide, high - top0], drag = null, lit = [], printed = null, width = innerWidth;

// The width at which the whole picture is visible in a height h. Wide windows leave a margin, rather than draw giants.
const whole = (h = host.clientHeight) => Math.max(wide, host.clientWidth / 1.6, ((high - top0) / Math.max(1, h)) * host.clientWidth);

function draw() {
  svg.setAttribute('viewBox', view.map(v => v.toFixed(2)).join(' '));
  for (const l of labels) l.setAttribute('transform', `translate(${Math.max(0, view[0]).toFixed(2)} 0)`);
}

function look(x, y, w) { // shows w units from (x, y) on, within the picture; row labels stay at the left
  w = Math.max(Math.min(wide, 60), Math.min(w, whole()));
  const h = (w * host.clientHeight) / Math.max(1, host.clientWidth);
  view = [Math.max(0, Math.min(x, wide - w)), Math.max(top0, Math.min(y, high - h)), w, h];
  draw();
}

function fit() { // shows the whole picture, or a part large enough to read
  main.classList.add('beside');
  if (innerWidth < 1200 || host.clientWidth < wide) main.classList.remove('beside');
  const room = Math.max(220, 0.6 * innerHeight, innerHeight - host.offsetTop - id('below').offsetHeight - 8);
  const small = Math.max(host.clientWidth, 300) / 0.62, w = whole(room) < small ? whole(room) : Math.min(Math.max(wide, host.clientWidth), small);
  const frame = host.offsetHeight - host.clientHeight;
  host.style.height = `${Math.ceil(Math.min(room, ((high - top0) / w) * host.clientWidth)) + frame}px`;
  look(0, top0, w);
}

const all = () => look(0, top0, whole());

function at(event) { // the mouse's position in the picture's units
  const box = host.getBoundingClientRect(), k = view[2] / host.clientWidth;
  return [view[0] + (event.clientX - box.left) * k, view[1] + (event.clientY - box.top) * k];
}

const zoom = ([x, y], k) => {
  const w = Math.max(Math.min(wide, 60), Math.min(view[2] * k, whole()));
  look(x - ((x - view[0]) * w) / view[2], y - ((y - view[1]) * w) / view[2], w);
};
const middle = () => [view[0] + view[2] / 2, view[1] + view[3] / 2];
const pan = (dx, dy) => look(view[0] + dx, view[1] + dy, view[2]);

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
  for (const root of words(op, 'r').map(r => id('o' + r)).filter(Boolean)) {
    light(root, 'root');
    lines.push('root: ' + title(root));
  }
  info.textContent = [...new Set(lines)].join('\n');
}

let operations = null; // sorted by row, then from left to right
function step(by) { // moves to the next or previous operation
  const number = (e, name) => Number(e.getAttribute(name));
  operations ||= [...svg.querySelectorAll('.o')].map(e => ({ e, x: number(e, 'x'), y: number(e, 'y'), width: number(e, 'width'), height: number(e, 'height') }))
    .sort((a, b) => a.y - b.y || a.x - b.x);
  const now = operations.findIndex(o => o.e.classList.contains('this'));
  const o = operations[now < 0 ? 0 : (now + by + operations.length) % operations.length];
  if (!o) return;
  const [x, y, w, h] = view, out = o.x < x || o.x + o.width > x + w || o.y < y || o.y + o.height > y + h;
  if (out) look(o.x - w / 2, o.y - h / 2, w);
  explain(o.e);
}

svg.addEventListener('mouseover', event => {
  const e = event.target.closest('[class]');
  if (e && e.classList.contains('o')) explain(e);
  else if (e && title(e)) info.textContent = title(e);
});
host.addEventListener('wheel', event => {
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(((event.deltaX || event.deltaY) / host.clientWidth) * view[2], 0);
  else zoom(at(event), Math.exp(event.deltaY * 0.0015));
}, { passive: false });
host.addEventListener('pointerdown', event => { drag = at(event); });
for (const end of ['pointerup', 'pointercancel']) addEventListener(end, () => { drag = null; });
addEventListener('pointermove', event => {
  if (!drag) return;
  const [x, y] = at(event);
  pan(drag[0] - x, drag[1] - y);
});
host.addEventListener('dblclick', all);
const keys = {
  ArrowLeft: () => pan(-view[2] / 8, 0), ArrowRight: () => pan(view[2] / 8, 0),
  ArrowUp: () => pan(0, -view[3] / 8), ArrowDown: () => pan(0, view[3] / 8),
  '+': () => zoom(middle(), 0.8), '=': () => zoom(middle(), 0.8), '-': () => zoom(middle(), 1.25), 0: all,
  '.': () => step(1), ',': () => step(-1),
};
addEventListener('keydown', event => {
  const act = keys[event.key], scrolls = event.key.startsWith('Arrow') && document.activeElement !== host;
  if (!act || scrolls || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});
for (const b of document.querySelectorAll('#below button')) b.addEventListener('click', keys[b.dataset.key]);
addEventListener('resize', () => { // ignores a phone's address bar, which changes only the height
  if (innerWidth !== width) fit();
  width = innerWidth;
});
addEventListener('beforeprint', () => { printed = view; view = [0, top0, wide, high - top0]; draw(); });
addEventListener('afterprint', () => { if (printed) { view = printed; draw(); } });
fit();
