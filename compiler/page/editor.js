// An editor for plain text: a textarea with the browser's own undo, over a coloured layer of the same characters.

// Replaces text as if typed, so that undo reverts it. Browsers send `input` for each line, which counts once here. They
// are slow with texts as long as streams can be, so these are set directly, without undo.
let typing = false;
function insertText(area, from, to, text) {
  area.focus();
  area.setSelectionRange(from, to);
  typing = true;
  const typed = text.length < 20000 && (text ? document.execCommand('insertText', false, text) : from === to || document.execCommand('delete'));
  typing = false;
  if (!typed) area.setRangeText(text, from, to, 'end');
  area.dispatchEvent(new InputEvent('input'));
}

// options: label; colour(text): HTML; names: for completion, or []; wraps: whether long lines wrap; changed(text)
function makeEditor(host, options) {
  host.innerHTML = '<div class="lines" aria-hidden="true"></div><div class="paper"><pre class="layer" aria-hidden="true"></pre>' +
    `<textarea spellcheck="false" autocapitalize="off" autocomplete="off" autocorrect="off"${options.wraps ? '' : ' wrap="off"'}></textarea>` +
    '<ul class="names" role="listbox" hidden></ul></div>';
  const [lines, layer, area, list] = ['.lines', '.layer', 'textarea', '.names'].map(s => host.querySelector(s));
  const LONG = 200000, SHORT = 8000; // characters: longer texts than LONG have no colours; up to SHORT, each input is drawn
  let marks = new Map(), leaving = false, shown = [], picked = 0, opened = 0; // opened: scroll position of the offer
  area.setAttribute('aria-label', options.label);
  host.classList.toggle('wraps', Boolean(options.wraps));
  list.id = host.id + '-names';
  area.setAttribute('aria-controls', list.id);

  function draw() {
    const rows = area.value.split('\n');
    const html = area.value.length > LONG ? [] : options.colour(area.value).split('\n');
    let open = ''; // a token that continues on the next line
    const body = html.map((row, i) => {
      const all = open + row, last = all.lastIndexOf('<i '), unclosed = last >= 0 && all.indexOf('</i>', last) < 0;
      open = unclosed ? all.slice(last, all.indexOf('>', last) + 1) : '';
      const mark = marks.get(i + 1);
      return `<div${mark === undefined ? '' : ' class="marked"'}>${all}${unclosed ? '</i>' : ''}${mark ? `<b>${escapeHtml(mark)}</b>` : ''}\n</div>`;
    });
    layer.innerHTML = body.join('');
    area.classList.toggle('plain', html.length === 0);
    const numbers = rows.map((_, i) => (marks.has(i + 1) ? `<b>${i + 1}</b>` : i + 1));
    lines.innerHTML = options.wraps ? numbers.map(n => `<i>${n}</i>`).join('') : numbers.join('\n') + '\n ';
    number();
    follow();
  }

  let soon = 0;
  function drawSoon() {
    cancelAnimationFrame(soon);
    soon = requestAnimationFrame(draw);
  }

  function number() { // gives each number the height of its line, which may wrap
    if (!options.wraps || layer.children.length === 0) return;
    layer.style.width = `${area.clientWidth}px`; // without its scroll bar
    const high = [...layer.children].map(row => row.offsetHeight);
    for (const [i, h] of high.entries()) lines.children[i].style.height = `${h}px`;
  }

  function follow() {
    layer.style.transform = `translate(${-area.scrollLeft}px, ${-area.scrollTop}px)`;
    lines.scrollTop = area.scrollTop;
  }

  function word() { // the name before the caret
    const to = area.selectionStart, m = area.value.slice(0, to).match(/[A-Za-z_][\w.]*$/);
    return { from: m ? to - m[0].length : to, to, text: m ? m[0] : '' };
  }

  function close() {
    list.hidden = true;
    area.removeAttribute('aria-activedescendant');
  }

  function choose(i) {
    picked = (i + shown.length) % shown.length;
    list.innerHTML = shown.map((n, k) => `<li role="option" id="${list.id}-${k}" aria-selected="${k === picked}"><code>${escapeHtml(n.name)}</code> <small>${escapeHtml(n.detail)}</small></li>`).join('') +
      (shown[picked].doc ? `<li role="presentation" class="doc">${escapeHtml(shown[picked].doc)}</li>` : '');
    area.setAttribute('aria-activedescendant', `${list.id}-${picked}`);
    list.children[picked].scrollIntoView({ block: 'nearest' });
  }

  function complete(asked) {
    const { text, from } = word();
    if (text.length < (asked ? 0 : 2) || area.selectionStart !== area.selectionEnd) return close();
    const before = area.value.slice(area.value.lastIndexOf('\n', from - 1) + 1, from);
    if (!asked && /--|"[^"]*$/.test(before)) return close(); // inside a comment or a string
    shown = options.names.filter(n => n.name.startsWith(text) && n.name !== text).slice(0, 40);
    if (shown.length === 0) return close();
    const style = getComputedStyle(area), height = parseFloat(style.lineHeight), row = area.value.slice(0, from).split('\n').length, of = layer.children[row - 1];
    const down = (of ? of.offsetTop + of.offsetHeight - layer.offsetTop : row * height) - area.scrollTop + (of ? 0 : parseFloat(style.paddingTop));
    list.hidden = false;
    opened = area.scrollTop;
    list.style.top = `${down}px`;
    list.style.left = `clamp(0px, calc(${before.length}ch + ${8 - area.scrollLeft}px), calc(100% - 19rem))`;
    choose(0);
  }

  function accept() {
    const { from, to } = word();
    const name = shown[picked].name;
    close();
    insertText(area, from, to, name);
    close();
  }

  function indent(back) {
    const { value, selectionStart: a, selectionEnd: b } = area;
    if (a === b && !back) return insertText(area, a, b, '  ');
    const from = value.lastIndexOf('\n', a - 1) + 1, old = value.slice(from, b);
    const text = back ? old.replace(/^ {1,2}/gm, '') : old.replace(/^(?=.)/gm, '  ');
    if (text === old) return;
    insertText(area, from, b, text);
    area.setSelectionRange(a === b ? Math.max(from, a - (old.length - text.length)) : from, from + text.length);
  }

  area.addEventListener('keydown', event => {
    const open = !list.hidden, { key } = event;
    const done = () => event.preventDefault();
    if (open && (key === 'ArrowDown' || key === 'ArrowUp')) { done(); choose(picked + (key === 'ArrowDown' ? 1 : -1)); }
    else if (open && (key === 'Enter' || key === 'Tab')) { done(); accept(); }
    else if (key === 'Escape') { if (open) close(); else leaving = true; }
    else if (key === ' ' && event.ctrlKey) { done(); complete(true); }
    else if (key === 'Tab' && !leaving && !event.ctrlKey && !event.altKey) { done(); indent(event.shiftKey); }
    else if (key === 'Enter' && !event.ctrlKey && !event.metaKey) { // indents like the line above
      done();
      const from = area.selectionStart, line = area.value.slice(area.value.lastIndexOf('\n', from - 1) + 1, from);
      insertText(area, from, area.selectionEnd, '\n' + line.match(/^\s*/)[0]);
    } else if (key !== 'Tab' && key !== 'Shift') leaving = false;
  });
  area.addEventListener('input', event => {
    if (typing) return;
    marks = new Map();
    if (area.value.length > SHORT) drawSoon(); // pasted lines come one by one
    else draw();
    if (options.names.length && (event.inputType || '').startsWith('insert') && /\w$/.test(area.value.slice(0, area.selectionStart))) complete(false);
    else close();
    options.changed(area.value);
  });
  area.addEventListener('scroll', () => {
    follow();
    if (Math.abs(area.scrollTop - opened) > 2) close(); // the text has scrolled away from the names offered
  });
  area.addEventListener('blur', () => { leaving = false; close(); });
  list.addEventListener('mousedown', event => {
    event.preventDefault();
    const i = [...list.children].indexOf(event.target.closest('[role=option]'));
    if (i >= 0) { picked = i; accept(); }
  });

  new ResizeObserver(number).observe(area);

  return {
    area,
    get text() { return area.value; },
    show(text) { // not an edit, so undo does not revert it
      area.value = text;
      marks = new Map();
      draw();
    },
    replace(text) { // an edit, which undo reverts
      const focus = document.activeElement;
      insertText(area, 0, area.value.length, text);
      area.setSelectionRange(0, 0);
      area.scrollTop = 0;
      if (focus) focus.focus();
    },
    mark(lines) { // {line: message}
      marks = new Map(lines);
      draw();
    },
    go(line) {
      const at = area.value.split('\n').slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
      area.setSelectionRange(at, at);
      const of = layer.children[line - 1];
      area.scrollTop = (of ? of.offsetTop : (line - 1) * parseFloat(getComputedStyle(area).lineHeight)) - 54;
    },
  };
}
