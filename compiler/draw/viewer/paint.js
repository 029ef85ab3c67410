// Paints one frame: first the pixels of rows; then, where there is room, memory, names, outlines and arrows; last the
// ruler and the ranks, which stay visible.
//
// A frame is { timeline, layout, mixers: [rows, the difference's rows], from, to, y, width, dpr, ink: colours, … };
// times in ticks, sizes in CSS pixels. `place` has what is selected, in reach of it, or marked.

const FONT = 'system-ui, sans-serif', MOST_ARROWS = 3000, NARROW = 9; // NARROW: pixels of an operation that an outline would hide

const plotWidth = f => Math.max(1, f.width - f.layout.left - 8);
const xAt = (f, t) => f.layout.left + ((t - f.from) / (f.to - f.from)) * plotWidth(f);
const timeAt = (f, x) => f.from + ((x - f.layout.left) / plotWidth(f)) * (f.to - f.from);
const topOf = (f, entry) => RULER + entry.y - f.y;
const pixelOf = ([r, g, b]) => (255 << 24 | Math.round(b) << 16 | Math.round(g) << 8 | Math.round(r)) >>> 0;

function inSight(f, lane) { // returns the range of a lane's visible operations
  const { start, end } = f.timeline.ops, first = Math.max(lane.first, firstAfter(end, lane.first, lane.end, f.from) - 1);
  return [first, firstAfter(start, first, lane.end, f.to)];
}

const sightedEntries = f => f.layout.entries.filter(e => topOf(f, e) < f.layout.height && topOf(f, e) + e.foot - e.y > RULER);

// Returns the box of an operation in an entry's row.
function boxIn(f, entry, i) {
  const { start, end, flags } = f.timeline.ops, lane = entry.lanes.find(l => i >= l.lane.first && i < l.lane.end);
  const half = !lane && flags[i] & (UPPER | LOWER), { y, h } = lane || entry, x = xAt(f, start[i]);
  return { x, y: RULER + y - f.y + (half & LOWER ? h / 2 : 0), w: xAt(f, end[i]) - x, h: half ? h / 2 : h };
}

function boxesOf(f, i) { // boxes in all rows that show an operation
  const row = rowOf(f.timeline, i);
  return f.layout.shows.get(row).filter(e => !e.delta || i < row.lanes[0].end).map(e => boxIn(f, e, i));
}

function paintMemory(c, f, entry) {
  const { memory: { y, h }, row: { memory: { time, bytes }, plan, side } } = entry, { top, limit } = f.timeline, bottom = RULER + y + h - f.y;
  const high = b => bottom - (top > 0 ? (b / top) * h : 0), end = xAt(f, Math.min(f.to, f.timeline.sides[side].end));
  const first = Math.max(0, firstAfter(time, 0, time.length, f.from) - 1);
  c.beginPath();
  c.moveTo(Math.max(f.layout.left, xAt(f, time[first])), bottom);
  for (let i = first; i < time.length && time[i] < f.to;) { // the largest amount in each pixel
    const x = Math.max(f.layout.left, xAt(f, time[i])), pixel = Math.floor(x);
    let most = bytes[i++];
    for (; i < time.length && Math.floor(xAt(f, time[i])) === pixel; i++) most = Math.max(most, bytes[i]);
    c.lineTo(x, high(most));
    c.lineTo(i < time.length ? Math.min(end, xAt(f, time[i])) : end, high(most));
  }
  c.lineTo(end, bottom);
  c.fillStyle = f.ink.css.memory;
  c.fill();
  const level = (b, colour, dash) => {
    c.strokeStyle = colour;
    c.lineWidth = 1;
    c.setLineDash(dash);
    c.beginPath();
    c.moveTo(f.layout.left, Math.round(high(b)) + 0.5);
    c.lineTo(end, Math.round(high(b)) + 0.5);
    c.stroke();
    c.setLineDash([]);
  };
  if (plan >= 0) level(plan, f.ink.css.faint, [3, 2]);
  if (limit !== null && limit <= top) level(limit, f.ink.css.alarm, []);
}

