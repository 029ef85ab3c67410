// The page of `frontier`: a point of the curve or a known schedule, once selected, shows its timeline below the curve.

const said = Object.assign(document.createElement('p'), { id: 'shown' }), below = document.createElement('section');
said.setAttribute('role', 'status');
below.setAttribute('aria-label', 'Timeline');
below.append(said, document.createElement('div'));
document.querySelector('figure').append(Object.assign(document.createElement('figcaption'), { textContent: 'Select a step or a circle to see its timeline.' }));
document.querySelector('figure').after(below);
const view = makeView(below.lastElementChild, {
  global: true,
  changed() {}, // the next timeline keeps the colours and messages that the user chose
  height: () => Math.max(260, innerHeight / 2),
});
const places = [...document.querySelectorAll('script[data-place]')].map(data => ({ data, element: document.getElementById(data.dataset.place) }));

function showPlace(place) {
  for (const { element } of places) element.setAttribute('aria-pressed', element === place.element);
  place.element.scrollIntoView({ block: 'nearest', inline: 'nearest' }); // the curve may be wider than the window
  said.textContent = place.data.dataset.said;
  view.show(readTimeline(place.data.textContent));
}

for (const place of places) {
  const { element } = place;
  element.classList.add('pick');
  for (const [name, value] of Object.entries({ role: 'button', tabindex: 0, 'aria-label': element.querySelector('title').textContent })) element.setAttribute(name, value);
  element.addEventListener('click', () => showPlace(place));
  element.addEventListener('keydown', event => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    showPlace(place);
  });
}
showPlace(places[0]);
