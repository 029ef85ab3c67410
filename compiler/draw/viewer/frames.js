// Approximates frames that take too long to repaint while something moves, by cutting them from a picture of the whole
// timeline. The exact frame follows when the movement ends.

const WIDE = 4096, MANY = 150000; // that picture's device pixels; visible operations that call for it

function countInSight(f) {
  let n = 0;
  for (const e of sightedEntries(f)) {
    const [first, last] = inSight(f, e.row.lanes[0]);
    n += last - first;
  }
  return n;
}

function makeFrames(c) {
  let image = null, whole = null, wholeY = 0, spent = 0;

  function wholeOf(f, H) { // the visible rows, over the whole timeline
    if (whole && whole.height === H && wholeY === f.y) return whole;
    whole = Object.assign(document.createElement('canvas'), { width: WIDE, height: H });
    wholeY = f.y;
    const w = whole.getContext('2d'), pixels = w.createImageData(WIDE, H);
    paintPixels({ ...f, from: 0, to: f.timeline.end }, new Uint32Array(pixels.data.buffer), WIDE, H);
    w.putImageData(pixels, 0, 0);
    return whole;
  }

  return {
    forget() { whole = null; }, // after a change of rows or colours
    // Paints a frame; fine: exactly, however long it takes. Returns whether it is exact.
    paint(f, fine) {
      const W = Math.max(1, Math.round(plotWidth(f) * f.dpr)), H = Math.max(1, Math.round((f.layout.height - RULER) * f.dpr));
      const exact = fine || spent < 10 || countInSight(f) < MANY, begin = performance.now();
      if (exact) {
        if (!image || image.width !== W || image.height !== H) image = c.createImageData(W, H);
        paintPixels(f, new Uint32Array(image.data.buffer), W, H);
        spent = performance.now() - begin;
      }
      paintFrame(c, f, exact ? image : wholeOf(f, H), exact);
      return exact;
    },
  };
}
