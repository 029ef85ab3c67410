// The script of timeline and diff pages. The wheel zooms, dragging pans, a double click resets the view. Hovering over an
// operation shows what it needs, by which message, of how many bytes. An operation's data-p lists what it needs, as
// RANK.INSTRUCTION, with :MESSAGE appended if it came by message; in a diff, as PANEL and number. There, data-t also
// lists where else the operation is drawn, and data-r the root that made it earlier or later.
'use strict';
const svg = document.querySelector('svg'), info = document.getElementById('info');
const all = svg.getAttribute('viewBox').split(' ').map(Number);
let view = all.slice(), drag = null, lit = [];
const labels = svg.querySelectorAll('text.l');
const id = name => document.getElementById(name);
const title = e => e.querySelector('title').textContent;

function look(v) { // keeps the row labels in view
  svg.setAttribute('viewBox', (view = v).join(' '));
  for (const l of labels) l.setAttribute('transform', `translate(${Math.max(0, view[0])} 0)`);
}

function at(event) { // the mouse position in the picture's units
  const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  return [p.x, p.y];
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
  for (const root of words(op, 'r').map(r => id('o' + r)).filter(Boolean)) {
    light(root, 'root');
    lines.push('root: ' + title(root));
  }
  info.textContent = [...new Set(lines)].join('\n');
}

svg.addEventListener('mouseover', event => {
  info.classList.toggle('left', event.clientX > innerWidth / 2); // keeps the info box off the operation it explains
  const e = event.target.closest('.o, .m');
  if (e && e.classList.contains('o')) explain(e);
  else if (e) info.textContent = title(e);
});
svg.addEventListener('wheel', event => {
  event.preventDefault();
  const [x, y] = at(event), k = Math.exp(event.deltaY * 0.0015);
  look([x - (x - view[0]) * k, y - (y - view[1]) * k, view[2] * k, view[3] * k]);
}, { passive: false });
svg.addEventListener('pointerdown', event => { drag = at(event); });
window.addEventListener('pointerup', () => { drag = null; });
svg.addEventListener('pointermove', event => {
  if (!drag) return;
  const [x, y] = at(event);
  look([view[0] + drag[0] - x, view[1] + drag[1] - y, view[2], view[3]]);
});
svg.addEventListener('dblclick', () => look(all.slice()));
