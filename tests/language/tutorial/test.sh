#!/usr/bin/env bash
# README.md and schedules/tutorial.md hold word for word: writing their files and typing their commands in an empty
# folder gives the output they show. replay.py explains how a page marks output that depends on the machine. Then proves
# that this check can fail.
#
#   BLESS=1 tests/language/tutorial/test.sh   redraws the picture of README.md
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh

replay() { python3 tests/language/tutorial/replay.py "$1" "$PIANOLA" 2>&1; }
expect "schedules/tutorial.md" "" "$(replay schedules/tutorial.md)"
expect README.md "" "$(replay README.md)"

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
awk '/^```lua$/ { inside = 1; next } /^```$/ && inside { exit } inside' README.md >"$room/1f1b.lua"
"$PIANOLA" show "$room/1f1b.lua" --format svg -o "$room/1f1b.svg"
[ -z "${BLESS:-}" ] || cp "$room/1f1b.svg" compiler/draw/picture.svg
expect "README.md: its picture (else: make bless)" "" "$(cmp "$room/1f1b.svg" compiler/draw/picture.svg 2>&1)"
cat >"$room/page.md" <<'END'
Write this to `one.lua`:

```lua
return schedule { workers = 1, stages = 1, batches = 2, w = function(s, b, d) return s, s end }
```

```console
$ pianola check one.lua | cut -c 1-19
one: …: 4 jobs
$ pianola check two.lua 2>&1 | cut -c 1-24
pianola: error: two.lua:
$ pianola check two.lua 2>/dev/null
$ echo $?
2
```

<!-- figures vary -->

```console
$ printf 'a\nb\ntook  12.5 ms (-3 steps)\nc\nd\n'
a
…
took 7 s (10 steps)
…
```
END
expect "a page that is right" "" "$(replay "$room/page.md")"
printf 'Write this to `one.py`:\n\n```python\nprint("torn"\n```\n\n```console\n$ true\n```\n' >"$room/python.md"
expect "Python that does not compile" "4: one.py: line 1: '(' was never closed" "$(replay "$room/python.md")"

breaks() { # WHAT SED COMPLAINT
    sed "$2" "$room/page.md" >"$room/broken.md"
    expect "$1" "$3" "$(replay "$room/broken.md")"
}
one='8: $ pianola check one.lua | cut -c 1-19'
two='10: $ pianola check two.lua 2>&1 | cut -c 1-24'
took="\$ printf 'a\\nb\\ntook  12.5 ms (-3 steps)\\nc\\nd\\n': shown"
breaks "a changed line" '11s/two/three/' "$two: shown: pianola: error: three.lua:; printed: pianola: error: two.lua:"
breaks "a changed line with an ellipsis" 's/4 jobs/5 jobs/' "$one: shown: one: …: 5 jobs; printed: one: proved: 4 jobs"
breaks "a line too many" '11a more' "$two: shown: more; printed: nothing more"
breaks "a line too few" 11d "$two: shown: nothing more; printed: pianola: error: two.lua:"
breaks "another file" 's/batches = 2/batches = 3/' "$one: shown: one: …: 4 jobs; printed: one: proved: 6 jobs"
breaks "a command that fails" 13,14d '12: $ pianola check two.lua 2>/dev/null: exits with 2: '
breaks "another exit status" '14s/2/1/' '13: $ echo $?: shown: 1; printed: 2'
breaks "words where figures vary" 's/^took/takes/' "20: $took: takes 7 s (10 steps); printed: b"
breaks "figures that may not vary" 17d "19: $took: took 7 s (10 steps); printed: b"
breaks "a file without a name" 's/ to `one.lua`//' "line 4: the line before a lua block ends with the name of its file"
breaks "a session without a command" 8d "line 8: a console block begins with a command"
breaks "a page without commands" '7,$d' "no commands"
finish
