// Reads what operations need, and what needs them. What a message brought is read later than the rest, once someone
// asks for it or the page is idle.

const SLOTS = 8; // needs of an operation that are predicted one by one

// Returns { at, op, tensor }: operation i needs at[i] to at[i + 1] of the others. op: the operation that made the need,
// or -1; tensor -1: no message brought it. readTimes adds sent and arrived; needsOf adds batch, bytes, from and to.
function readNeeds(timeline) {
  const { n, ops: { symbol, needs }, columns, symbols, rows, sides } = timeline, at = new Int32Array(n + 1);
  for (let i = 0; i < n; i++) at[i + 1] = at[i] + needs[i];
  const column = name => columnOf(columns[name], at[n]), row = column('need_row'), op = column('need_op'), tensor = column('need_tensor');
  const last = () => new Int32Array(symbols.length * SLOTS), place = new Int32Array(symbols.length), rowBefore = last(), opBefore = last(), tensorBefore = last();
  const first = Int32Array.from(rows, r => r.first);
  for (const own of rows) for (let i = own.first, base = sides[own.side].rows0 + own.place; i < own.end; i++) {
    const s = symbol[i], moved = i - own.first - place[s];
    place[s] = i - own.first;
    for (let j = at[i], k = 0; j < at[i + 1]; j++, k++) {
      const o = s * SLOTS + (k < SLOTS ? k : SLOTS - 1), r = base + (rowBefore[o] += row[j]), p = opBefore[o] += op[j] + moved;
      op[j] = p < 0 ? -1 : first[r] + p;
      tensor[j] = (tensorBefore[o] += tensor[j]) - 1;
    }
  }
  return { at, op, tensor };
}

function readMessages({ ops: { symbol, batch }, columns, symbols, rows, needed }) {
  const { at, tensor } = needed, m = tensor.length, int = () => new Int32Array(m), column = (name, Type) => columnOf(columns[name], m, Type);
  const more = { batch: column('need_batch'), bytes: column('need_bytes', Float64Array), from: column('need_from'), to: column('need_to') };
  const last = () => new Float64Array(symbols.length * SLOTS), batchBefore = last(), bytesBefore = last(), fromBefore = last(), toBefore = last();
  const messages = { batch: int(), bytes: new Float64Array(m), from: int(), to: int() };
  let next = 0; // in the columns
  for (const own of rows) for (let i = own.first; i < own.end; i++)
    for (let j = at[i]; j < at[i + 1]; j++) {
      if (tensor[j] < 0) continue;
      const o = symbol[i] * SLOTS + Math.min(j - at[i], SLOTS - 1);
      messages.batch[j] = batch[i] + (batchBefore[o] += more.batch[next]);
      messages.bytes[j] = bytesBefore[o] += more.bytes[next];
      messages.from[j] = own.place + (fromBefore[o] += more.from[next]);
      messages.to[j] = own.place + (toBefore[o] += more.to[next++]);
    }
  return messages;
}

function needsOf(timeline) {
  if (!timeline.needed.batch) Object.assign(timeline.needed, readMessages(timeline));
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
