// Draws what stays visible at the edges of a frame: the ruler, the ranks' names, a diff's headings.

// Returns the distance of ticks, in units, as labels need room.
const tickStep = f => roundUp(((f.to - f.from) * f.timeline.tick * 76) / plotWidth(f));

function paintRuler(c, f) {
  const step = tickStep(f), { tick, unit } = f.timeline, bottom = f.layout.height;
  c.fillStyle = f.ink.css.paper;
  c.fillRect(0, 0, f.width, RULER);
  c.font = `11px ${FONT}`;
  c.textBaseline = 'middle';
  c.textAlign = 'right';
  c.fillStyle = f.ink.css.faint;
  c.fillText(unit === 'units' ? 'time' : unit, f.layout.left - 8, RULER / 2);
  c.textAlign = 'center';
  c.strokeStyle = f.ink.css.line;
  c.lineWidth = 1;
  for (let n = Math.ceil((f.from * tick) / step - 1e-9); n * step <= f.to * tick * (1 + 1e-12); n++) {
    const x = Math.round(xAt(f, (n * step) / tick)) + 0.5, text = String(Number((n * step).toPrecision(9)));
    if (x < f.layout.left - 1) continue;
    c.fillText(text, Math.min(x, f.width - 4 - c.measureText(text).width / 2), RULER / 2);
    c.beginPath();
    c.moveTo(x, RULER - 5);
    c.lineTo(x, RULER);
    c.stroke();
  }
  c.beginPath();
  c.moveTo(0, RULER - 0.5);
  c.lineTo(f.width, RULER - 0.5);
  c.stroke();
  if (!f.range) return;
  const [a, b] = f.range.map(t => xAt(f, t));
  c.fillStyle = f.ink.css.accent;
  c.globalAlpha = 0.16;
  c.fillRect(a, 0, b - a, bottom);
  c.globalAlpha = 1;
  c.fillRect(a, RULER - 3, b - a, 3);
}

function fitted(c, text, room) {
  if (c.measureText(text).width <= room) return text;
  let n = text.length;
  while (n > 1 && c.measureText(text.slice(0, n) + '…').width > room) n--;
  return text.slice(0, n) + '…';
}

// Returns the width of the margin: room for the longest name, within limits.
function marginOf(c, f) {
  const [least, most] = f.width < 500 ? [70, 104] : [92, 160];
  c.font = `11px ${FONT}`;
  return f.layout.entries.reduce((width, e) => Math.max(width, Math.min(most, Math.ceil(c.measureText(e.who).width) + 20)), least);
}

function rankText(c, e, room) { // its ranks, or as many as fit and how many they are
  if (c.measureText(e.who).width <= room) return e.who;
  const count = e.count > 1 ? ` ×${e.count}` : '';
  return fitted(c, e.who, room - c.measureText(count).width) + count;
}

function paintNames(c, f, entries) {
  const { left, height } = f.layout, high = RULER + 7; // high: the highest middle of a name
  c.fillStyle = f.ink.css.paper;
  c.fillRect(0, RULER, left, height - RULER);
  c.textAlign = 'right';
  c.textBaseline = 'middle';
  let free = RULER - 6;
  for (const e of entries) {
    const own = topOf(f, e) + e.h / 2, middle = e.h < 14 ? Math.max(own, high) : own;
    if (e.number % f.layout.named || middle - 6 < free || middle + 6 > height) continue;
    free = middle + 8;
    c.font = `11px ${FONT}`;
    c.fillStyle = f.ink.css.ink;
    c.fillText(rankText(c, e, left - 14), left - 8, middle);
    if (!e.memory || e.memory.h < 14 || e.row.plan < 0) continue;
    c.font = `10px ${FONT}`;
    c.fillStyle = f.ink.css.faint;
    c.fillText(amountOf(e.row.plan), left - 8, RULER + e.memory.y + e.memory.h / 2 - f.y);
    free = Math.max(free, RULER + e.memory.y + e.memory.h / 2 - f.y + 6);
  }
}

const panelTexts = (timeline, width) => [`A  ${timeline.titles[0]}; makespan ${timeWithUnit(timeline, timeline.sides[0].end)}`,
  `B  ${timeline.titles[1]}; makespan ${timeWithUnit(timeline, timeline.sides[1] && timeline.sides[1].end)}`,
  width < 500 ? 'difference  earlier or later in B than in A' : 'difference  B’s operations, by how much earlier or later they end than in A'];

function paintHeadings(c, f) {
  c.font = `600 12px ${FONT}`;
  c.textAlign = 'left';
  c.textBaseline = 'middle';
  c.fillStyle = f.ink.css.ink;
  for (const { panel, y } of f.layout.titles)
    if (RULER + y - f.y > RULER - 6) c.fillText(fitted(c, panelTexts(f.timeline, f.width)[panel], f.width - 16), 8, RULER + y + HEADING / 2 - f.y);
}
