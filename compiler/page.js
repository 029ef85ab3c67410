// The page of `pianola show --format html`. The wheel zooms, dragging pans, a double click shows all again. The mouse over
// an operation: what it needs, by which message, of how many bytes. An operation says in data-p whom it needs, as
// RANK.INSTRUCTION, :MESSAGE behind those that came by one.
'use strict';
const svg = document.querySelector('svg'), info = document.getElementById('info');
const all = svg.getAttribute('viewBox').split(' ').map(Number);
let view = all.slice(), drag = null, lit = [];
const look = v => svg.setAttribute('viewBox', (view = v).join(' '));
const id = name => document.getElementById(name);
const title = e => e.querySelector('title').textContent;

function at(event) { // the mouse in the picture's units
  const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  return [p.x, p.y];
}

function light(e, as) {
  e.classList.add(as);
  lit.push([e, as]);
}

function explain(op) {
  const lines = [title(op)];
  for (const [e, as] of lit) e.classList.remove(as);
  lit = [];
  light(op, 'this');
  for (const need of (op.dataset.p || '').split(' ').filter(Boolean)) {
    const [from, number] = need.split(':'), before = id('o' + from), message = number && id('m' + number);
    if (before) light(before, 'need');
    if (message) light(message, 'show');
    lines.push('needs ' + (before ? title(before) : message ? '' : 'rank.instruction ' + from) +
      (message ? (before ? ', by ' : '') + title(message) : ''));
  }
  info.textContent = lines.join('\n');
}

svg.addEventListener('mouseover', event => {
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
