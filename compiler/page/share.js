// A state as a link (JSON, deflated, in base64 for URLs, as the address's fragment), and the downloads.

async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

async function linkOf(state) {
  const bytes = await through(new TextEncoder().encode(JSON.stringify(state)), new CompressionStream('deflate-raw'));
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return '#' + btoa(binary).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

async function stateOf(fragment) { // null: not a state
  try {
    const bytes = Uint8Array.from(atob(fragment.slice(1).replace(/-/g, '+').replace(/_/g, '/')), c => c.charCodeAt(0));
    const state = JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream('deflate-raw'))));
    const texts = (given, key) => Object.fromEntries(Object.entries(given || {}).filter(([k, v]) => key.test(k) && typeof v === 'string'));
    const path = texts(state.path, /^(schedule|model|cluster)$/);
    return path.schedule ? { path, text: texts(state.text, /^(schedule|model|cluster)$/), set: texts(state.set, /^(\w+|--[a-z-]+)$/) } : null;
  } catch {
    return null;
  }
}

function save(name, blob) {
  const link = Object.assign(document.createElement('a'), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function pngOf(svg) { // at twice the size, for screens and slides
  const [, w, h] = svg.match(/width="([\d.]+)" height="([\d.]+)"/).map(Number);
  const image = new Image(), url = URL.createObjectURL(new Blob([svg], { type: 'image/svg+xml' }));
  image.src = url;
  await image.decode();
  const k = Math.min(2, 16000 / w, 16000 / h), canvas = Object.assign(document.createElement('canvas'), { width: w * k, height: h * k });
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  return new Promise(done => canvas.toBlob(done, 'image/png'));
}

// Downloads: the suffix after the schedule's name, and the format of `show`.
const downloads = [
  ['Picture (SVG)', '.svg', { format: 'svg' }], ['Picture (PNG)', '.png', { format: 'svg', png: true }],
  ['Streams', '.streams.txt', { format: 'streams' }], ['Timeline (TSV)', '.tsv', { format: 'tsv' }],
  ['Report (JSON)', '.json', { format: 'json' }], ['Script (Lua)', '.lua', { script: 'schedule' }],
  ['Model (Lua)', '.lua', { script: 'model' }], ['Cluster (Lua)', '.lua', { script: 'cluster' }],
  ['Trace for Chrome, Perfetto', '.trace.json', { format: 'chrome' }], ['Page (HTML)', '.html', { format: 'html' }],
  ['PyTorch’s schedule (CSV)', '.csv', { format: 'torch-csv' }],
];
