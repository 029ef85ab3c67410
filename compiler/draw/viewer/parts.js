// The elements of a viewer: controls, the canvas with its map, the legend, the description of the selection, and tables.

const HINT = 'Point at an operation to see what it needs; a click keeps it. The wheel zooms time, dragging pans, dragging on the ruler or with Shift measures. ' +
  'Keys: w s zoom, a d pan, f goes to the selection, , . next in the row, ← → along dependencies, ↑ ↓ rows, 0 all, Escape.';
const TOUCH_HINT = 'Tap an operation to see what it needs; dragging sideways pans, dragging on the ruler measures, two fingers zoom.';

const viewerHtml = `<div class="v-bar">
  <input type="search" class="v-find" placeholder="find 3B17" aria-label="Find an operation, such as 3B17, or a rank, such as rank 3" size="10">
  <span class="v-said" role="status"></span><span class="v-grow"></span>
  <label><span class="v-out">Colours</span><select class="v-by" title="colours by kind of job, by microbatch, or by stage"><option value="op">by job</option><option value="mb">by microbatch</option><option value="stage">by stage</option></select></label>
  <label class="v-only-lanes" title="a row per communication lane: what runs beside the jobs"><input type="checkbox" class="v-lanes"> lanes</label>
  <label class="v-only-needs" title="an arrow per message"><input type="checkbox" class="v-sends"> messages</label>
  <label class="v-only-memory" title="memory in use, under each row"><input type="checkbox" class="v-memory"> memory</label>
  <label class="v-only-many" title="rows high enough to read; scroll by dragging or with ↑ and ↓"><input type="checkbox" class="v-tall"> tall rows</label>
  <label class="v-only-shared" title="equal ranks share a row"><input type="checkbox" class="v-fold" checked> fold equal ranks</label>
  <span class="v-zoom"><button type="button" data-key="w" aria-label="Zoom in">+</button><button type="button" data-key="s" aria-label="Zoom out">−</button><button type="button" data-key="0" title="all of the time (0)">All</button></span>
</div>
<div class="v-stage" tabindex="0" role="application" aria-label="Timeline. w and s zoom, a and d pan, 0 shows all; full stop and comma go from operation to operation, left and right along dependencies, up and down between ranks; f goes to the selection, Escape leaves it. A table follows.">
  <canvas class="v-rows"></canvas><canvas class="v-map" title="all of the time: drag to move"></canvas><div class="v-view"></div>
</div>
<div class="v-legend"></div>
<pre class="v-info" aria-live="polite"></pre>
<details class="v-table"><summary>What is in sight, as a table</summary><div></div></details>`;

function makeParts(host) {
  host.classList.add('viewer');
  host.innerHTML = viewerHtml;
  const names = ['find', 'said', 'by', 'lanes', 'sends', 'memory', 'tall', 'fold', 'stage', 'rows', 'map', 'view', 'legend', 'info', 'table'];
  return Object.fromEntries(names.map(name => [name, host.querySelector(`.v-${name}`)]));
}

// Hides the controls that a timeline has no use for.
function offer(host, timeline, layout, canRecompile) {
  const show = (name, yes) => host.querySelector(`.v-only-${name}`).classList.toggle('v-none', !yes);
  const shared = timeline.rows.some(row => countOf(row) > 1);
  show('lanes', canRecompile);
  show('needs', timeline.panels === 1);
  show('memory', timeline.rows.some(row => row.memory.time.length > 0));
  show('many', layout.entries.length > 8);
  show('shared', shared);
}

function legendHtml({ timeline, ink, mixers, layout }, by) {
  const drawn = [...new Set(timeline.symbols.map(s => s[0]))].sort((a, b) => a - b), { kinds } = timeline;
  const key = (style, text) => `<span><i style="${style}"></i>${escapeHtml(text)}</span>`;
  const jobs = drawn.filter(k => by === 'op' || k === kinds.length - 1).map(k => key(`background:${kinds[k][2]}`, `${kinds[k][0]} ${kinds[k][1]}`.trim()));
  if (by !== 'op') jobs.unshift(key('background:linear-gradient(90deg,#295c8f,#8f2929,#298f4a)', `a hue per ${by === 'mb' ? 'microbatch' : 'stage'}, dark forward`));
  const { top, limit } = timeline, curves = layout.entries.some(e => e.memory), flags = f => timeline.ops.flags.some(v => v & f);
  const more = [key(`background:rgb(${ink.idle.map(Math.round)})`, 'idle'), key('border:2px solid var(--ink)', 'critical path')];
  if (timeline.panels > 1) {
    more.push(key('background:#99c7e0', 'faded: unchanged but for its time'));
    if (flags(MOVED)) more.push(key('border:2px solid #d55e00', 'moved to another rank'));
    if (flags(REORDERED)) more.push(key('border:2px dashed #d55e00', 'reordered'));
    if (flags(ALONE)) more.push(key('background:linear-gradient(225deg,var(--ink) 40%,#ddd 40%)', 'only in A, or only in B'));
    const { most } = mixers[1].palette;
    if (most) more.push(key('width:90px;background:linear-gradient(90deg,#2166ac,#f7f7f7,#b2182b)', `ends up to ${timeWithUnit(timeline, most)} earlier (blue) or later (red) in B`));
    else more.push('<span>no job ends earlier or later</span>');
  }
  if (timeline.joins) more.push(key('border:0 dashed var(--ink);border-left-width:2px;width:2px', timeline.joins));
  if (curves) more.push(key('background:var(--memory)', 'memory in use'), key('height:0;border-top:1px dashed var(--faint)', 'the plan, what is allocated'));
  if (curves && limit !== null) more.push(key('height:0;border-top:2px solid var(--alarm)', `the limit, ${amountOf(limit)}${limit > top ? ': beyond the scale' : ''}`));
  return [...jobs, ...more].join('');
}
