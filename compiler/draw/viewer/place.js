// Finds what is at a place of a frame, its description, and what is highlighted with it.

const nothing = () => ({ op: -1, needs: [], users: [], twins: [], root: -1, bad: [], flags: [] });

// Returns { region: 'ruler', 'names', 'job', 'lane', 'idle', 'memory' or 'blank', op, entry, time }.
function hitAt(f, x, y) {
  const time = f && timeAt(f, x), at = (region, more) => ({ region, op: -1, time, ...more });
  if (!f || x < 0 || y < 0 || x > f.width || y > f.layout.height) return at('blank');
  if (y < RULER) return at('ruler');
  const found = entryAt(f.layout, y - RULER + f.y);
  if (!found) return at('blank');
  const { entry, part, jobs, memory } = found, { start, end, flags } = f.timeline.ops;
  if (x < f.layout.left) return at('names', { entry });
  if (time < 0 || time > f.timeline.sides[entry.row.side].end) return at('blank');
  if (!part) return at(memory ? 'memory' : 'blank', { entry });
  for (let i = Math.max(part.first, firstAfter(end, part.first, part.end, time) - 1); i < part.end && start[i] <= time; i++) {
    const b = boxIn(f, entry, i);
    if (end[i] > time && (!(flags[i] & (UPPER | LOWER)) || (y >= b.y && y <= b.y + b.h))) return at(jobs ? 'job' : 'lane', { entry, op: i });
  }
  return at('idle', { entry, next: firstAfter(end, part.first, part.end, time), part });
}

function describe(f, { region, op, entry, time, next, part }) {
  const { timeline } = f, { ops } = timeline;
  if (op >= 0) return explain(f, op, entry);
  if (region === 'ruler') return timeWithUnit(timeline, time);
  if (region === 'names') return `${entry.who}: busy ${percentOf(eachGap(timeline, entry.row, f.from, f.to, () => {}) / (f.to - f.from))} of the time in sight`;
  if (region === 'memory') {
    const { time: at, bytes } = entry.row.memory, i = firstAfter(at, 0, at.length, time) - 1;
    return `${entry.who}: ${amountOf(i < 0 ? 0 : bytes[i])} in use at ${timeWithUnit(timeline, time)}, of a plan of ${amountOf(entry.row.plan)}`;
  }
  if (region !== 'idle') return '';
  const from = next > part.first ? ops.end[next - 1] : 0, before = `${entry.who} idle, ${timeOf(timeline, from)} to `;
  if (next >= part.end) return `${before}${timeWithUnit(timeline, timeline.sides[entry.row.side].end)}: no job is left`;
  const j = lastNeed(timeline, next);
  return `${before}${timeWithUnit(timeline, ops.start[next])}; then ${nameOf(timeline, next)}${j >= 0 ? `, which ${needText(timeline, j)}` : ''}`;
}

const twinsOf = (timeline, i) => (timeline.panels > 1 ? [matchOf(timeline, i)].filter(twin => twin >= 0) : []);

function explain(f, i, entry) { // title, needs and root
  const { timeline } = f, twins = twinsOf(timeline, i), needs = needsOf(timeline), lines = [];
  for (const op of [i, ...twins]) for (let j = needs.at[op]; j < needs.at[op + 1]; j++) lines.push(needText(timeline, j));
  const root = rootOf(f, i);
  if (root >= 0) lines.push(`root: ${titleOf(timeline, root)}`);
  return [titleOf(timeline, i, entry && !entry.delta && entry.count === 1 ? entry.who : undefined), ...new Set(lines)].join('\n');
}

function rootOf(f, i) {
  const code = f.timeline.panels > 1 ? f.timeline.ops.root[i] : 0;
  return code ? f.timeline.sides[(code - 1) % 2].first + Math.floor((code - 1) / 2) : -1;
}

function placeOf(f, i) { // what is highlighted with operation i
  const { timeline } = f, needs = needsOf(timeline), users = usersOf(timeline), of = op => Array.from({ length: needs.at[op + 1] - needs.at[op] }, (_, k) => [op, needs.at[op] + k]);
  const twins = twinsOf(timeline, i), later = [...users.op.subarray(users.at[i], users.at[i + 1])];
  return { ...nothing(), op: i, twins, root: rootOf(f, i), needs: [i, ...twins].flatMap(of), users: later.flatMap(of).filter(([, j]) => needs.op[j] === i) };
}
