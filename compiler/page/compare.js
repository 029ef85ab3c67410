// A table of the chosen schedules at equal numbers of ranks and microbatches, and a plot of their makespans over their
// memory.

const compared = [['schedule', 'schedule'], ['makespan', 'makespan'], ['bubble', 'bubble'], ['peak_activations', 'live'],
  ['peak_bytes', 'memory'], ['bytes_sent', 'sent'], ['stages', 'stages'], ['staleness', 'staleness'], ['gap', 'gap']];
const usual = ['gpipe', '1f1b', 'interleaved', 'zb_h1', 'zbv', 'v_half', 'v_min', 'chimera', 'dualpipev', 'hanayo'];

function bytesText(n) {
  const unit = ['B', 'kB', 'MB', 'GB', 'TB'], k = n < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(n) / 3));
  return `${Number((n / 1000 ** k).toPrecision(3))} ${unit[k]}`;
}

function timeText(n, unit) {
  if (unit === 'F') return `${Number(n.toPrecision(n < 1000 ? 4 : 7))} units`;
  if (unit !== 's') {
    const k = n < 1000 ? 0 : Math.min(6, Math.floor(Math.log10(n) / 3));
    return `${Number((n / 1000 ** k).toPrecision(4))} ${['', 'k', 'M', 'G', 'T', 'P', 'E'][k]}${unit}`;
  }
  const k = n >= 1 ? 0 : n >= 1e-3 ? 1 : 2;
  return `${Number((n * 1000 ** k).toPrecision(4))} ${['s', 'ms', 'us'][k]}`;
}

function plotOf(rows, unit, now, room) { // as wide as the space available, so that its text keeps the page's size
  const W = Math.max(300, Math.min(700, room)), H = 300, L = 80, R = W < 500 ? 40 : 110, T = 14, B = 40, span = (list, pad) => {
    const [lo, hi] = [Math.min(...list), Math.max(...list)], d = (hi - lo) * pad || hi * 0.1 || 1;
    return [Math.max(0, lo - d), hi + d];
  };
  const [x0, x1] = span(rows.map(r => r.peak_bytes), 0.08), [y0, y1] = span(rows.map(r => r.makespan), 0.08);
  const x = v => L + ((v - x0) / (x1 - x0)) * (W - L - R), y = v => H - B - ((v - y0) / (y1 - y0)) * (H - B - T);
  const ticks = (a, b) => { // about five round numbers
    const raw = (b - a) / 5, ten = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find(k => k * ten >= raw) * ten, out = [];
    for (let v = Math.ceil(a / step) * step; v <= b; v += step) out.push(v);
    return out;
  };
  let out = `<svg viewBox="0 0 ${W} ${H}" width="${W}" height="${H}" role="img" aria-label="Makespan over the largest memory of a rank">`;
  for (const v of ticks(x0, x1)) out += `<path class="grid" d="M${x(v)} ${T}V${H - B}"/><text class="mid" x="${x(v)}" y="${H - B + 14}">${bytesText(v)}</text>`;
  for (const v of ticks(y0, y1)) out += `<path class="grid" d="M${L} ${y(v)}H${W - R}"/><text class="end" x="${L - 6}" y="${y(v) + 3.5}">${timeText(v, unit)}</text>`;
  const best = rows.filter(r => !rows.some(o => o !== r && o.makespan <= r.makespan && o.peak_bytes <= r.peak_bytes &&
    (o.makespan < r.makespan || o.peak_bytes < r.peak_bytes))).sort((p, q) => p.peak_bytes - q.peak_bytes);
  out += `<path class="front" d="${best.map((r, i) => `${i ? `H${x(r.peak_bytes)}V` : `M${x(r.peak_bytes)} `}${y(r.makespan)}`).join('')}"/>`;
  // Prints names where there is room, beginning with the best schedules and the editor's. The others show their names
  // when pointed at.
  const weight = r => (r.schedule === now ? 0 : best.includes(r) ? 1 : 2), used = rows.map(r => [x(r.peak_bytes) - 5, y(r.makespan) - 4, 10, 8]);
  const free = (l, t, w, h) => t > T - 6 && t + h < H - B && l + w < W && !used.some(u => l < u[0] + u[2] && u[0] < l + w && t < u[1] + u[3] && u[1] < t + h);
  for (const r of rows) out += `<circle class="${['now', 'best', ''][weight(r)]}" cx="${x(r.peak_bytes)}" cy="${y(r.makespan)}" r="4"><title>${escapeHtml(r.schedule)}: ${timeText(r.makespan, unit)}, ${bytesText(r.peak_bytes)}</title></circle>`;
  for (const r of [...rows].sort((p, q) => weight(p) - weight(q))) {
    const left = x(r.peak_bytes) + 7, width = 6.5 * r.schedule.length;
    const at = [0, 9, -9].map(d => y(r.makespan) + d).find(middle => free(left, middle - 5, width, 10));
    if (at === undefined) continue;
    used.push([left, at - 5, width, 10]);
    out += `<text x="${left}" y="${at + 3.5}">${escapeHtml(r.schedule)}</text>`;
  }
  return out + `<text class="mid" x="${(L + W - R) / 2}" y="${H - 6}">largest memory of a rank</text><text class="mid" transform="translate(12 ${(H - B + T) / 2}) rotate(-90)">makespan</text></svg>`;
}

