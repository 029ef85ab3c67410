// A row of tabs, one of which is open; opened by click or arrow keys. opened(tab): called afterwards.
function makeTabs(list, opened = () => {}) {
  const tabs = () => [...list.children].filter(tab => tab.role === 'tab' && !tab.disabled);

  function open(tab) {
    for (const other of list.querySelectorAll('[role=tab]')) {
      const on = other === tab;
      other.setAttribute('aria-selected', String(on));
      other.tabIndex = on ? 0 : -1;
      document.getElementById(other.getAttribute('aria-controls')).hidden = !on;
    }
    opened(tab);
  }

  list.addEventListener('click', event => { if (tabs().includes(event.target)) open(event.target); });
  list.addEventListener('keydown', event => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key], all = tabs();
    if (!by) return;
    const tab = all[(all.indexOf(document.activeElement) + by + all.length) % all.length];
    tab.focus();
    open(tab);
  });
  open(tabs()[0]);
  return { open };
}
