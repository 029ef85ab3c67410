// Names, titles, times and bytes as text, in the form that the compiler writes (compiler/draw/labels.c, emit_svg.c).

const escapeHtml = text => text.replace(/[&<>"]/g, c => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);

function roundUp(least) { // to 1, 2 or 5 times a power of ten
  const power = 10 ** Math.floor(Math.log10(least));
  return power * (least <= power ? 1 : least <= 2 * power ? 2 : least <= 5 * power ? 5 : 10);
}

// Return a number with 4 digits, with a decimal, or without, as C's %.4g, %.1f and %.0f: a half is rounded to even.
function significant(x) {
  const half = /^(-?\d\.\d\d[02468])50*(e.*)$/.exec(x.toExponential(40)), [digits, power] = (half ? half[1] + half[2] : x.toExponential(3)).split('e');
  return power >= -4 && power < 4 ? String(Number(`${digits}e${power}`)) : `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, '0')}`;
}
const decimalText = x => (x % 1 === 0.25 ? x - 0.05 : x).toFixed(1); // x is not negative
function wholeText(x) {
  const up = Math.round(x);
  return (up - x === 0.5 && up % 2 ? up - 1 : up).toFixed(0);
}

function timeOf(timeline, ticks) {
  const x = ticks * timeline.tick, whole = Math.abs(x) >= 1000 || x === Math.floor(x);
  return whole && Math.abs(x) < 1e15 ? wholeText(x) : significant(x);
}

function timeWithUnit(timeline, ticks) {
  const time = timeOf(timeline, ticks), one = time === '1' || time === '-1';
  return `${time} ${one && timeline.unit === 'units' ? 'unit' : timeline.unit}`;
}

function amountOf(bytes) {
  if (bytes < 10 * 1024) return `${bytes.toFixed(0)} B`;
  const names = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let x = bytes / 1024, i = 0;
  for (; x >= 1023.95 && i < 5; i++) x /= 1024;
  return `${x < 1e6 ? decimalText(x) : significant(x)} ${names[i]}`;
}

const percentOf = share => `${decimalText(100 * share)} %`;

const kindOf = (timeline, i) => timeline.symbols[timeline.ops.symbol[i]][0];
const isMessage = (timeline, i) => kindOf(timeline, i) === timeline.kinds.length - 1;
const isUpdate = (timeline, i) => timeline.kinds[kindOf(timeline, i)][0] === 'U';

// Returns a microbatch, or a slice of one: 3, or 3.1.
const numberText = (batch, slices) => (slices ? `${Math.floor(batch / slices)}.${batch % slices}` : String(batch));

function batchText(timeline, i) {
  const { batch } = timeline.ops;
  return batch[i] < 0 ? '' : numberText(batch[i], timeline.symbols[timeline.ops.symbol[i]][4]);
}

function nameOf(timeline, i) {
  const [, before, after] = timeline.symbols[timeline.ops.symbol[i]];
  return before + batchText(timeline, i) + after;
}

// Returns the names of a block from the longest to the shortest: 1F3, F3, 3.
function labelsOf(timeline, i) {
  const name = nameOf(timeline, i), [letter] = timeline.kinds[kindOf(timeline, i)], short = letter + batchText(timeline, i);
  return [...(timeline.stages ? [name] : []), short, batchText(timeline, i)];
}

const runsOf = ranks => ranks.map(([a, b]) => (a === b ? `${a}` : `${a}${b > a + 1 ? '–' : ', '}${b}`)).join(', ');
const countOf = row => row.ranks.reduce((sum, [a, b]) => sum + b - a + 1, 0);
const ranksText = row => `${countOf(row) > 1 ? 'ranks' : 'rank'} ${runsOf(row.ranks)}`;

function rowOf(timeline, i) { // the row of an operation
  const { rows } = timeline;
  let low = 0, high = rows.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rows[middle].first <= i) low = middle;
    else high = middle - 1;
  }
  return rows[low];
}

function whatText(timeline, i) { // ": forward of stage 0, microbatch 3"
  const { batch } = timeline.ops, [kind, , , stage, slices] = timeline.symbols[timeline.ops.symbol[i]];
  const number = batch[i] < 0 ? '' : isUpdate(timeline, i) ? `, update ${batch[i]}` :
    slices ? `, microbatch ${Math.floor(batch[i] / slices)}, slice ${batch[i] % slices}` : `, microbatch ${batch[i]}`;
  return `: ${timeline.kinds[kind][1]} of stage ${stage}${number}`;
}

const spanText = (timeline, i) => `${timeOf(timeline, timeline.ops.start[i])} to ${timeOf(timeline, timeline.ops.end[i])} ${timeline.unit}`;

// Returns the operation's title: what it is, where and when, and in a diff why it changed. who: of one of equal ranks
function titleOf(timeline, i, who = ranksText(rowOf(timeline, i))) {
  const { ops } = timeline, name = nameOf(timeline, i);
  if (timeline.panels > 1) return diffTitle(timeline, i);
  if (isMessage(timeline, i)) return `${name}; ${who}; ${spanText(timeline, i)}`;
  const version = ops.version[i] >= 0 ? `, weights of version ${ops.version[i]}` : '';
  return `${name}${whatText(timeline, i)}${version}; ${who}; ${spanText(timeline, i)}${ops.flags[i] & CRITICAL ? '; on the critical path' : ''}`;
}

function matchOf(timeline, i) { // the same operation in the other side, or -1
  const { side } = rowOf(timeline, i), place = timeline.ops.match[i];
  return place < 0 ? -1 : timeline.sides[1 - side].first + place;
}

function noteOf(timeline, i) { // why an operation of a diff changed
  const { note, batch, shift } = timeline.ops, later = `${shift[i] > 0 ? '+' : ''}${timeWithUnit(timeline, shift[i])}`;
  return timeline.notes[note[i]].replace(/{([+-]\d+)?}/g, (_, batches) => (batches ? batch[i] + Number(batches) : later));
}

function diffTitle(timeline, i) {
  const twin = matchOf(timeline, i), pair = twin < 0 ? [i] : [i, twin].sort((a, b) => a - b);
  const where = pair.map(k => `; in ${'AB'[rowOf(timeline, k).side]} ${ranksText(rowOf(timeline, k))}, ${spanText(timeline, k)}`);
  return nameOf(timeline, i) + whatText(timeline, i) + where.join('') + noteOf(timeline, i);
}

function messageTitle(timeline, j) { // of need j, which a message brought
  const needs = needsOf(timeline), [before, after, slices] = timeline.tensors[needs.tensor[j]];
  const batch = after === '' ? '' : numberText(needs.batch[j], slices);
  return `${before}${batch}${after}, ${amountOf(needs.bytes[j])}, from rank ${needs.from[j]} to rank ${needs.to[j]}; ` +
    `${timeOf(timeline, needs.sent[j])} to ${timeOf(timeline, needs.arrived[j])} ${timeline.unit}`;
}

function needText(timeline, j) {
  const needs = needsOf(timeline), from = needs.op[j] >= 0 ? titleOf(timeline, needs.op[j]) : '', by = needs.tensor[j] >= 0 ? messageTitle(timeline, j) : '';
  return `needs ${from}${from && by ? ', by ' : ''}${by}`;
}
