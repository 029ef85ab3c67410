// The pixels of rows, and of the map: lines of mixed colours (mix.js, sums.js).

// The pixels of a frame: width and height in device pixels; pixel 0 begins at time `from`; y: device pixels scrolled.
// acc and second are for one line.
function makeCanvas(c, width, height) {
  const image = c.createImageData(width, height);
  return { image, pixels: new Int32Array(image.data.buffer), acc: new Float32Array(4 * width), second: new Int32Array(width), width, height, from: 0, perPixel: 0, y: 0 };
}

function separate(f, to, { lane, hidden }, at, x0, x1) { // a gap between operations that have room for one
  const { start, end, flags } = f.timeline.ops, k = 1 / to.perPixel, from = to.from + x0 * to.perPixel, paper = pixelOf(f.ink.paper), gap = Math.round(f.dpr);
  const first = Math.max(lane.first, firstAfter(end, lane.first, lane.end, from) - 1), last = firstAfter(start, first, lane.end, to.from + x1 * to.perPixel);
  for (let i = first; i < last; i++) {
    const x = Math.round((start[i] - to.from) * k), touches = i > lane.first && end[i - 1] >= start[i];
    if (!touches || flags[i] & hidden || x <= 0 || (end[i] - start[i]) * k <= 4 * f.dpr) continue;
    for (let j = Math.max(x, x0); j < Math.min(x + gap, x1); j++) to.pixels[at + j] = paper;
  }
}

const mean = (p, q) => (p & q) + ((p ^ q) >>> 1 & 0x7f7f7f) | 0xff000000; // of two pixels, rounded down

function paintLine(f, to, line, x0, x1) {
  const { pixels, acc, second, width: W, height: H, from, perPixel } = to, { sums, parts, overlaps } = line, y = Math.max(0, line.top - to.y), bottom = Math.min(H, line.bottom - to.y), at = y * W;
  const last = Math.max(x0, Math.min(x1, Math.ceil((line.end - from) / perPixel))); // beyond their side's end: paper
  if (sums && perPixel >= MORE * sums.cell) mixSums(sums, from, perPixel, pixels, at, x0, last);
  else if (!overlaps && parts.length <= 2) {
    const draw = (where, begin, { lane, hidden }) => f.mixers[line.mixer].draw(where, begin, lane, hidden, from, perPixel, x0, last, f.ink.idle);
    draw(pixels, at, parts[0]);
    if (parts.length === 2) {
      draw(second, 0, parts[1]);
      for (let x = x0; x < last; x++) pixels[at + x] = mean(pixels[at + x], second[x]);
    }
  } else {
    acc.fill(0, 4 * x0, 4 * last);
    for (const { lane, hidden } of parts) f.mixers[line.mixer].mix(acc, lane, hidden, from, perPixel, x0, last);
    for (let x = x0; x < last; x++) pixels[at + x] = mixed(acc, 4 * x, parts.length, f.ink.idle);
  }
  if (parts.length === 1 && !(sums && perPixel >= MORE * sums.cell)) separate(f, to, parts[0], at, x0, last);
  pixels.fill(pixelOf(f.ink.paper), at + last, at + x1);
  for (let row = y + 1; row < bottom; row++) pixels.copyWithin(row * W + x0, at + x0, at + x1);
}

// Fills the columns from x0 to x1 with the visible lines. Between lines, there must be paper.
function paintLines(f, to, lines, x0, x1) {
  for (const line of lines) if (line.bottom > to.y && line.top < to.y + to.height) paintLine(f, to, line, x0, x1);
}

// Paints the minimap: all rows over the whole timeline, with each pixel the mix of what it covers.
function paintMap(c, f, width, height) {
  const to = makeCanvas(c, width, height), all = f.layout.entries.filter(e => !e.delta), perPixel = f.timeline.end / width;
  for (let y = 0; y < height; y++) {
    const first = Math.floor((y * all.length) / height), last = Math.max(first + 1, Math.floor(((y + 1) * all.length) / height));
    to.acc.fill(0);
    for (const e of all.slice(first, last)) f.mixers[0].mix(to.acc, e.row.lanes[0], 0, 0, perPixel, 0, width);
    for (let x = 0; x < width; x++) to.pixels[y * width + x] = mixed(to.acc, 4 * x, last - first, f.ink.idle);
  }
  c.putImageData(to.image, 0, 0);
}
