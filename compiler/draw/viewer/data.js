// The viewer draws timelines of up to some 10^6 operations on a canvas, in the pages of `show` and `diff` and in the
// live page. Its files are joined into one script:
//
//   data.js    reads the data, described below             pixels.js  pixels of rows, and of the map
//   names.js   names, titles, times and bytes as text       paint.js   what is drawn over them; a whole frame
//   needs.js   what operations need, read when needed       edges.js   the ruler, names and headings
//   layout.js  places of rows, for a height                 frames.js  frames that must not take long
//   mix.js     colours, and mixing them                     place.js   what is at a place, and its description
//   range.js   what a range of time holds, and waits        table.js   what is in sight as tables
//   parts.js   the elements around the canvas               move.js    mouse, touch and keys
//   view.js    the picture in a page: what is in sight, selected, found; page.js  the static pages
//
//   const view = makeView(host, { height, changed });         // host: an element; height(): most pixels of the window
//   view.show(readTimeline(text), keep);                      // keep: keeps the visible time if the end is the same
//   view.mark([{ name, match(title), near(title), before }]); // frames operations in red, or flags their neighbours
//   view.clear();
//
// The data (compiler/draw/put_view.c writes them) are JSON:
//
//   unit, tick        a tick is `tick` units; all times are whole ticks
//   end, from, to     of the timeline, and the part to show first
//   kinds             [letter, what, colour, lightness] per kind of operation; the last is `message`
//   symbols           [kind, text before the microbatch, text after it, stage, slices per microbatch or 0]
//   tensors           [text before the microbatch, text after it]
//   sides             one, or A and B: { end, rows: [{ ranks: [[from, to]…], plan, lanes: [[name, operations]…],
//                     memory: [changes], joins: [time…] }] }; a row's first lane, named "", has its jobs
//   columns           { name: column }: numbers per operation, in order of sides, rows, and lanes, as described below
//   by, sends, stages, limit, top, joins, panels, titles, notes, note: as in compiler/draw/view.h
//
// A column is base64 of signed integers, as varints of zigzag codes: 7 bits a byte, the lowest first. A zero and then n
// stand for n + 1 zeros. Each integer is a value minus a prediction: the same value of the last operation with the same
// symbol, unless the line below gives another:
//
//   symbol         no difference: its number + 1, or 0 for the symbol that last followed the two symbols before it
//   batch          predicted to be one more than the last one
//   gap, length    time since the end of the operation before it in the lane; time that it takes
//   version, flags, needs    version of its weights; VIEW_… of view.h; how many things it needs
//   match          diffs: number of its counterpart on the other side (-1: none), minus its own number
//   note           diffs: index in `notes`
//   root, shift    diffs: 0, or 1 + 2 * number + side of its root; how much later it ends in B. Predicted from the last
//                  operation of any symbol
//
// For each thing that an operation needs, the prediction is from the same thing of the last operation with its symbol;
// from the eighth on, all of them share one:
//
//   need_row       row, minus the operation's own
//   need_op        place in that row (-1: nothing drawn), predicted to move as far as the operation's own place did
//   need_tensor    1 + tensor, or 0: no message brought it, and the following columns have no value
//   need_batch     the message's batch, minus the operation's own
//   need_bytes, need_from, need_to    its bytes; its ranks' rows, minus the operation's own row
//   need_before, need_took    time from its arrival to the operation's start; time that it was on the way
//
// For each change of memory, memory_time is the time since the change before it, predicted to be as long as the last such
// time; memory_bytes is the difference in bytes.

const CRITICAL = 1, UPPER = 2, LOWER = 4, FADED = 8, MOVED = 16, REORDERED = 32, ALONE = 64; // as in view.h

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

class Column {
  constructor(base64) {
    this.bytes = bytesOf(base64);
    this.at = 0;
    this.zeros = 0;
  }

  varint() {
    let v = 0, scale = 1, byte;
    do {
      byte = this.bytes[this.at++];
      v += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return v;
  }

  next() {
    if (this.zeros > 0) {
      this.zeros--;
      return 0;
    }
    const v = this.varint();
    if (v === 0) this.zeros = this.varint();
    return v % 2 ? -(v + 1) / 2 : v / 2;
  }
}

// Returns { …the data, columns: {name: Column}, sides, rows, ops }, where rows are all rows in order, each with the
// range [first, end) of its operations in the arrays of `ops`.
function readTimeline(text) {
  const data = JSON.parse(text), columns = Object.fromEntries(Object.entries(data.columns).map(([name, base64]) => [name, new Column(base64)]));
  const timeline = { ...data, columns, rows: [] };
  let n = 0;
  for (const [s, side] of data.sides.entries()) {
    side.first = n;
    for (const [r, row] of side.rows.entries()) {
      Object.assign(row, { side: s, place: r, first: n });
      row.lanes = row.lanes.map(([name, count]) => ({ name, first: n, end: (n += count) }));
      row.end = n;
      timeline.rows.push(row);
    }
    side.rows0 = timeline.rows.length - side.rows.length; // number of its first row
  }
  timeline.n = n;
  readOperations(timeline);
  for (const row of timeline.rows) readMemory(row, columns);
  return timeline;
}

function readOperations(timeline) {
  const { n, columns: c, symbols } = timeline, most = symbols.length, diff = timeline.panels > 1;
  const int = () => new Int32Array(n), last = () => new Float64Array(most);
  const ops = { symbol: int(), batch: int(), start: int(), end: int(), version: int(), flags: new Uint8Array(n), needs: new Uint16Array(n),
    ...(diff && { match: int(), note: int(), root: int(), shift: int() }) };
  const batch = last().fill(-1), gap = last(), length = last(), version = last(), flags = last(), needs = last(), match = last(), note = last();
  const followed = new Map();
  let root = 0, shift = 0;
  for (const row of timeline.rows) for (const lane of row.lanes)
    for (let i = lane.first, a = -1, b = -1, time = 0; i < lane.end; i++) {
      const code = c.symbol.next(), key = (a + 1) * (most + 1) + b + 1, s = code ? code - 1 : followed.get(key);
      if (code) followed.set(key, s);
      a = b;
      b = s;
      ops.symbol[i] = s;
      ops.batch[i] = batch[s] += c.batch.next() + 1;
      ops.start[i] = time += gap[s] += c.gap.next();
      ops.end[i] = time += length[s] += c.length.next();
      ops.version[i] = version[s] += c.version.next();
      ops.flags[i] = flags[s] += c.flags.next();
      if (ops.flags[i] & (UPPER | LOWER)) row.halved = true;
      ops.needs[i] = needs[s] += c.needs.next();
      if (!diff) continue;
      ops.match[i] = (match[s] += c.match.next()) + i - timeline.sides[row.side].first;
      ops.note[i] = note[s] += c.note.next();
      ops.root[i] = root += c.root.next();
      ops.shift[i] = shift += c.shift.next();
    }
  timeline.ops = ops;
}

function readMemory(row, columns) { // row.memory becomes { time, bytes }: the amounts from each time on
  const n = row.memory ? row.memory[0] : 0, time = new Float64Array(n), bytes = new Float64Array(n);
  for (let i = 0, t = 0, step = 0, b = 0; i < n; i++) {
    time[i] = t += step += columns.memory_time.next();
    bytes[i] = b += columns.memory_bytes.next();
  }
  row.memory = { time, bytes };
}
