// Mouse, touch and keys. `go` has what they do: see view.js.

const SLIP = 4; // largest movement of a click, in pixels

function moveWithMouse(parts, go) {
  const { rows, map, stage } = parts, pointers = new Map();
  let drag = null;
  const at = event => {
    const box = rows.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  stage.addEventListener('wheel', event => {
    if (!go.open()) return;
    event.preventDefault();
    const [x] = at(event), dx = event.shiftKey ? event.deltaX || event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    if (dx) go.pan(dx, 0);
    else go.zoom(x, Math.exp(event.deltaY * 0.0015));
  }, { passive: false });

  rows.addEventListener('pointerdown', event => {
    if (!go.open() || event.button > 0) return;
    const [x, y] = at(event);
    pointers.set(event.pointerId, x);
    drag = { x, y, from: [x, y], measures: event.shiftKey || go.isRuler(x, y), moved: false };
  });
  addEventListener('pointermove', event => {
    if (!go.open()) return;
    const [x, y] = at(event);
    if (pointers.size === 2 && pointers.has(event.pointerId)) return pinch(event.pointerId, x);
    if (!drag) return event.target === rows ? go.hover(x, y) : undefined;
    drag.moved ||= Math.hypot(x - drag.from[0], y - drag.from[1]) > SLIP;
    if (!drag.moved) return;
    if (drag.measures) go.measure(drag.from[0], x);
    else go.pan(drag.x - x, drag.y - y);
    Object.assign(drag, { x, y });
  });
  for (const end of ['pointerup', 'pointercancel']) addEventListener(end, event => {
    pointers.delete(event.pointerId);
    if (drag && !drag.moved && end === 'pointerup' && go.open()) go.click(...drag.from);
    drag = null;
  });
  rows.addEventListener('pointerleave', () => { if (go.open()) go.hover(-1, -1); });
  rows.addEventListener('dblclick', () => { if (go.open()) go.all(); });

  function pinch(id, x) {
    const [other] = [...pointers].filter(([k]) => k !== id).map(([, v]) => v), before = Math.abs(pointers.get(id) - other), now = Math.abs(x - other);
    if (before > 8 && now > 8) go.zoom((x + other) / 2, before / now);
    pointers.set(id, x);
    drag = null;
  }

  let onMap = false;
  const toMap = event => {
    const box = map.getBoundingClientRect();
    go.centre((event.clientX - box.left) / box.width);
  };
  map.addEventListener('pointerdown', event => {
    if (!go.open()) return;
    onMap = true;
    map.setPointerCapture(event.pointerId);
    toMap(event);
  });
  map.addEventListener('pointermove', event => { if (onMap) toMap(event); });
  for (const end of ['pointerup', 'pointercancel']) map.addEventListener(end, () => { onMap = false; });
}

// target: receives key events; the whole window in a page of its own, else the stage
function moveWithKeys(target, parts, go) {
  const keys = {
    w: () => go.zoom(null, 0.8), s: () => go.zoom(null, 1.25), a: () => go.pan(-go.width() / 8, 0), d: () => go.pan(go.width() / 8, 0),
    '+': () => go.zoom(null, 0.8), '=': () => go.zoom(null, 0.8), '-': () => go.zoom(null, 1.25), 0: go.all, f: go.focus, Escape: go.clear,
    '.': () => go.step(1), ',': () => go.step(-1), '/': () => parts.find.focus(),
    ArrowLeft: () => go.follow(-1), ArrowRight: () => go.follow(1), ArrowUp: () => go.change(-1), ArrowDown: () => go.change(1),
  };
  target.addEventListener('keydown', event => {
    const act = keys[event.key], { target: on } = event, typing = on.matches && on.matches('input:not([type=checkbox]), select, textarea');
    const scrolls = event.key.startsWith('Arrow') && document.activeElement !== parts.stage;
    if (!act || typing || scrolls || event.ctrlKey || event.metaKey || event.altKey || !go.open()) return;
    event.preventDefault();
    act();
  });
  return keys;
}
