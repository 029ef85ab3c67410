// Computes where rows are, given a height. A drawn row is an entry: { row, who, y, h, lanes: [{ lane, y, h }], memory:
// { y, h } or null, delta }; each `named`th has room for its name. If all rows fit in the height, each has its jobs, lanes and memory. Otherwise rows get
// lower, down to a fraction of a pixel; or, if `tall`, they keep their height and the picture scrolls.

const RULER = 24, HEADING = 24, JOB = 22, LANE = 12, MEMORY = 30, GAP = 7, LOW = 6, TOP = 4; // LOW: lower rows touch

function entriesOf(timeline, unfold) {
  const entry = (row, delta) => ({ row, delta, who: ranksText(row), count: countOf(row) });
  const each = row => row.ranks.flatMap(([a, b]) => Array.from({ length: b - a + 1 }, (_, i) => ({ row, delta: false, who: `rank ${a + i}`, count: 1 })));
  const [a, b] = [0, 1].map(side => timeline.rows.filter(row => row.side === side));
  if (timeline.panels === 1) return [unfold ? a.flatMap(each) : a.map(row => entry(row, false))];
  return [a.map(row => entry(row, false)), b.map(row => entry(row, false)), b.map(row => entry(row, true))];
}

// look: { memory: true, false, or null for where there is room, tall, unfold }
function layoutOf(timeline, height, look) {
  const panels = entriesOf(timeline, look.unfold), all = panels.flat(), headings = timeline.panels > 1 ? panels.length * HEADING : 0;
  const lanes = all.reduce((sum, e) => sum + (e.delta ? 0 : e.row.lanes.length - 1), 0);
  const curves = all.filter(e => !e.delta && e.row.memory.time.length > 0).length;
  const room = height - RULER - headings - TOP, jobs = all.length * (JOB + GAP) + lanes * LANE;
  const memory = look.memory ?? (look.tall || jobs + curves * MEMORY <= room);
  const natural = jobs + (memory ? curves * MEMORY : 0), k = look.tall ? 1 : Math.min(1, room / natural);
  const touch = JOB * k < LOW, job = touch ? (JOB + GAP) * k : JOB * k;
  const titles = [];
  let y = headings ? 0 : TOP;
  for (const [p, entries] of panels.entries()) {
    if (headings) titles.push({ panel: p, y }), y += HEADING;
    for (const [number, e] of entries.entries()) {
      Object.assign(e, { number, y, h: job, panel: p, lanes: [], memory: null });
      y += job;
      for (const lane of e.delta ? [] : e.row.lanes.slice(1)) {
        e.lanes.push({ lane, y: y + k, h: (LANE - 1) * k });
        y += LANE * k;
      }
      if (memory && !e.delta && e.row.memory.time.length) {
        e.memory = { y: y + 3 * k, h: (MEMORY - 3) * k };
        y += MEMORY * k;
      }
      e.foot = y;
      y += touch ? 0 : GAP * k;
    }
  }
  const shows = new Map(timeline.rows.map(row => [row, []])); // per row: its entries
  for (const e of all) shows.get(e.row).push(e);
  const named = panels[0].length > 1 ? Math.max(1, roundUp(14 / (panels[0][1].y - panels[0][0].y))) : 1;
  return { entries: all, shows, named, titles, bottom: y, job, height: Math.min(height, RULER + Math.ceil(y)), left: 92 };
}

function entryAt(layout, y) { // the entry at a height, with its part: 'jobs', a lane, 'memory' or ''
  const { entries } = layout;
  let low = 0, high = entries.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (entries[middle].y <= y) low = middle;
    else high = middle - 1;
  }
  const e = entries[low];
  if (!e || y < e.y || y > e.foot) return null;
  if (y < e.y + e.h) return { entry: e, part: e.row.lanes[0], jobs: true };
  const lane = e.lanes.find(l => y >= l.y && y < l.y + l.h);
  return lane ? { entry: e, part: lane.lane, jobs: false } : { entry: e, part: null, memory: Boolean(e.memory) };
}
