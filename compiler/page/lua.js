// Lua's tokens, for colours, and the names that scripts can use, from pianola.d.lua, for completion.

const luaWords = new Set(('and break do else elseif end false for function goto if in local nil not or repeat return then ' +
  'true until while').split(' '));
// Alternatives in order: comments, long strings, strings, numbers, names, and any other character.
const luaToken = /(--\[(=*)\[[\s\S]*?(?:\]\2\]|$)|--[^\n]*)|(\[(=*)\[[\s\S]*?(?:\]\4\]|$)|"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[\s\S]|[^'\\\n])*'?)|(\b0[xX][\da-fA-F.]+(?:[pP][+-]?\d+)?|\b\d+\.?\d*(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)/g;

function colourLua(text, known) { // HTML with the same characters
  let html = '', end = 0;
  for (const m of text.matchAll(luaToken)) {
    const kind = m[1] !== undefined ? 'comment' : m[3] !== undefined ? 'string' : m[5] !== undefined ? 'number' :
      luaWords.has(m[0]) ? 'word' : known.has(m[0]) ? 'known' : '';
    html += escapeHtml(text.slice(end, m.index));
    html += kind ? `<i class="t-${kind}">${escapeHtml(m[0])}</i>` : escapeHtml(m[0]);
    end = m.index + m[0].length;
  }
  return html + escapeHtml(text.slice(end));
}

function colourStreams(text) { // each line begins with an operation, or with a property of a whole lane
  return escapeHtml(text).replace(/^(pianola|program|rank|buffer|bare|period)\b.*$/gm, '<i class="t-comment">$&</i>')
    .replace(/^[A-Z]\w*/gm, '<i class="t-word">$&</i>').replace(/\b(wait|free)(?=\()/g, '<i class="t-known">$1</i>');
}

// Returns [{name, detail, doc}] for functions, with the comments above them, and for the fields of tables that scripts
// return.
function namesOf(definitions) {
  const names = new Map();
  let doc = [];
  const add = (name, detail) => {
    if (!names.has(name)) names.set(name, { name, detail, doc: doc.join(' ').trim() });
    doc = [];
  };
  for (const line of definitions.split('\n')) {
    const field = line.match(/^---@field (\w+)\??\s*(.*)/), fun = line.match(/^function ([\w.]+)\((.*)\)/);
    if (field) add(field[1], field[2]);
    else if (fun) add(fun[1], `${fun[1]}(${fun[2]})`);
    else if (/^---[^@]/.test(line)) doc.push(line.slice(3).trim());
    else if (!line.startsWith('---')) doc = [];
  }
  for (const word of luaWords) if (word.length > 3 && !names.has(word)) names.set(word, { name: word, detail: 'Lua', doc: '' });
  return [...names.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}