function paintBlocks(c, f, entry) { // outlines, lines where there is no room for them, and names of a row's operations that have room for them
  if (entry.h < 5) return;
  const { start, end, flags } = f.timeline.ops, [first, last] = inSight(f, entry.row.lanes[0]);
  if (last - first > plotWidth(f) / 3) return;
  const palette = f.mixers[entry.delta ? 1 : 0].palette, outline = new Path2D(), frame = new Path2D(), foot = new Path2D(), head = new Path2D(), wide = (f.to - f.from) / plotWidth(f);
  c.textAlign = 'center';
  c.textBaseline = 'middle';
  for (let i = first; i < last; i++) {
    const framed = entry.delta ? 0 : flags[i] & (CRITICAL | MOVED | REORDERED | ALONE), width = (end[i] - start[i]) / wide;
    if (width < 3 || !framed && (width < 9 || entry.h < 11)) continue;
    const b = boxIn(f, entry, i);
    if (framed & CRITICAL && b.w < NARROW) foot.rect(b.x, b.y + b.h - 2, b.w, 2);
    else if (framed & CRITICAL) outline.rect(b.x + 1.5, b.y + 1, b.w - 2, b.h - 2);
    if (framed & (MOVED | REORDERED) && b.w < NARROW) head.rect(b.x, b.y, b.w, 2);
    else if (framed & (MOVED | REORDERED)) frame.rect(b.x + 2.5, b.y + 2, b.w - 4, b.h - 4);
    if (framed & ALONE && b.w > 8) paintCorner(c, f, b);
    if (b.h >= 11 && b.w >= 9) paintName(c, f, i, b, palette.colours[palette.paint[i]]);
  }
  c.lineWidth = 1.8;
  c.fillStyle = c.strokeStyle = f.ink.css.ink;
  c.stroke(outline);
  c.fill(foot);
  c.fillStyle = c.strokeStyle = '#d55e00';
  c.stroke(frame);
  c.fill(head);
}

function paintCorner(c, f, b) {
  c.fillStyle = f.ink.css.ink;
  c.beginPath();
  c.moveTo(b.x + b.w - 6, b.y);
  c.lineTo(b.x + b.w, b.y);
  c.lineTo(b.x + b.w, b.y + 6);
  c.fill();
}

function paintName(c, f, i, b, colour) {
  const left = Math.max(b.x, f.layout.left), room = Math.min(b.x + b.w, f.width) - left - 4, size = b.h >= 15 ? 11 : 10;
  c.font = `${size}px ${FONT}`;
  const name = labelsOf(f.timeline, i).find(label => label.length * size * 0.6 <= room);
  if (!name) return;
  c.fillStyle = isDark(colour) ? '#fff' : '#000';
  c.fillText(name, left + room / 2 + 2, b.y + b.h / 2 + 0.5);
}

function paintArrow(c, x0, y0, x1, y1) {
  const angle = Math.atan2(y1 - y0, x1 - x0), at = by => [x1 - 7 * Math.cos(angle + by), y1 - 7 * Math.sin(angle + by)];
  c.beginPath();
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.moveTo(...at(0.4));
  c.lineTo(x1, y1);
  c.lineTo(...at(-0.4));
  c.stroke();
}

// Draws need j of operation i as a line from where and when it was sent to where and when it arrived.
function paintNeed(c, f, i, j) {
  const needs = needsOf(f.timeline), { ops } = f.timeline, by = needs.op[j], to = boxesOf(f, i)[0], from = by >= 0 && boxesOf(f, by)[0];
  if (!from || !to) return;
  const down = from.y < to.y, message = needs.tensor[j] >= 0;
  const x0 = xAt(f, message ? needs.sent[j] : ops.end[by]), x1 = xAt(f, message ? needs.arrived[j] : ops.start[i]);
  if (from.y === to.y) paintArrow(c, xAt(f, ops.end[by]), from.y + from.h / 2, to.x, to.y + to.h / 2);
  else paintArrow(c, x0, from.y + (down ? from.h : 0), x1, to.y + (down ? 0 : to.h));
}

function paintMessages(c, f, entries) { // draws all messages, if there are not too many
  const needs = needsOf(f.timeline), shown = [];
  for (const e of entries) {
    const [first, last] = inSight(f, e.row.lanes[0]);
    for (let i = first; i < last && shown.length <= MOST_ARROWS; i++)
      for (let j = needs.at[i]; j < needs.at[i + 1]; j++) if (needs.tensor[j] >= 0) shown.push([i, j]);
  }
  c.strokeStyle = f.ink.css.faint;
  c.lineWidth = 1;
  if (shown.length <= MOST_ARROWS) for (const [i, j] of shown) paintNeed(c, f, i, j);
}

