// Settles the operations' times: their columns hold differences from predictions, which need the times of other
// operations. So operations are settled lane by lane, and a lane waits for what its next operation needs.

function readTimes(timeline) {
  const { n, ops, needed, columns } = timeline, lanes = timeline.rows.flatMap(row => row.lanes), m = needed.op.length;
  const times = { ...ops, ...needed, gap: columnOf(columns.gap, n), length: columnOf(columns.length, n), sent: new Int32Array(m), arrived: new Int32Array(m) };
  const { gap, length } = times, before = new Int32Array(timeline.symbols.length).fill(-1), read = messageReader(times, columns);
  for (const lane of lanes) for (let i = lane.first; i < lane.end; i++) {
    const last = before[ops.symbol[i]] < lane.first ? -1 : before[ops.symbol[i]];
    before[ops.symbol[i]] = i;
    if (last >= 0) {
      gap[i] += gap[last];
      length[i] += length[last];
    }
    read(i, last);
  }
  settleAll(times, lanes);
  Object.assign(needed, { sent: times.sent, arrived: times.arrived });
}

// Returns a function that reads the differences that become the times sent and arrived.
function messageReader({ at, tensor, sent, arrived }, columns) {
  const after = columnOf(columns.need_after, tensor.length), took = columnOf(columns.need_took, tensor.length);
  let next = 0; // in the columns
  return (i, last) => {
    const none = last < 0 || at[last] === at[last + 1];
    for (let j = at[i]; j < at[i + 1]; j++) {
      if (tensor[j] < 0) continue;
      const same = none ? -1 : Math.min(at[last] + j - at[i], at[last + 1] - 1);
      sent[j] = (none ? 0 : sent[same]) + after[next];
      arrived[j] = (none ? 0 : arrived[same]) + took[next++];
    }
  };
}

function settleAll(times, lanes) {
  const { at, op, tensor, sent, arrived, start, end, gap, length } = times, ready = [], next = new Int32Array(lanes.length);
  const settled = new Uint8Array(start.length), waiter = new Int32Array(start.length).fill(-1), to = Int32Array.from(lanes, lane => lane.first);

  function missing(i) { // what i needs and is not settled, or -1
    for (let j = at[i]; j < at[i + 1]; j++) if (op[j] >= 0 && !settled[op[j]]) return op[j];
    return -1;
  }

  function settle(i, free) { // free: when the lane is
    let soonest = free;
    for (let j = at[i]; j < at[i + 1]; j++) {
      const known = op[j] >= 0 && settled[op[j]];
      let there = known ? end[op[j]] : 0;
      if (tensor[j] >= 0) {
        sent[j] += known ? there : free;
        there = arrived[j] += sent[j];
      }
      if (there > soonest) soonest = there;
    }
    start[i] = soonest + gap[i];
    end[i] = start[i] + length[i];
    settled[i] = 1;
    for (let l = waiter[i]; l >= 0; l = next[l]) ready.push(l);
  }

  function go(l, force) { // settles a lane up to an operation that needs what is not settled
    const { first, end: last } = lanes[l];
    for (; to[l] < last; to[l]++, force = false) {
      const i = to[l], by = force ? -1 : missing(i);
      if (by >= 0) {
        next[l] = waiter[by];
        waiter[by] = l;
        return;
      }
      settle(i, i > first ? end[i - 1] : 0);
    }
  }

  function stopWaiting(l) {
    const by = missing(to[l]);
    let k = waiter[by];
    if (k === l) waiter[by] = next[l];
    else {
      while (next[k] !== l) k = next[k];
      next[k] = next[l];
    }
  }

  for (let l = 0; l < lanes.length; l++) go(l, false);
  for (let l = 0; l < lanes.length;) {
    while (ready.length) go(ready.pop(), false);
    if (to[l] === lanes[l].end) l++;
    else {
      stopWaiting(l);
      go(l, true);
    }
  }
}
