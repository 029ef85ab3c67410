// The scripts in use, each with an editor in its own tab: the schedule, and the model and the cluster, if any.

const kinds = ['schedule', 'model', 'cluster'];

// scripts: {path: text} as shipped with the page; names: for completion; changed: called after an edit
function makeScripts(scripts, names, changed) {
  const $ = id => document.getElementById(id), tab = kind => $('tab-' + kind), functions = new Set(names.filter(n => /\(/.test(n.detail)).map(n => n.name));
  const tabs = makeTabs($('scripts')), path = { schedule: '', model: '', cluster: '' };
  const editor = Object.fromEntries(kinds.map(kind => [kind, makeEditor($('script-' + kind), { names, wraps: true, changed: () => { told(); changed(); },
    label: `${kind[0].toUpperCase() + kind.slice(1)} script, in Lua`, colour: text => colourLua(text, functions) })]));
  const edited = kind => path[kind] !== '' && editor[kind].text !== scripts[path[kind]];

  function told() { // shows which scripts exist, and which were edited
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
    open(given, text) { // paths and texts of all scripts; leaves nothing to undo
      for (const kind of kinds) {
        path[kind] = given[kind];
        editor[kind].show(text[kind] !== undefined ? text[kind] : scripts[path[kind]] || '');
      }
      told();
    },
    take(kind, chosen) { // opens a script from the list: an edit, which can be undone
      path[kind] = chosen;
      if (chosen === '') {
        editor[kind].show('');
        told();
        changed();
      } else {
        tab(kind).disabled = false;
        tabs.open(tab(kind)); // undo works only in a visible editor
        editor[kind].replace(scripts[chosen]);
      }
    },
    go(kind, line) {
      tabs.open(tab(kind));
      editor[kind].area.focus();
      editor[kind].area.scrollIntoView({ block: 'center' }); // on a phone it may be far below
      editor[kind].go(line);
    },
    mark(at) { // at: {file, line, text} of an error, or null; returns the kind of the script that has it, or undefined
      const where = at && kinds.find(kind => path[kind] === at.file || (path[kind] && path[kind].endsWith('/' + at.file)));
      for (const kind of kinds) {
        editor[kind].mark(kind === where ? [[at.line, at.text]] : []);
        tab(kind).classList.toggle('bad', kind === where);
      }
      return where;
    },
  };
}
