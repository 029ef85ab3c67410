#!/usr/bin/env bash
# Checks the pages of `show --format html` and `diff --html` in a browser: the parts around the picture, the layout in
# narrow and wide windows, in light and dark themes, and wheel, mouse, keys and buttons. tests/pictures/timelines and
# tests/pictures/diffs check the pictures.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
. tests/support/pictures.sh
S=schedules/1f1b.lua
L="--cluster schedules/clusters/latency.lua -D latency=1"
from_html() { sed 's/&#38;/\&/g; s/&#60;/</g; s/&#62;/>/g; s/&#34;/"/g'; }
told() { sed -nE "s/.*<$1[^>]*>(.*)<\/$1>.*/\1/p" "$2" | from_html | paste -sd' '; }
text() { sed -n '/<pre>/,/<\/pre>/p' "$1" | sed 's/.*<pre>//; /<\/pre>/d' | from_html; }

# The page's text equals the command's.
"$PIANOLA" show $S $L --color-by mb --format html -o "$room/show.html"
"$PIANOLA" diff $S schedules/zb_h1.lua $L --html "$room/diff.html" >"$room/text"
expect "the command" "pianola show $S $L --color-by mb --format html" "$(told code "$room/show.html")"
expect "the command of a diff" "pianola diff $S schedules/zb_h1.lua $L" "$(told code "$room/diff.html")"
cp $S "$room/it's \$1.lua"
"$PIANOLA" show "$room/it's \$1.lua" -D workers=2 --format html -o "$room/odd.html"
expect "a shell reads it" "" "$(eval "$(told code "$room/odd.html" | sed "s|^pianola|'$PIANOLA'|")" | cmp - "$room/odd.html" 2>&1)"
expect "names" "1f1b $S → schedules/zb_h1.lua" "$(told h1 "$room/show.html") $(told h1 "$room/diff.html")"
most() { ranks "$1" $S $L | tr , '\n' | sort -n | tail -n 1; }
received=$(ranks bytes_received $S $L | awk -F , '{ for (i = 1; i <= NF; i++) sum += $i; print sum }')
expect "figures" "$(figure makespan $S $L) units, $(figure bubble $S $L | awk '{ printf "%.1f %%", 100 * $1 }'), $(
    most peak_bytes) B, $(most peak_activations), $received B, $(figure lower_bound $S $L) units" \
    "$(sed -nE 's/.*<dd>(.*)<\/dd>.*/\1/p' "$room/show.html" | paste -sd, | sed 's/,/, /g')"
expect "figures of a diff" "$(awk '/^makespan/ { print $2, $3, "→", $4, $5; exit }' "$room/text")" "$(sed -nE 's/.*<dt>makespan<\/dt><dd>(.*)<\/dd>.*/\1/p' "$room/diff.html")"
expect "the report" "" "$("$PIANOLA" show $S $L | sed -n '/^1f1b: /,$p' | diff - <(text "$room/show.html"))"
expect "the text of a diff" "" "$(diff "$room/text" <(text "$room/diff.html"))"
"$PIANOLA" diff generated/1f1b schedules/zb_h1.lua --html "$room/read.html" >/dev/null
expect "what is proved" "Proved: no race, no deadlock, every gradient complete|A and B proved|B proved; A was read, not proved" \
    "$(sed -nE 's/.*id="verdict"[^>]*>(.*)<\/p>/\1/p' "$room/show.html" "$room/diff.html" "$room/read.html" | paste -sd'|')"
expect "and only that is ticked" "1 1 0" "$(grep -c 'id="verdict" class="good"' "$room/show.html") $(
    grep -c 'id="verdict" class="good"' "$room/diff.html") $(grep -c 'id="verdict" class="good"' "$room/read.html")"

