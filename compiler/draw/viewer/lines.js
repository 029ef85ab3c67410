// Computes the lines of pixels that a layout has, in device pixels below the ruler. A line shows a lane, or the upper or
// lower half of it where jobs overlap, or several lanes where rows are lower than a pixel.

// A line is { top, bottom, mixer: its number, parts: [{ lane, hidden }], end: of its side, count: of operations, sums,
// overlaps: whether operations of a lane may overlap }.
function lineOf(f, entry, y, h, lane, hidden) {
  const top = Math.round(y * f.dpr);
  return { top, bottom: Math.max(top + 1, Math.round((y + h) * f.dpr)), mixer: entry.delta ? 1 : 0, parts: [{ lane, hidden }],
    end: f.timeline.sides[entry.row.side].end, count: lane.end - lane.first, sums: null, overlaps: false };
}

function jobLines(f, e) {
  const lane = e.row.lanes[0], whole = { ...lineOf(f, e, e.y, e.h, lane, 0), overlaps: Boolean(e.row.halved) };
  if (!e.row.halved || e.h < 4) return [whole];
  const middle = whole.top + Math.ceil((whole.bottom - whole.top) / 2);
  return [{ ...whole, overlaps: false, bottom: middle, parts: [{ lane, hidden: LOWER }] }, { ...whole, overlaps: false, top: middle, parts: [{ lane, hidden: UPPER }] }];
}

function linesOf(f) {
  const lines = [];
  let alone = null; // the line of the row before, if it has no others
  for (const e of f.layout.entries) {
    if (alone && Math.round(e.y * f.dpr) === alone.top) { // rows that share a line of pixels
      alone.overlaps ||= Boolean(e.row.halved);
      alone.parts.push({ lane: e.row.lanes[0], hidden: 0 });
      alone.count += e.row.lanes[0].end - e.row.lanes[0].first;
      continue;
    }
    const own = jobLines(f, e);
    lines.push(...own, ...e.lanes.map(({ lane, y, h }) => lineOf(f, e, y, h, lane, 0)));
    alone = own.length === 1 ? own[0] : null;
  }
  return lines;
}
