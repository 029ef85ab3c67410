// Controls for the scripts' declared `params` and the compiler's own options. Numbers have a slider and a field;
// booleans and listed values a choice; all others a text field. Values that are set go on the command line.

// Returns the mapping between a slider, from 0 to 1000, and numbers; null: only a field.
function scaleOf(param, model) {
  const d = Number(param.default), v = Math.abs(Number(param.value));
  const linear = (from, to, step) => ({ to: x => from + Math.round((x / 1000) * (to - from) / step) * step, from: v => ((v - from) / (to - from)) * 1000 });
  const log = (from, to, top) => ({ // if the default is infinite, the last step means no limit
    to: x => (top && x >= 1000 ? Infinity : Number((from * (to / from) ** (x / (top ? 990 : 1000))).toPrecision(2))),
    from: v => (v === Infinity ? 1000 : (Math.log(v / from) / Math.log(to / from)) * (top ? 990 : 1000)),
  });
  if (param.type === 'integer') {
    const most = d <= 4 ? 16 : d <= 16 ? 64 : 4 * d;
    return linear(d > 0 ? 1 : 0, Math.max(most, v), 1);
  }
  if (param.default === 'inf') return model ? log(1e6, 1e13, true) : log(0.05, 100, true);
  if (d === 0 && model) { // a real machine's latency (seconds) or FLOP per second; the lowest step means 0
    const range = { latency: [1e-7, 1e-2], flops: [1e10, 1e16] }[param.name], scale = range && log(...range, false);
    return scale ? { to: x => (x < 10 ? 0 : scale.to(x)), from: v => (v === 0 ? 0 : scale.from(v)) } : null;
  }
  if (d === 0) return linear(0, Math.max(4, v), 0.05);
  if (d >= 0.05 && d <= 1) return linear(0, Math.max(1, v), 0.01);
  return log(d / 32, d * 32, false);
}

const neat = text => text.replace(/^(\d+?)(0{6,})$/, (all, digits, zeros) => `${digits}e${zeros.length}`);
const trim = v => (v === Infinity ? 'inf' : neat(String(Number(v.toPrecision(6)))));

// changed(name, text): called when a value is set
function makeControls(form, changed) {
  const folded = new Set(['compiler']); // groups that show only their heading
  let fields = new Map(), signature = '';
  form.addEventListener('submit', event => event.preventDefault());

  function row(first, model) {
    let param = first; // its default may depend on other parameters
    const div = document.createElement('div'), id = 'p-' + param.name;
    const values = param.values.length ? [...new Set([param.default, ...param.values])] : [];
    let scale = param.type === 'integer' || param.type === 'number' ? scaleOf(param, model) : null;
    let field, slider = null;
    div.className = 'param';
    div.append(Object.assign(document.createElement('label'), { htmlFor: id, textContent: param.name })); // the name may be anything
    div.title = param.what || '';
    if (param.type === 'boolean' || (values.length && param.type === 'string')) {
      field = document.createElement('select');
      for (const v of param.type === 'boolean' ? ['false', 'true'] : values) field.append(new Option(v, v));
    } else {
      field = document.createElement('input');
      field.type = param.type === 'integer' ? 'number' : 'text';
      if (param.type === 'number') field.inputMode = 'decimal';
      field.spellcheck = false;
      field.autocomplete = 'off';
    }
    field.id = id;
    if (param.type === 'list') field.placeholder = '1,2,3';
    if (param.type === 'text') { // free text, with suggestions
      const words = div.appendChild(document.createElement('datalist'));
      words.id = id + '-words';
      words.append(...values.map(v => new Option(v, v)));
      field.setAttribute('list', words.id);
    }
    field.addEventListener('input', () => {
      if (field.value.trim() === '') return;
      changed(param.name, field.value.trim());
      if (slider) slider.value = scale.from(Number(field.value.replace('inf', 'Infinity')));
    });
    if (scale) {
      slider = document.createElement('input');
      Object.assign(slider, { type: 'range', min: 0, max: 1000, step: 'any' });
      slider.setAttribute('aria-label', param.name);
      slider.addEventListener('input', () => {
        const text = trim(scale.to(Number(slider.value)));
        if (text === field.value) return;
        field.value = text;
        slider.setAttribute('aria-valuetext', text);
        changed(param.name, text);
      });
      slider.addEventListener('keydown', event => { // moves by a step of the number, not of the slider
        const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
        if (!way || param.type !== 'integer') return;
        event.preventDefault();
        field.value = Math.max(d0(param), Number(field.value) + way);
        slider.value = scale.from(Number(field.value));
        changed(param.name, field.value);
      });
      div.append(slider);
    }
    div.append(field);
    const set = now => { // does not change a control that the user has focused
      param = now;
      if (document.activeElement !== field && document.activeElement !== slider) field.value = neat(param.value);
      if (slider && document.activeElement !== slider) {
        scale = scaleOf(param, model) || scale;
        slider.value = scale.from(Number(param.value.replace('inf', 'Infinity')));
      }
      div.classList.toggle('set', param.value !== param.default);
    };
    set(param);
    fields.set(param.name, set);
    return div;
  }
  const d0 = param => (Number(param.default) > 0 ? 1 : 0);

  return {
    show(params, model) {
      const now = JSON.stringify([model, params.map(p => [p.script, p.name, p.type, p.values])]);
      if (now === signature) {
        for (const p of params) fields.get(p.name)(p);
        return;
      }
      const focused = document.activeElement && form.contains(document.activeElement) ? document.activeElement.id : '';
      signature = now;
      fields = new Map();
      form.replaceChildren();
      for (const script of ['schedule', 'cluster', 'model', 'compiler']) {
        const mine = params.filter(p => p.script === script), set = document.createElement('details');
        if (mine.length === 0) continue;
        set.innerHTML = `<summary>${script[0].toUpperCase()}${script.slice(1)}</summary>`;
        set.open = !folded.has(script) || mine.some(p => p.value !== p.default);
        set.addEventListener('toggle', () => (set.open ? folded.delete(script) : folded.add(script)));
        set.append(...mine.map(p => row(p, model)));
        form.append(set);
      }
      if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
    },
  };
}
