// The pixels of rows, and of the map: lines of mixed colours (mix.js).

// Turns mixed rows into colours; beyond their side's end, the colour is paper.
function toLine(f, acc, rows, line, end) {
  const [r0, g0, b0] = f.ink.idle, last = Math.max(0, Math.min(line.length, Math.ceil(((end - f.from) / (f.to - f.from)) * line.length)));
  for (let x = 0, k = 0; x < last; k += 4) {
    const busy = acc[k + 3], w = busy > rows ? 1 / busy : 1 / rows, idle = busy > rows ? 0 : 1 - busy / rows;
    const colour = 0xff000000 | (acc[k + 2] * w + b0 * idle) << 16 | (acc[k + 1] * w + g0 * idle) << 8 | (acc[k] * w + r0 * idle);
    line[x++] = colour;
  }
  line.fill(pixelOf(f.ink.paper), last);
}

function separate(f, lane, hidden, line) { // a gap between operations that have room for one
  const { start, end, flags } = f.timeline.ops, [first, last] = inSight(f, lane), k = line.length / (f.to - f.from);
  if (last - first > line.length / 5) return;
  const paper = pixelOf(f.ink.paper);
  for (let i = first; i < last; i++) {
    const x = Math.round((start[i] - f.from) * k);
    const touches = i > lane.first && end[i - 1] >= start[i];
    if (touches && !(flags[i] & hidden) && x > 0 && x < line.length && (end[i] - start[i]) * k > 4 * f.dpr) line.fill(paper, x, x + Math.round(f.dpr));
  }
}

function paintLines(f, pixels, W, H, y, h, lines) { // writes lines below each other into the rows from y to y + h
  const top = Math.round(y * f.dpr), bottom = Math.max(top + 1, Math.round((y + h) * f.dpr));
  for (let row = Math.max(0, top); row < Math.min(H, bottom); row++)
    pixels.set(lines[Math.min(lines.length - 1, Math.floor(((row - top) * lines.length) / (bottom - top)))], row * W);
}

// Fills W x H device pixels with the visible rows.
function paintPixels(f, pixels, W, H) {
  const { entries } = f.layout, acc = new Float32Array(4 * W), perPixel = (f.to - f.from) / W, lines = [new Uint32Array(W), new Uint32Array(W)];
  const mix = (e, lane, hidden) => f.mixers[e.delta ? 1 : 0].mix(acc, lane, hidden, f.from, perPixel, W);
  const device = e => Math.round((e.y - f.y) * f.dpr), end = e => f.timeline.sides[e.row.side].end;
  const draw = (e, lane, { y, h }, halves) => {
    for (const [n, hidden] of halves.entries()) {
      acc.fill(0);
      mix(e, lane, hidden);
      toLine(f, acc, 1, lines[n], end(e));
      separate(f, lane, hidden, lines[n]);
    }
    paintLines(f, pixels, W, H, y - f.y, h, lines.slice(0, halves.length));
  };
  pixels.fill(pixelOf(f.ink.paper));
  for (let i = 0, next; i < entries.length; i = next) {
    const e = entries[i], y = device(e);
    for (next = i + 1; next < entries.length && device(entries[next]) === y;) next++; // rows that share a line of pixels
    if ((e.foot - f.y) * f.dpr < 0 || y >= H) continue;
    if (next === i + 1) {
      draw(e, e.row.lanes[0], e, e.row.halved && e.h >= 4 ? [LOWER, UPPER] : [0]);
      for (const l of e.lanes) draw(e, l.lane, l, [0]);
      continue;
    }
    acc.fill(0);
    for (let k = i; k < next; k++) mix(entries[k], entries[k].row.lanes[0], 0);
    toLine(f, acc, next - i, lines[0], end(e));
    paintLines(f, pixels, W, H, e.y - f.y, e.h, lines.slice(0, 1));
  }
}

// Paints the minimap: all rows over the whole timeline, with each pixel the mix of what it covers.
function paintMap(c, f, image) {
  const W = image.width, H = image.height, pixels = new Uint32Array(image.data.buffer), all = f.layout.entries.filter(e => !e.delta);
  const acc = new Float32Array(4 * W), line = new Uint32Array(W), end = f.timeline.end, whole = { ...f, from: 0, to: end };
  for (let y = 0; y < H; y++) {
    const first = Math.floor((y * all.length) / H), last = Math.max(first + 1, Math.floor(((y + 1) * all.length) / H));
    acc.fill(0);
    for (let k = first; k < last; k++) f.mixers[0].mix(acc, all[k].row.lanes[0], 0, 0, end / W, W);
    toLine(whole, acc, last - first, line, end);
    pixels.set(line, y * W);
  }
  c.putImageData(image, 0, 0);
}
