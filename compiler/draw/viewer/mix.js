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
  const { ops, n, symbols, kinds } = timeline, paint = new Uint16Array(n), colours = [], message = kinds.length - 1;
  const number = new Int32Array(kinds.length * 2 * (HUES + 1)).fill(-1), kind = Int32Array.from(symbols, s => s[0]), stage = Int32Array.from(symbols, s => s[3]);
  const hued = kinds.map((k, i) => by !== 'op' && i !== message && k[3] > 0);
  for (let i = 0; i < n; i++) {
    const s = ops.symbol[i], k = kind[s], faded = ops.flags[i] & FADED ? 1 : 0, hue = hued[k] ? (by === 'mb' ? ops.batch[i] : stage[s]) % HUES : -1;
    const key = (k * 2 + faded) * (HUES + 1) + hue + 1;
    if (number[key] < 0) {
      const rgb = hue < 0 ? rgbOf(kinds[k][2]) : hueOf(hue, kinds[k][3]);
      number[key] = colours.push(faded ? blend(paper, rgb, 0.3) : rgb) - 1;
    }
    paint[i] = number[key];
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

// Returns the colour, as a pixel, of one lane's mix: its sums of colours, the share that is busy, and idle time.
function complete(r, g, b, busy, idle) {
  const rest = busy < 1 ? 1 - busy : 0, w = busy > 1 ? 1 / busy : 1;
  return 0xff000000 | (b * w + idle[2] * rest) << 16 | (g * w + idle[1] * rest) << 8 | (r * w + idle[0] * rest);
}

// Mixes lanes. acc has 4 numbers per pixel: red, green, blue, and the share that is busy.
function makeMixer(timeline, palette) {
  const { start, end, flags } = timeline.ops, { paint, colours } = palette;
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

  const packed = Int32Array.from(colours, pixelOf);

  // Writes the pixels from x0 to x1 of a lane whose operations do not overlap, as mix and then mixed (sums.js) would.
  function draw(pixels, at, lane, hidden, from, perPixel, x0, x1, idle) {
    const k = 1 / perPixel, blank = pixelOf(idle), begin = from + x0 * perPixel;
    let x = x0, r = 0, g = 0, b = 0, busy = 0; // the pixel that is not complete
    for (let i = Math.max(lane.first, firstAfter(end, lane.first, lane.end, begin) - 1); i < lane.end; i++) {
      const a = Math.max(x, (start[i] - from) * k), z = Math.min(x1, (end[i] - from) * k), first = a | 0, last = z | 0, p = paint[i];
      if (a >= x1) break;
      if (z <= a || flags[i] & hidden) continue;
      if (first > x) {
        pixels[at + x++] = complete(r, g, b, busy, idle);
        r = g = b = busy = 0;
        while (x < first) pixels[at + x++] = blank;
      }
      let w = (last > first ? first + 1 : z) - a;
      r += w * red[p];
      g += w * green[p];
      b += w * blue[p];
      busy += w;
      if (last === first) continue;
      pixels[at + x++] = complete(r, g, b, busy, idle);
      for (const colour = packed[p]; x < last;) pixels[at + x++] = colour;
      w = z - last;
      r = w * red[p];
      g = w * green[p];
      b = w * blue[p];
      busy = w;
    }
    if (x >= x1) return;
    pixels[at + x++] = complete(r, g, b, busy, idle);
    while (x < x1) pixels[at + x++] = blank;
  }

  return {
    palette, draw,
    sums: new Map(), // sums.js
    // Adds a lane's operations to the pixels from x0 to x1, of which pixel 0 begins at time `from`. Omits operations
    // with the flags `hidden`.
    mix(acc, lane, hidden, from, perPixel, x0, x1) {
      const begin = from + x0 * perPixel, until = from + x1 * perPixel, k = 1 / perPixel;
      const first = Math.max(lane.first, firstAfter(end, lane.first, lane.end, begin) - 1);
      for (let i = first; i < lane.end && start[i] < until; i++) {
        if (flags[i] & hidden || end[i] <= begin) continue;
        const a = (start[i] - from) * k, b = (end[i] - from) * k;
        add(acc, a > x0 ? a : x0, b < x1 ? b : x1, i);
      }
    },
  };
}
