// Paints frames, and keeps the pixels of the last one: after a pan by whole pixels, only the columns that came into
// sight are new.

function makeFrames(c) {
  let to = null, lines = null, drawn = false;

  // Returns by how many pixels the last frame has to move to the left, or NaN if it cannot be reused.
  function moved(f, perPixel, y) {
    if (!drawn || y !== to.y || Math.abs(perPixel / to.perPixel - 1) > 1e-9) return NaN;
    const by = (f.from - to.from) / perPixel, whole = Math.round(by);
    return Math.abs(by - whole) < 0.02 && Math.abs(whole) < to.width ? whole : NaN;
  }

  function fill(f, perPixel, y) {
    const by = moved(f, perPixel, y), W = to.width;
    if (by === 0) return;
    drawn = true;
    if (Number.isNaN(by)) {
      Object.assign(to, { from: f.from, perPixel, y });
      to.pixels.fill(pixelOf(f.ink.paper));
      return paintLines(f, to, lines, 0, W);
    }
    to.from += by * to.perPixel;
    if (by > 0) to.pixels.copyWithin(0, by);
    else to.pixels.copyWithin(-by, 0);
    const [x0, x1] = by > 0 ? [W - by, W] : [0, -by];
    for (let row = 0; row < to.height; row++) to.pixels.fill(pixelOf(f.ink.paper), row * W + x0, row * W + x1);
    paintLines(f, to, lines, x0, x1);
  }

  return {
    forget() { // after a change of rows or colours
      lines = null;
      drawn = false;
    },
    paint(f) {
      const W = Math.max(1, Math.round(plotWidth(f) * f.dpr)), H = Math.max(1, Math.round((f.layout.height - RULER) * f.dpr));
      if (!to || to.width !== W || to.height !== H) {
        to = makeCanvas(c, W, H);
        drawn = false;
      }
      lines ||= linesOf(f);
      fill(f, (f.to - f.from) / W, Math.round(f.y * f.dpr));
      paintFrame(c, f, to.image);
    },
    prepare: (f, milliseconds) => (lines ? prepareSums(f, lines, milliseconds) : true),
  };
}
