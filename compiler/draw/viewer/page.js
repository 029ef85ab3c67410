// The static pages of `show` and `diff`: one picture, which keys move wherever they are pressed.

const view = makeView(document.getElementById('picture'), {
  global: true,
  height: () => Math.max(260, innerHeight - document.getElementById('picture').getBoundingClientRect().top - scrollY - 190),
});
view.show(readTimeline(document.getElementById('data').textContent));
