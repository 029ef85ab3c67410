// Colours, and how they are mixed in each pixel of a row: weighted by each job's time there, with a colour of its own
// for idle time. So a pixel of a thousand jobs shows how its time was spent, not just the last job.

const rgbOf = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));

const HUES = 144; // hues repeat after these: 144 * 137.5 is a multiple of 360

function hueOf(number, light) { // same as compiler/draw/colors.c: hues by the golden angle
  const hue = (number * 137.5 + 205) % 360, a = 0.6 * Math.min(light, 1 - light);
  return [0, 8, 4].map(n => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (light - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  });
}

const blend = (a, b, ofB) => a.map((v, i) => v * (1 - ofB) + b[i] * ofB);
const isDark = ([r, g, b]) => 299 * r + 587 * g + 114 * b < 128000;

function diverging(at) { // from blue through white to red, for -1 to 1: ColorBrewer's RdBu
  const stops = ['#2166ac', '#67a9cf', '#f7f7f7', '#ef8a62', '#b2182b'].map(rgbOf), x = (at + 1) * 2, low = Math.min(3, Math.floor(x));
  return blend(stops[low], stops[low + 1], x - low);
}

// Returns a palette: { paint: a colour's number per operation, colours: [rgb] }. paper: the colour that faded
// operations fade to
function paletteOf(timeline, by, paper) {
  const { ops, n, symbols, kinds } = timeline, paint = new Uint16Array(n), colours = [], number = new Map();
  for (let i = 0; i < n; i++) {
    const [kind, , , stage] = symbols[ops.symbol[i]], [, , fill, light] = kinds[kind], faded = ops.flags[i] & FADED;
    const hue = by === 'op' || !light || kind === kinds.length - 1 ? -1 : (by === 'mb' ? ops.batch[i] : stage) % HUES;
    const key = (kind * 2 + (faded ? 1 : 0)) * 4194304 + hue + 1;
    let p = number.get(key);
    if (p === undefined) {
      const rgb = hue < 0 ? rgbOf(fill) : hueOf(hue, light);
      number.set(key, p = colours.push(faded ? blend(paper, rgb, 0.3) : rgb) - 1);
    }
    paint[i] = p;
  }
  return { paint, colours };
}

const SHIFTS = 32; // shades on each side

function shiftPalette(timeline) { // for a diff: how much earlier or later each operation ends in B
  const { ops, n } = timeline, paint = new Uint16Array(n);
  let most = 0;
  for (let i = 0; i < n; i++) most = Math.max(most, Math.abs(ops.shift[i]));
  const colours = Array.from({ length: 2 * SHIFTS + 1 }, (_, i) => diverging(i / SHIFTS - 1)).concat([rgbOf('#d9d9d9')]);
  for (let i = 0; i < n; i++) paint[i] = ops.match[i] < 0 ? 2 * SHIFTS + 1 : SHIFTS + (most && Math.round((ops.shift[i] / most) * SHIFTS));
  return { paint, colours, most };
}

// Returns the first operation in [from, to) that ends after time t.
function firstAfter(ends, from, to, t) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (ends[middle] > t) to = middle;
    else from = middle + 1;
  }
  return from;
}

// Mixes rows. acc has 4 numbers per pixel: red, green, blue, and the share that is busy.
function makeMixer(timeline, palette) {
  const { start, end, flags } = timeline.ops, { paint, colours } = palette, sums = new Map();
  const red = Float32Array.from(colours, c => c[0]), green = Float32Array.from(colours, c => c[1]), blue = Float32Array.from(colours, c => c[2]);

  function add(acc, x0, x1, i) { // adds operation i from pixel x0 to x1, which may be fractions
    const p = paint[i], r = red[p], g = green[p], b = blue[p];
    for (let x = x0 | 0, k = 4 * x, from = x0; from < x1; k += 4) {
      const to = ++x < x1 ? x : x1, w = to - from;
      acc[k] += w * r;
      acc[k + 1] += w * g;
      acc[k + 2] += w * b;
      acc[k + 3] += w;
      from = to;
    }
  }

  // Sums over time of the colours before each operation of a lane, for lanes with many operations per pixel.
  function sumsOf(lane, hidden) {
    const key = lane.first * 8 + hidden;
    if (sums.has(key)) return sums.get(key);
    const n = lane.end - lane.first, sum = new Float64Array(4 * (n + 1));
    for (let i = 0; i < n; i++) {
      const op = lane.first + i, p = paint[op], w = flags[op] & hidden ? 0 : end[op] - start[op], k = 4 * i;
      sum[k + 4] = sum[k] + w * red[p];
      sum[k + 5] = sum[k + 1] + w * green[p];
      sum[k + 6] = sum[k + 2] + w * blue[p];
      sum[k + 7] = sum[k + 3] + w;
    }
    sums.set(key, sum);
    return sum;
  }

  function mixSums(acc, lane, hidden, from, perPixel, width) {
    const sum = sumsOf(lane, hidden), before = [0, 0, 0, 0];
    for (let x = 0, i = lane.first; x <= width; x++) {
      const t = from + x * perPixel;
      let step = 1;
      while (i + step < lane.end && end[i + step] <= t) step *= 2;
      i = firstAfter(end, i, Math.min(lane.end, i + step + 1), t);
      const w = i < lane.end && start[i] < t && !(flags[i] & hidden) ? t - start[i] : 0, p = i < lane.end ? paint[i] : 0, k = 4 * (i - lane.first);
      const now = [sum[k] + w * red[p], sum[k + 1] + w * green[p], sum[k + 2] + w * blue[p], sum[k + 3] + w];
      for (let c = 0; x > 0 && c < 4; c++) acc[4 * x - 4 + c] += (now[c] - before[c]) / perPixel;
      for (let c = 0; c < 4; c++) before[c] = now[c];
    }
  }

  return {
    palette,
    // Adds a lane's operations from time `from` on. Omits operations with the flags `hidden`.
    mix(acc, lane, hidden, from, perPixel, width) {
      const first = Math.max(lane.first, firstAfter(end, lane.first, lane.end, from) - 1), to = from + width * perPixel;
      const last = firstAfter(start, first, lane.end, to);
      if (last - first > 3 * width) return mixSums(acc, lane, hidden, from, perPixel, width);
      const k = 1 / perPixel;
      for (let i = first; i < last; i++) {
        if (flags[i] & hidden || end[i] <= from) continue;
        const x0 = (start[i] - from) * k, x1 = (end[i] - from) * k;
        add(acc, x0 > 0 ? x0 : 0, x1 < width ? x1 : width, i);
      }
    },
  };
}
