// The line between the scripts and the results: drag it, move it with the arrow keys, or double-click to reset it.
function makeSplit(line, main) {
  const share = () => (100 * (line.offsetLeft - main.offsetLeft)) / main.clientWidth;
  function set(percent) { // null: the original position
    if (percent === null) main.style.removeProperty('--left');
    else main.style.setProperty('--left', `${Math.max(15, Math.min(75, percent))}%`);
    line.setAttribute('aria-valuenow', Math.round(share()));
  }
  line.addEventListener('pointerdown', event => {
    event.preventDefault();
    line.setPointerCapture(event.pointerId);
    line.focus();
  });
  line.addEventListener('pointermove', event => {
    if (line.hasPointerCapture(event.pointerId)) set((100 * (event.clientX - main.offsetLeft - line.offsetWidth / 2)) / main.clientWidth);
  });
  line.addEventListener('dblclick', () => set(null));
  line.addEventListener('keydown', event => {
    const by = { ArrowLeft: -2, ArrowRight: 2 }[event.key];
    if (!by && event.key !== 'Home') return;
    event.preventDefault();
    set(by ? share() + by : null);
  });
  set(null);
}
