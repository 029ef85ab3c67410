// Sums of a line's colours, so that a frame of a million operations takes as long as a frame of a thousand. The whole
// time is divided into cells, several per operation. A cell has the mix of its operations and idle time, and the sums
// have all cells before it. The mix of a pixel is then the difference of two sums, whatever the pixel's width, as long
// as that is at least MORE cells; pixels of less time hold few operations, which are mixed one by one.

const CELLS = 1 << 22, PER_OPERATION = 8, MORE = 2, FEW = 400, FINE = 8; // CELLS: of all lines; FINE: units per level of a colour

let scratch = new Float32Array(0);
function scratchOf(n) { // n zeros
  if (scratch.length < n) scratch = new Float32Array(n);
  else scratch.fill(0, 0, n);
  return scratch;
}

// Mixes the busy share of a pixel, at acc[k], with idle time; rows: lanes in it. Returns the colour as a pixel, for
// canvases, which are little-endian.
function mixed(acc, k, rows, idle) {
  const busy = acc[k + 3], w = 1 / (busy > rows ? busy : rows), rest = busy > rows ? 0 : 1 - busy * w;
  return 0xff000000 | (acc[k + 2] * w + idle[2] * rest) << 16 | (acc[k + 1] * w + idle[1] * rest) << 8 | (acc[k] * w + idle[0] * rest);
}

function makeSums(f, line, cells) {
  const cell = f.timeline.end / cells, acc = scratchOf(4 * cells), sum = new Int32Array(3 * cells + 6), rows = line.parts.length, { idle } = f.ink;
  for (const { lane, hidden } of line.parts) f.mixers[line.mixer].mix(acc, lane, hidden, 0, cell, 0, cells);
  for (let i = 0, k = 0, s = 3; i < cells; i++, k += 4, s += 3) {
    const busy = acc[k + 3], w = FINE / (busy > rows ? busy : rows), rest = busy > rows ? 0 : FINE - busy * w;
    for (let c = 0; c < 3; c++) sum[s + c] = sum[s + c - 3] + Math.round(acc[k + c] * w + idle[c] * rest);
  }
  return { cell, cells, sum };
}

// Makes the sums of lines that lack them, for some milliseconds. Returns whether all are made.
function prepareSums(f, lines, milliseconds) {
  const until = performance.now() + milliseconds, most = Math.floor(CELLS / lines.length);
  for (const line of lines) {
    if (line.sums || line.count < FEW * line.parts.length) continue;
    const { sums } = f.mixers[line.mixer], key = `${line.parts[0].lane.first} ${line.parts[0].hidden} ${line.parts.length}`;
    if (!sums.has(key)) {
      if (performance.now() > until) return false;
      sums.set(key, makeSums(f, line, Math.min(most, PER_OPERATION * Math.ceil(line.count / line.parts.length))));
    }
    line.sums = sums.get(key);
  }
  return true;
}

// Writes the pixels from x0 to x1 of a line, of which pixel 0 begins at time `from`, to pixels[at + x].
function mixSums({ cell, cells, sum }, from, perPixel, pixels, at, x0, x1) {
  const begin = from / cell, step = perPixel / cell, k = 1 / (step * FINE);
  for (let x = x0, r = 0, g = 0, b = 0; x <= x1; x++) {
    const u = Math.min(begin + x * step, cells), i = u | 0, w = u - i, s = 3 * i, r0 = sum[s], g0 = sum[s + 1], b0 = sum[s + 2];
    const r1 = r0 + w * (sum[s + 3] - r0), g1 = g0 + w * (sum[s + 4] - g0), b1 = b0 + w * (sum[s + 5] - b0);
    if (x > x0) pixels[at + x - 1] = 0xff000000 | (b1 - b) * k + 0.5 << 16 | (g1 - g) * k + 0.5 << 8 | (r1 - r) * k + 0.5;
    r = r1;
    g = g1;
    b = b1;
  }
}
