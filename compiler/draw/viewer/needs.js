// Reads what operations need, and what needs them. It takes longer than reading everything else, so it is deferred until
// someone asks for it, or until the page is idle.

const needColumns = ['need_row', 'need_op', 'need_tensor', 'need_batch', 'need_bytes', 'need_from', 'need_to', 'need_before', 'need_took'];

// Returns { at, op, tensor, batch, bytes, from, to, sent, arrived }: operation i needs at[i] to at[i + 1] of the
// others. op: the operation that produced the need, or -1; tensor -1: no message brought it.
function readNeeds(timeline) {
  const { n, ops, columns, symbols, rows } = timeline, SLOTS = 8, FIELDS = needColumns.length;
  const at = new Int32Array(n + 1);
  for (let i = 0; i < n; i++) at[i + 1] = at[i] + ops.needs[i];
  const m = at[n], int = () => new Int32Array(m);
  const needs = { at, op: int(), tensor: int(), batch: int(), bytes: new Float64Array(m), from: int(), to: int(), sent: int(), arrived: int() };
  const [row, op, tensor, ...message] = needColumns.map(name => columns[name]);
  const last = new Float64Array(symbols.length * SLOTS * FIELDS), place = new Int32Array(symbols.length);
  for (const own of rows) for (let i = own.first; i < own.end; i++) {
    const s = ops.symbol[i], moved = i - own.first - place[s];
    place[s] = i - own.first;
    for (let k = 0; k < ops.needs[i]; k++) {
      const j = at[i] + k, o = (s * SLOTS + Math.min(k, SLOTS - 1)) * FIELDS;
      const r = own.place + (last[o] += row.next()), p = last[o + 1] += op.next() + moved, t = last[o + 2] += tensor.next();
      needs.op[j] = p < 0 ? -1 : rows[timeline.sides[own.side].rows0 + r].first + p;
      needs.tensor[j] = t - 1;
      if (t === 0) continue;
      for (let f = 0; f < message.length; f++) last[o + 3 + f] += message[f].next();
      needs.batch[j] = last[o + 3] + ops.batch[i];
      needs.bytes[j] = last[o + 4];
      needs.from[j] = last[o + 5] + own.place;
      needs.to[j] = last[o + 6] + own.place;
      needs.arrived[j] = ops.start[i] - last[o + 7];
      needs.sent[j] = needs.arrived[j] - last[o + 8];
    }
  }
  return needs;
}

function needsOf(timeline) {
  timeline.needed ||= readNeeds(timeline);
  return timeline.needed;
}

// Returns { at, op }: op[at[i]] to op[at[i + 1]] need operation i.
function usersOf(timeline) {
  if (timeline.users) return timeline.users;
  const needs = needsOf(timeline), n = timeline.n, at = new Int32Array(n + 1);
  for (const op of needs.op) if (op >= 0) at[op + 1]++;
  for (let i = 0; i < n; i++) at[i + 1] += at[i];
  const next = at.slice(), op = new Int32Array(at[n]);
  for (let i = 0; i < n; i++) for (let j = needs.at[i]; j < needs.at[i + 1]; j++) if (needs.op[j] >= 0) op[next[needs.op[j]]++] = i;
  return timeline.users = { at, op };
}

// Returns the need that operation i waited for longest: the one that arrived last, or -1.
function lastNeed(timeline, i) {
  const needs = needsOf(timeline), ready = j => (needs.tensor[j] >= 0 ? needs.arrived[j] : needs.op[j] >= 0 ? timeline.ops.end[needs.op[j]] : -1);
  let best = -1;
  for (let j = needs.at[i]; j < needs.at[i + 1]; j++) if (best < 0 || ready(j) > ready(best)) best = j;
  return best;
}
