// The viewer draws timelines of up to some 10^6 operations on a canvas, in the pages of `show` and `diff` and in the
// live page. Its files are joined into one script:
//
//   data.js    reads the data, described below             lines.js   which lines of pixels a layout has
//   times.js   the operations' times                       sums.js    sums of colours, for many operations per pixel
//   needs.js   what operations need, and what needs them   pixels.js  pixels of lines, and of the map
//   names.js   names, titles, times and bytes as text      frames.js  frames, reusing the one before
//   layout.js  places of rows, for a height                paint.js   what is drawn over the pixels
//   mix.js     colours, and mixing them                    edges.js   the ruler, names and headings
//   range.js   what a range of time holds, and waits       place.js   what is at a place, and its description
//   parts.js   the elements around the canvas              table.js   what is in sight as tables
//   move.js    mouse, touch and keys
//   view.js    the picture in a page: what is in sight, selected, found; page.js  the static pages;
//   curve.js   the page of `frontier`
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
//   tensors           [text before the microbatch, text after it, slices per microbatch or 0]
//   sides             one, or A and B: { end, rows: [{ ranks: [[from, to]…], plan, lanes: [[name, operations]…],
//                     memory: [changes], joins: [time…] }] }; a row's first lane, named "", has its jobs
//   columns           { name: column }: numbers per operation, in order of sides, rows, and lanes, as described below
//   notes             why operations of a diff changed: {} stands for how much later the operation ends in B, {-1} for
//                     the microbatch one below its own
//   by, sends, stages, limit, top, joins, panels, titles, note: as in compiler/draw/view.h
//
// A column is base64 of signed integers, as varints of zigzag codes: 7 bits a byte, the lowest first. A zero and then n
// stand for n + 1 zeros. Each integer is a value minus a prediction: the same value of the last operation with the same
// symbol, unless the line below gives another:
//
//   symbol         no difference: its number + 1, or 0 for the symbol that last followed the two symbols before it
//   batch          predicted to be one more than the last one
//   version, flags, needs    version of its weights; VIEW_… of view.h; how many things it needs
//   match          diffs: number of its counterpart on the other side (-1: none), minus its own number
//   note           diffs: index in `notes`
//   root, shift    diffs: 0, or 1 + 2 * number + side of its root; how much later it ends in B. These four are
//                  predicted to change as much as they last did for the symbol
//
// For each thing that an operation needs, the prediction is from the same thing of the last operation with its symbol;
// from the eighth on, all of them share one:
//
//   need_row       row, minus the operation's own
//   need_op        place in that row (-1: nothing drawn), predicted to move as far as the operation's own place did
//   need_tensor    1 + tensor, or 0: no message brought it, and the following columns have no value
//   need_batch     the message's batch, minus the operation's own
//   need_bytes, need_from, need_to    its bytes; its ranks' rows, minus the operation's own row
//
// Times are predicted from the last operation with the same symbol in the same lane, and from the same thing that it
// needed, or the last thing if it needed fewer:
//
//   gap, length    time from when the operation could start to its start; time that it takes. It can start once the
//                  operation before it in the lane has ended and everything that it needs is there
//   need_after     with a message: time until it was sent, from the end of the operation that made it if that is drawn,
//                  else from the end of the operation before in the needing operation's lane
//   need_took      with a message: time that it was on the way
//
// For each change of memory, memory_time is the time since the change before it, predicted to be as long as the last such
// time; memory_bytes is the difference in bytes.

const CRITICAL = 1, UPPER = 2, LOWER = 4, FADED = 8, MOVED = 16, REORDERED = 32, ALONE = 64; // as in view.h

