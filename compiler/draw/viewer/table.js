// Tables of what is visible, for readers who cannot see the picture, and for copying.

const MOST_LISTED = 300;

const cells = (tag, list) => list.map(text => `<${tag}>${text}</${tag}>`).join('');

function tableOf(caption, head, rows) {
  return `<table><caption>${escapeHtml(caption)}</caption><thead><tr>${head.map(h => `<th scope="col">${h}</th>`).join('')}</tr></thead>` +
    `<tbody>${rows.map(([first, ...rest]) => `<tr><th scope="row">${escapeHtml(first)}</th>${cells('td', rest.map(escapeHtml))}</tr>`).join('')}</tbody></table>`;
}

function ranksTable(timeline, from, to) {
  return timeline.sides.map((_, side) => {
    const { rows } = rangeOf(timeline, from, to, side), name = timeline.sides.length > 1 ? `${'AB'[side]}: ` : '';
    const peak = ({ memory: { time, bytes } }) => {
      let most = 0;
      for (let i = 0; i < time.length && time[i] < to; i++) if ((time[i + 1] ?? Infinity) > from) most = Math.max(most, bytes[i]);
      return time.length ? amountOf(most) : '–';
    };
    return tableOf(`${name}ranks, ${timeOf(timeline, from)} to ${timeWithUnit(timeline, to)}`, ['rank', 'busy', 'jobs', 'memory at most'],
      rows.map(({ row, busy, jobs }) => [ranksText(row), percentOf(busy / (to - from)), String(jobs), peak(row)]));
  }).join('');
}

function jobsTable(timeline, from, to) {
  const list = [], { start, end } = timeline.ops;
  for (const row of timeline.rows) for (const lane of row.lanes)
    for (let i = firstAfter(end, lane.first, lane.end, from); i < lane.end && start[i] < to; i++) {
      if (list.push(i) > MOST_LISTED) return `<p>More than ${MOST_LISTED} operations are in sight; zoom in for a list of them.</p>`;
    }
  const needs = needsOf(timeline), needed = i => [...new Set([...needs.op.slice(needs.at[i], needs.at[i + 1])].filter(j => j >= 0).map(j => nameOf(timeline, j)))].join(', ');
  list.sort((a, b) => start[a] - start[b] || a - b);
  return tableOf('operations, by their start', ['operation', 'where', 'from', 'to', 'needs'],
    list.map(i => [nameOf(timeline, i), (timeline.panels > 1 ? `${'AB'[rowOf(timeline, i).side]} ` : '') + ranksText(rowOf(timeline, i)), timeOf(timeline, start[i]), timeOf(timeline, end[i]), needed(i)]));
}
