// The static pages of `show` and `diff`: one picture, which the keys move wherever the focus is.

const view = makeView(document.getElementById('picture'), {
  global: true,
  height: () => Math.max(260, innerHeight - document.getElementById('picture').getBoundingClientRect().top - scrollY - 190),
});
view.show(readTimeline(document.getElementById('data').textContent));