// Returns the numbers of a column.
function columnOf(base64, n, Type = Int32Array) {
  const text = atob(base64), numbers = new Type(n);
  for (let i = 0, at = 0; i < n && at < text.length; i++) {
    let v = 0, scale = 1, byte;
    do {
      byte = text.charCodeAt(at++);
      v += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    if (v > 0) numbers[i] = v % 2 ? -(v + 1) / 2 : v / 2;
    else {
      for (scale = 1; (byte = text.charCodeAt(at++)) > 127; scale *= 128) i += (byte & 127) * scale;
      i += byte * scale;
    }
  }
  return numbers;
}

// Returns { …the data, sides, rows, ops, needed }, where rows are all rows in order, each with the range [first, end) of
// its operations in the arrays of `ops`.
function readTimeline(text) {
  const data = JSON.parse(text), timeline = { ...data, rows: [] };
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
  readMemory(timeline);
  return timeline;
}

function readOperations(timeline) {
  const { n, symbols } = timeline, most = symbols.length, column = name => columnOf(timeline.columns[name], n), last = () => new Int32Array(most);
  const ops = { symbol: column('symbol'), batch: column('batch'), start: new Int32Array(n), end: new Int32Array(n), version: column('version'),
    flags: Uint8Array.from(column('flags')), needs: column('needs') };
  const { symbol, batch, version, flags, needs } = ops, batchBefore = last().fill(-1), versionBefore = last(), flagsBefore = last(), needsBefore = last();
  const followed = makeFollowed(most + 1);
  for (const row of timeline.rows) for (const lane of row.lanes)
    for (let i = lane.first, a = -1, b = -1; i < lane.end; i++) {
      const s = followed(a + 1, b + 1, symbol[i] - 1);
      a = b;
      b = s;
      symbol[i] = s;
      batch[i] = batchBefore[s] += batch[i] + 1;
      version[i] = versionBefore[s] += version[i];
      flags[i] = flagsBefore[s] += flags[i] << 24 >> 24;
      if (flags[i] & (UPPER | LOWER)) row.halved = true;
      needs[i] = needsBefore[s] += needs[i];
    }
  timeline.ops = ops;
  if (timeline.panels > 1) Object.assign(ops, readRelations(timeline, column));
  timeline.needed = readNeeds(timeline);
  readTimes(timeline);
}

// Returns a function of two symbols, and the next one or -1: returns the next, and notes it as what follows the two; for
// -1, returns what followed them last. Symbols are counted from 0, which stands for none, to most - 1.
function makeFollowed(most) {
  const small = most * most <= 1 << 22, table = small ? new Int32Array(most * most) : new Map();
  return (a, b, s) => {
    const key = a * most + b;
    if (s < 0) return small ? table[key] : table.get(key);
    if (small) table[key] = s;
    else table.set(key, s);
    return s;
  };
}

function readRelations({ rows, sides, symbols, ops: { symbol } }, column) {
  const relations = { match: column('match'), note: column('note'), root: column('root'), shift: column('shift') }, { match } = relations;
  for (const values of Object.values(relations)) {
    const before = new Int32Array(symbols.length), step = new Int32Array(symbols.length);
    for (let i = 0; i < values.length; i++) values[i] = before[symbol[i]] += step[symbol[i]] += values[i];
  }
  for (const row of rows) for (let i = row.first; i < row.end; i++) match[i] += i - sides[row.side].first;
  return relations;
}

function readMemory({ rows, columns }) { // row.memory becomes { time, bytes }: the amounts from each time on
  const n = rows.map(row => (row.memory ? row.memory[0] : 0)), all = n.reduce((a, b) => a + b, 0);
  const time = columnOf(columns.memory_time, all, Float64Array), bytes = columnOf(columns.memory_bytes, all, Float64Array);
  let at = 0;
  for (const [r, row] of rows.entries()) {
    row.memory = { time: time.subarray(at, at + n[r]), bytes: bytes.subarray(at, at += n[r]) };
    for (let i = 0, t = 0, step = 0, b = 0; i < n[r]; i++) {
      row.memory.time[i] = t += step += row.memory.time[i];
      row.memory.bytes[i] = b += row.memory.bytes[i];
    }
  }
}
