// Describes a range of time: its length, how busy the ranks are in it, and what idle ranks wait for.

const firstOf = (timeline, lane, from) => firstAfter(timeline.ops.end, lane.first, lane.end, from);

// Calls gap(begin, end, next) for each time in [from, to] when a row's jobs idle; next: the job after it, or -1.
// Returns the busy time.
function eachGap(timeline, row, from, to, gap) {
  const { start, end } = timeline.ops, lane = row.lanes[0], until = Math.min(to, timeline.sides[row.side].end);
  let at = from, busy = 0;
  for (let i = firstOf(timeline, lane, from); i < lane.end && start[i] < until; i++) {
    if (start[i] > at) gap(at, start[i], i);
    busy += Math.max(0, Math.min(until, end[i]) - Math.max(at, start[i]));
    at = Math.max(at, end[i]);
  }
  if (at < until) {
    const next = firstAfter(start, lane.first, lane.end, at);
    gap(at, until, next < lane.end ? next : -1);
  }
  return busy;
}

// Divides idle time by what the next job waits for: its last need being computed; the message that brings it; else the
// rank's own order.
function blame(timeline, begin, end, next, add) {
  if (next < 0) return add('nothing: no job is left', end - begin);
  const j = lastNeed(timeline, next), needs = needsOf(timeline), by = j < 0 ? -1 : needs.op[j];
  const made = by < 0 ? begin : Math.min(end, Math.max(begin, timeline.ops.end[by])), message = j >= 0 && needs.tensor[j] >= 0;
  const arrived = message ? Math.min(end, Math.max(made, needs.arrived[j])) : made;
  if (made > begin) add(`${timeline.kinds[kindOf(timeline, by)][1]} elsewhere`, made - begin);
  if (arrived > made) add(`messages: ${timeline.tensors[needs.tensor[j]][0].replace(/\(.*/, '')}`, arrived - made);
  if (end > arrived) add('its own order, memory or launches', end - arrived);
}

// Returns { busy, all, rows: [{ row, busy, jobs }], waits: [[what, ticks]] } of a side, the largest wait first; busy is a
// share of all, the time of all ranks.
function rangeOf(timeline, from, to, side) {
  const waits = new Map(), rows = [];
  let busy = 0, all = 0;
  for (const row of timeline.rows) {
    if (row.side !== side) continue;
    const ranks = countOf(row), lane = row.lanes[0];
    const add = (what, ticks) => waits.set(what, (waits.get(what) || 0) + ticks * ranks);
    const own = eachGap(timeline, row, from, to, (a, b, next) => blame(timeline, a, b, next, add));
    rows.push({ row, busy: own, jobs: firstAfter(timeline.ops.start, lane.first, lane.end, to) - firstOf(timeline, lane, from) });
    busy += own * ranks;
    all += (to - from) * ranks;
  }
  return { busy: all > 0 ? busy / all : 0, all, rows, waits: [...waits].sort((a, b) => b[1] - a[1]) };
}

function rangeText(timeline, from, to) {
  const sides = timeline.sides.map((_, side) => rangeOf(timeline, from, to, side));
  const lines = [`${timeWithUnit(timeline, to - from)}: ${timeOf(timeline, from)} to ${timeWithUnit(timeline, to)}`];
  for (const [side, r] of sides.entries()) {
    const waits = r.waits.slice(0, 4).map(([what, ticks]) => `${percentOf(ticks / r.all)} for ${what}`);
    lines.push(`${sides.length > 1 ? `${'AB'[side]}: ` : ''}ranks are busy ${percentOf(r.busy)}${waits.length ? `; they wait ${waits.join(', ')}` : ''}`);
  }
  return lines.join('\n');
}