// current(): {path, files, flags that apply to all schedules}; open(path): opens a schedule
function makeCompare(schedules, current, open) {
  const $ = id => document.getElementById(id);
  const paths = new Map(schedules.map(path => [path.replace(/^.*\/|\.lua$/g, ''), path]));
  let sorted = 'makespan', answer = null;
  $('choices').innerHTML = schedules.map(path => {
    const name = path.replace(/^schedules\/|\.lua$/g, '');
    return `<label><input type="checkbox" value="${path}"${usual.includes(name) ? ' checked' : ''}> ${name}</label>`;
  }).join('');

  function draw() {
    if (!answer) return;
    const { schedules: rows, unit } = answer, now = current().path.replace(/^.*\/|\.lua$/g, '');
    const cell = (row, key) => {
      const v = row[key];
      if (key === 'schedule' && paths.has(v)) return `<button type="button" class="link" data-open="${escapeHtml(v)}" title="show it">${escapeHtml(v)}</button>`;
      return v === null || v === undefined ? '–' : key === 'makespan' ? timeText(v, unit) : key === 'bubble' || key === 'gap' ? `${(100 * v).toFixed(1)} %` :
        key.includes('bytes') ? bytesText(v) : typeof v === 'number' ? Number(v.toPrecision(4)) : escapeHtml(v);
    };
    const order = [...rows].sort((p, q) => (sorted === 'schedule' ? (p.schedule < q.schedule ? -1 : 1) : p[sorted] - q[sorted]));
    $('table').innerHTML = `<table><thead><tr>${compared.map(([key, head]) => `<th scope="col" aria-sort="${key === sorted ? 'ascending' : 'none'}"><button type="button" data-key="${key}">${head}</button></th>`).join('')}</tr></thead><tbody>${order.map(row =>
      `<tr${row.schedule === now ? ' class="now"' : ''}>${compared.map(([key]) => `<td>${cell(row, key)}</td>`).join('')}</tr>`).join('')}</tbody></table>` +
      answer.left_out.map(o => `<p class="hint">left out: ${escapeHtml(typeof o === 'string' ? o : `${o.schedule || o.script || ''}: ${o.why || o.error || JSON.stringify(o)}`)}</p>`).join('');
    $('plot').innerHTML = rows.length ? plotOf(rows, unit, now, $('plot').clientWidth) : '';
  }

  const runner = makeRunner(({ code, stdout, stderr, ms }) => {
    $('compare-note').textContent = code === 0 ? `${Math.round(ms)} ms` : stderr;
    if (code === 0) { answer = JSON.parse(stdout); draw(); }
  }, running => { if (running) $('compare-note').textContent = 'comparing'; });

  function compare() {
    const { path, files, flags } = current();
    const chosen = [...$('choices').querySelectorAll(':checked')].map(box => box.value).filter(p => p !== path);
    runner.run({ args: ['compare', path, ...chosen, ...flags, '--json'], files });
  }

  $('compare-now').addEventListener('click', compare);
  $('choices').addEventListener('change', compare);
  $('choose').addEventListener('click', event => {
    const { all } = event.target.dataset;
    if (all === undefined) return;
    for (const box of $('choices').querySelectorAll('input')) box.checked = all !== '';
    compare();
  });
  $('table').addEventListener('click', event => {
    const to = paths.get(event.target.dataset.open);
    if (to) open(to);
    const key = event.target.dataset.key;
    if (key) { sorted = key; draw(); $('table').querySelector(`[data-key=${key}]`).focus(); }
  });
  return { opened: compare, changed() { if (!$('compare').hidden) compare(); } };
}
