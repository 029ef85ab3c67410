#!/usr/bin/env bash
# The compiler runs a schedule whose updates are jobs until it repeats itself. But the schedule may still change later:
# at its end, or after a synchronous beginning. Then the program must contain the whole step.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# PipeDream on four ranks, with a change from microbatch `at` on.
cat >"$room/change.lua" <<'LUA'
local p = params { batches = 2000, what = "", at = 0 }
local function now(what, b) return p.what == what and b >= p.at end
return schedule {
  workers = 4, stages = 4, batches = p.batches,
  w = function(s, b, d) return s, now("rank", b) and 3 - s or s end,
  n = function(s, b, d)
    return d ~= "U" and one_forward_one_backward(b, d, 4 - s) - (now("n", b) and 1000000 or 0) or nil
  end, cap = 4,
  order = p.what == "cost" and "strict" or "greedy",
  cost = function(s, b, d) return d == "U" and 0 or now("cost", b) and 2 or 1 end,
  update = "each", version = function(s, b, d) return p.what == "start" and b < p.at and 0 or "forward" end,
}
LUA
change() { timeout 60 "$PIANOLA" show "$room/change.lua" --format "$1" "${@:2}" 2>&1; }
figure() { change json "${@:2}" | sed -nE "s/^  \"$1\": ([^,]*),$/\1/p;/error/p"; }

# Each of 4 ranks takes 2 per microbatch before the change and 4 after it, plus 3 F and 3 B to fill and drain.
for at in 1 63 64 65 500 1000 1999; do
    expect "twice the costs from microbatch $at on" yes \
        "$(figure makespan -D what=cost -D at=$at | awk -v least=$((2 * at + 4 * (2000 - at))) '{ print (least <= $1 && $1 <= least + 12 ? "yes" : $0) }')"
done
expect "no change" $((2 * 2000 + 6)) "$(figure makespan -D what=cost -D at=2000)"

# A job that moves to another rank runs there.
expect "the last microbatch on other ranks" "F 0 1999 F 1 1999 F 2 1999 F 3 1999" \
    "$(change streams -D what=rank -D at=1999 | awk '
        /^program/ { n = $8 } /^period/ { more = ($4 - 1) * $2 } /^rank . lane/ { rank = $2 }
        $1 == "F" && $3 == n - 1 && $2 == 3 - rank { print $1, $2, $3 + more }' | sort | paste -sd' ')"

# Microbatches from 100 on get the highest priority.
first() { change streams -D batches=300 "$@" | sed -n '/error/p;s/^\(F 0 [0-9]*\).*/\1/p' | head -n 1; }
expect "microbatches in order" "F 0 0" "$(first)"
expect "later microbatches first" "F 0 100" "$(first -D what=n -D at=100)"

# A synchronous beginning, in which microbatch b reads version b, then a period.
text=$(change streams -D what=start -D at=300 -D batches=1000000 | sed -n '/error/p;/^program/p;/^period/p;/^[FB] /p')
expect "synchronous for 300 microbatches" 1200 "$(awk '$1 == "F" && $3 < 300 && $4 == "v" $3' <<<"$text" | grep -c .)"
expect "then with stashed weights" yes "$(awk '$1 == "F" && $2 == 0 && $3 == 320 && $4 != "v320" { print "yes" }' <<<"$text")"
expect "the stashed weights repeat" 1 "$(grep -c '^period .* times' <<<"$text")"

# A dependency on a later microbatch's jobs, inside or outside the jobs written out: groups of five; the first 64 are
# tried.
cat >"$room/groups.lua" <<'LUA'
local p = params { batches = 500 }
return schedule {
  workers = 2, stages = 2, batches = p.batches, w = function(s, b, d) return s, s end, n = oldest_batch_first, cap = 12,
  pred = function(s, b, d)
    if d == "F" then return s > 0 and { { s - 1, b, "F" } } or {} end
    return { { s, b, "F" }, s == 1 and { 1, b // 5 * 5 + 4, "F" } or { 1, b, "B" } }
  end,
  update = "each",
}
LUA
expect "backwards wait for a later forward" 0 "$("$PIANOLA" check "$room/groups.lua" >"$room/out" 2>&1; echo $?)"
expect "a dependency on a microbatch that does not exist" 1 "$("$PIANOLA" check "$room/groups.lua" -D batches=501 2>&1 | grep -c 'needs 1F504, but there is no such job')"

# A script is read once although it runs several times.
expect "from standard input" "$("$PIANOLA" show schedules/pipedream.lua | sed 's/^pipedream:/stdin:/')" \
    "$("$PIANOLA" show - <schedules/pipedream.lua 2>&1)"
finish
