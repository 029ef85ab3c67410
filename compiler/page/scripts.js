// The scripts in use, each with an editor in a tab of its own: the schedule, and the model and the cluster, if there are.

const kinds = ['schedule', 'model', 'cluster'];

// scripts: {path: text}, as they came with the page; names: for completion; changed: after an edit
function makeScripts(scripts, names, changed) {
  const $ = id => document.getElementById(id), tab = kind => $('tab-' + kind), functions = new Set(names.filter(n => /\(/.test(n.detail)).map(n => n.name));
  const tabs = makeTabs($('scripts')), path = { schedule: '', model: '', cluster: '' };
  const editor = Object.fromEntries(kinds.map(kind => [kind, makeEditor($('script-' + kind), { names, changed: () => { told(); changed(); },
    label: `${kind[0].toUpperCase() + kind.slice(1)} script, in Lua`, colour: text => colourLua(text, functions) })]));
  const edited = kind => path[kind] !== '' && editor[kind].text !== scripts[path[kind]];

  function told() { // which are there, and which are no longer as they came
    for (const kind of kinds) {
      const its = tab(kind);
      its.disabled = path[kind] === '';
      its.classList.toggle('edited', edited(kind));
      its.title = path[kind] === '' ? `none: pick a ${kind} above` : path[kind] + (edited(kind) ? ', edited' : '');
      if (its.disabled && its.getAttribute('aria-selected') === 'true') tabs.open(tab('schedule'));
    }
  }

  return {
    path,
    get schedule() { return editor.schedule.text; },
    get files() { return Object.fromEntries(kinds.filter(kind => path[kind]).map(kind => [path[kind], editor[kind].text])); },
    get edits() { return Object.fromEntries(kinds.filter(edited).map(kind => [kind, editor[kind].text])); },
    open(given, text) { // paths and texts of all, with nothing to undo
      for (const kind of kinds) {
        path[kind] = given[kind];
        editor[kind].show(text[kind] !== undefined ? text[kind] : scripts[path[kind]] || '');
      }
      told();
    },
    take(kind, chosen) { // from the list: an edit, which can be undone
      path[kind] = chosen;
      if (chosen === '') {
        editor[kind].show('');
        told();
        changed();
      } else {
        tab(kind).disabled = false;
        tabs.open(tab(kind)); // only an editor in sight can undo
        editor[kind].replace(scripts[chosen]);
      }
    },
    go(kind, line) {
      tabs.open(tab(kind));
      editor[kind].area.focus();
      editor[kind].area.scrollIntoView({ block: 'center' }); // on a phone it is far below
      editor[kind].go(line);
    },
    mark(at) { // at: {file, line, text} of an error, or null; returns which kind of script it is in, or undefined
      const where = at && kinds.find(kind => path[kind] === at.file || (path[kind] && path[kind].endsWith('/' + at.file)));
      for (const kind of kinds) {
        editor[kind].mark(kind === where ? [[at.line, at.text]] : []);
        tab(kind).classList.toggle('bad', kind === where);
      }
      return where;
    },
  };
}