# Layout: nothing covers the picture, and nothing is wider than the window. All text has a contrast of at least 4.5 with
# its background (WCAG 2.1, 1.4.3).
cat >"$room/look.js" <<'J'
{
const box = e => e.getBoundingClientRect(), say = (key, value) => { document.body.dataset[key] = value; };
const [p, i, r] = ['picture', 'info', 'report'].map(name => box(id(name)));
const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
say('apart', apart(p, i) && apart(p, r) && apart(i, r) && apart(p, box(document.querySelector('header'))));
say('fits', document.documentElement.scrollWidth <= innerWidth);
say('report', r.left >= p.right ? 'beside' : r.top >= i.bottom ? 'below' : 'elsewhere');
say('wide', p.width > 0.55 * innerWidth && box(svg).width > p.width - 4 && view[2] * 1.6 >= p.width - 4);
say('free', svg.contains(document.elementFromPoint(p.left + p.width - 20, p.top + 10)));
const light = c => { // relative luminance, and what lies below what is transparent
  const [r, g, b] = c.match(/[\d.]+/g).map(Number).map(v => v / 255).map(v => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
const ground = e => { const c = getComputedStyle(e).backgroundColor; return /, 0\)$/.test(c) ? ground(e.parentElement) : c; };
const poor = [...document.querySelectorAll('h1, header p, code, dt, dd, #info, pre, button')].filter(e => contrast(getComputedStyle(e).color, ground(e)) < 4.5);
const paper = getComputedStyle(svg.querySelector('rect')).fill;
poor.push(...[...svg.querySelectorAll('text:not(.n)')].filter(e => contrast(getComputedStyle(e).fill, paper) < 4.5));
say('poor', poor.map(e => e.id || e.className.baseVal || e.tagName).join(' '));
say('night', light(getComputedStyle(document.body).backgroundColor) < 0.1);
}
J
data() { sed -nE "s/.*data-$1=\"([^\"]*)\".*/\1/p" "$room/dom"; }
while read -r page width report night; do
    what="$page, $width px${night:+, by night}"
    cp "$room/$page.html" "$room/page.html"
    ask "$room/page.html" --window-size=$width,800 ${night:+--blink-settings=preferredColorScheme=0} <"$room/look.js" >"$room/dom"
    expect "$what: nothing covers anything" "true true" "$(data apart) $(data free)"
    expect "$what: nothing is wider than the window" true "$(data fits)"
    expect "$what: where the report is" "$report" "$(data report)"
    expect "$what: the picture fills its place" true "$(data wide)"
    expect "$what: what is hard to read" "" "$(data poor)"
    expect "$what: night" "${night:-false}" "$(data night)"
done <<'P'
show 400 below
show 1000 below
show 1800 beside
diff 400 below
diff 1800 beside
show 1000 below true
diff 1800 beside true
P

# Wheel, mouse, keys and buttons.
ask "$room/show.html" --window-size=1000,800 >"$room/dom" <<'J'
const say = (key, value) => { document.body.dataset[key] = value; };
const near = (a, b) => Math.max(...a.map((v, i) => Math.abs(v - b[i]))) < 0.02;
const seen = () => svg.getAttribute('viewBox').split(' ').map(Number), first = seen();
const key = k => (k.startsWith('Arrow') ? host : document.body).dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true, cancelable: true }));
const mouse = { clientX: 300, clientY: 300, bubbles: true, cancelable: true, pointerId: 1 }, under = at(mouse);
svg.dispatchEvent(new WheelEvent('wheel', { ...mouse, deltaY: -500 }));
say('wheel', seen()[2] < first[2] / 2 && near(at(mouse), under) && near(view, seen()));
svg.dispatchEvent(new PointerEvent('pointerdown', mouse));
svg.dispatchEvent(new PointerEvent('pointermove', { ...mouse, clientX: 250, clientY: 290 }));
say('drag', near(at({ clientX: 250, clientY: 290 }), under));
dispatchEvent(new PointerEvent('pointerup', mouse));
const there = seen();
svg.dispatchEvent(new PointerEvent('pointermove', { ...mouse, clientX: 100 }));
say('dropped', near(seen(), there));
host.focus();
key('ArrowLeft');
say('arrow', near(seen(), [there[0] - there[2] / 8, ...there.slice(1)]));
key('0');
say('zero', near(seen(), first));
key('+'); key('-');
say('plus', near(seen(), first));
for (const b of document.querySelectorAll('#below button')) b.click();
say('buttons', near(seen(), first));
key('+'); key('+'); key('+'); key('+'); key('+'); key('+'); key('+');
const names = [], ends = [];
for (let n = 0; n < 20; n++) {
  key('.');
  const now = lit.find(([, as]) => as === 'this')[0], box = now.getBoundingClientRect(), picture = host.getBoundingClientRect();
  names.push(title(now).split(':')[0]);
  if (box.left < picture.left - 1 || box.left > picture.right || box.top < picture.top - 1 || box.bottom > picture.bottom + 1) ends.push(names[n]);
}
key(',');
say('steps', names.join(' ') + ' ' + title(lit[0][0]).split(':')[0]);
say('hidden', ends.join(' '));
say('info', info.textContent.split('\n')[0]);
say('ctrl', document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '0', ctrlKey: true, bubbles: true, cancelable: true })));
const still = seen();
dispatchEvent(new Event('beforeprint'));
say('printed', near(seen(), [0, top0, wide, high - top0]));
dispatchEvent(new Event('afterprint'));
say('after', near(seen(), still));
J
expect "the wheel zooms, to where the mouse is" true "$(data wheel)"
expect "dragging pans, until the button is up" "true true" "$(data drag) $(data dropped)"
expect "keys: an arrow, 0, + and -" "true true true" "$(data arrow) $(data zero) $(data plus)"
expect "buttons: +, - and all" true "$(data buttons)"
expect "a full stop goes on, row by row; a comma back" \
    "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7 1F0 1F1 1F2 1B0 1F2" "$(data steps)"
expect "and the operation is in sight" "" "$(data hidden)"
expect "and explained" "1F2: forward of stage 1" "$(data info | cut -d, -f1)"
expect "the browser's own keys stay its own" true "$(data ctrl)"
expect "printed whole, and as before after" "true true" "$(data printed) $(data after)"
expect "no browser is left" "" "$(browsers_left)"
finish