function paintLinks(c, f) { // lines from where operations were in A to where they are in B
  const { ops, sides } = f.timeline;
  let drawn = 0;
  f.timeline.joined ||= Array.from({ length: sides[1].first }, (_, i) => i).filter(i => ops.flags[i] & (MOVED | REORDERED)).map(i => [i, matchOf(f.timeline, i)]);
  c.strokeStyle = '#d55e00';
  c.globalAlpha = 0.5;
  for (const [i, twin] of f.timeline.joined) {
    if (drawn === MOST_ARROWS) break;
    if (twin < 0 || ops.end[i] < f.from && ops.end[twin] < f.from || ops.start[i] > f.to && ops.start[twin] > f.to) continue;
    const a = boxesOf(f, i)[0], b = boxesOf(f, twin)[0], x0 = a.x + a.w / 2, x1 = b.x + b.w / 2, y0 = a.y + a.h, high = (b.y - y0) * 0.45;
    c.setLineDash(ops.flags[i] & MOVED ? [] : [3, 2]);
    c.lineWidth = i === f.place.op || twin === f.place.op ? 2.4 : 1;
    c.beginPath();
    c.moveTo(x0, y0);
    c.bezierCurveTo(x0, y0 + high, x1, b.y - high, x1, b.y);
    c.stroke();
    drawn++;
  }
  c.setLineDash([]);
  c.globalAlpha = 1;
}

function paintBox(c, f, i, colour, width, dash = []) {
  c.strokeStyle = colour;
  c.lineWidth = width;
  c.setLineDash(dash);
  for (const b of boxesOf(f, i)) c.strokeRect(b.x, b.y, Math.max(b.w, 2), b.h);
  c.setLineDash([]);
}

function paintFlag(c, f, { op, name, before }) { // flags something not drawn, at the operation that it precedes
  const b = boxesOf(f, op)[0], x = before ? b.x : b.x + b.w;
  c.fillStyle = f.ink.css.alarm;
  c.beginPath();
  c.moveTo(x, b.y + 1);
  c.lineTo(x - 5, b.y - 7);
  c.lineTo(x + 5, b.y - 7);
  c.fill();
  c.font = `650 11px ${FONT}`;
  c.textAlign = 'left';
  c.strokeStyle = f.ink.css.paper;
  c.lineWidth = 3.5;
  c.strokeText(name, x + 8, b.y - 4);
  c.fillText(name, x + 8, b.y - 4);
}

function paintPlace(c, f) { // draws the selection, and what is related to it
  const { op, needs, users, twins, root, bad, flags } = f.place;
  for (const i of bad) paintBox(c, f, i, f.ink.css.alarm, 3, [5, 2]);
  for (const flag of flags) paintFlag(c, f, flag);
  if (op < 0) return;
  c.lineWidth = 1.4;
  for (const [i, j] of users) {
    c.strokeStyle = f.ink.css.accent;
    paintNeed(c, f, i, j);
  }
  for (const [i, j] of needs) {
    c.strokeStyle = f.ink.css.alarm;
    paintNeed(c, f, i, j);
    if (needsOf(f.timeline).op[j] >= 0) paintBox(c, f, needsOf(f.timeline).op[j], f.ink.css.alarm, 2);
  }
  if (root >= 0) paintBox(c, f, root, '#e69f00', 3);
  for (const i of twins) paintBox(c, f, i, f.ink.css.ink, 2.4);
  paintBox(c, f, op, f.ink.css.ink, 2.8);
}

function paintJoins(c, f, entry) { // draws where a rank's lanes join, around repetitions
  c.strokeStyle = f.ink.css.ink;
  c.lineWidth = 1.4;
  c.setLineDash([4, 2]);
  c.beginPath();
  for (const t of entry.row.joins) {
    c.moveTo(xAt(f, t), topOf(f, entry) - 2);
    c.lineTo(xAt(f, t), topOf(f, entry) + entry.foot - entry.y);
  }
  c.stroke();
  c.setLineDash([]);
}

// Paints a frame over its pixels.
function paintFrame(c, f, image) {
  const left = f.layout.left, entries = sightedEntries(f), x = Math.round(left * f.dpr);
  c.setTransform(1, 0, 0, 1, 0, 0);
  c.putImageData(image, x, Math.round(RULER * f.dpr));
  c.fillStyle = f.ink.css.paper;
  c.fillRect(x + image.width, 0, c.canvas.width, c.canvas.height);
  c.setTransform(f.dpr, 0, 0, f.dpr, 0, 0);
  c.save();
  c.beginPath();
  c.rect(left, RULER - 8, f.width - left, f.layout.height - RULER + 8);
  c.clip();
  for (const e of entries) {
    if (e.memory) paintMemory(c, f, e);
    paintBlocks(c, f, e);
    if (e.row.joins) paintJoins(c, f, e);
  }
  if (f.look.sends) paintMessages(c, f, entries);
  if (f.timeline.panels > 1) paintLinks(c, f);
  paintPlace(c, f);
  c.restore();
  paintNames(c, f, entries);
  paintHeadings(c, f);
  paintRuler(c, f);
}
