#!/usr/bin/env bash
# Checks `pianola check-bound` on certificates whose lower bounds can be proved by hand, and on each of them after a
# change that makes it wrong. tests/unit/test_bound.c compares the checker with exhaustive search.
#
#   one_rank   2 F of 1 and 2 B of 2 on one rank: 6
#   two_ranks  1F1B of two microbatches with room for one, so they run in sequence: 2 x (1 + 1 + 2 + 2) = 12
#   links      two_ranks with one unit of latency each way: 2 x (1 + 1 + 1 + 2 + 1 + 2) = 16
#   pool       two jobs P of 2 on rank 0, one after A (1) and one after C (3) on other ranks: from time 1 to 5
#   spans      a claim about spans; explained where it is checked
#   dominated  two_ranks with a job X in the idle time of rank 1: starting F0 or X later is no better
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
PIANOLA=$(realpath "$PIANOLA") || exit 2
cd tests/proof/certificates || exit 2

# check NAME SED WANTED: compares the exit code and output for NAME.bound after the change. Reads it from stdin.
check() {
    local got
    got=$(sed -E "$2" "$1.bound" | timeout 60 "$PIANOLA" check-bound - 2>&1)
    expect "$1, $2" "$3" "$? $got"
}
proof() { echo "/^at /d; s/^proof .*/proof $1/"; }
refuted() { # NAME SED LIMIT WHY
    check "$1" "$2" "1 $(sed -nE 's/^schedule (schedules\/)?([a-z0-9_]+).*/\2/p' "$1.bound"): refuted: that no schedule ends before $3"$'\n'"$4"
}
unreadable() { # NAME SED LINE MESSAGE
    local got
    got=$(sed -E "$2" "$1.bound" | timeout 60 "$PIANOLA" check-bound - 2>&1)
    expect "$1, $2" "2 -:$3: error: $4" "$? $(head -n 1 <<<"$got")"
}

# Valid certificates.
check one_rank '' '0 one_rank: no schedule ends before 6 (cover of 1 state)'
check two_ranks '' '0 1f1b: no schedule ends before 12 (cover of 4 states)'
check links '' '0 1f1b: no schedule ends before 4 (16 ticks of 0.25; cover of 6 states)'
check pool '' '0 pool: no schedule ends before 5 (work of rank 0)'
check dominated '' '0 dominated: no schedule ends before 12 (cover of 4 states)'
check one_rank "$(proof work)" '0 one_rank: no schedule ends before 6 (work of rank 0)'
check two_ranks "$(proof work); s/^limit.*/limit 9/" '0 1f1b: no schedule ends before 9 (work of rank 1)'
check two_ranks "$(proof path); s/^limit.*/limit 8/" '0 1f1b: no schedule ends before 8 (path through B1)'
check two_ranks "$(proof memory)" '0 1f1b: no schedule ends before 12 (memory of rank 0)'
check links "$(proof memory)" '0 1f1b: no schedule ends before 4 (16 ticks of 0.25; memory of rank 0)'

# Claims one unit more than the bound.
refuted one_rank "$(proof work); s/^limit.*/limit 7/" 7 'by work, nothing ends before 6, the work of rank 0'
refuted one_rank 's/^limit.*/limit 7/' 7 "-:10: \`at 0: 0 0\`: if rank 0 starts item 0 of F0, what follows is \`at 1: 1 0\`; no state of the cover dominates it, and its own bound is 6"
refuted two_ranks 's/^limit.*/limit 13/' 13 "-:18: \`at 4: 1 1 1 0\`: if rank 0 starts item 0 of B0, what follows is \`at 6: 1 1 1 1\`; no state of the cover dominates it, and its own bound is 12"
refuted two_ranks "$(proof work); s/^limit.*/limit 10/" 10 'by work, nothing ends before 9, the work of rank 1'
refuted two_ranks "$(proof path); s/^limit.*/limit 9/" 9 'by paths, nothing ends before 8, the path through B1'
refuted two_ranks "$(proof memory); s/^limit.*/limit 13/" 13 'by memory, nothing ends before 12, the bound of rank 0'
refuted pool 's/^limit.*/limit 6/' 6 'by work, nothing ends before 5, the work of rank 0'
refuted dominated 's/^limit.*/limit 13/' 13 "-:19: \`at 4: 1 1 1 0 1\`: if rank 0 starts item 0 of B0, what follows is \`at 6: 1 1 1 1 1\`; no state of the cover dominates it, and its own bound is 12"
# A longer X keeps rank 1 busy, so a state in which X has started no longer dominates a state in which it has not.
refuted dominated 's/(X rank 1 time) 1/\1 2/; s/^at 1:.*/& | 4 -1/; s/^at 2:.*/at 2: 1 0 0 0 1\nat 3: 1 1 0 0 1/; s/^at 4/at 5/; s/cover 4/cover 5/' 12 "-:16: \`at 0: 0 0 0 0 0\`: if rank 0 starts item 0 of F0, what follows is \`at 1: 1 0 0 0 0\`; no state of the cover dominates it, and its own bound is 9"

# Removes a state, moves a start earlier or later, or records an end too early.
refuted two_ranks 's/cover 4/cover 3/; /^at 2:/d' 12 "-:16: \`at 1: 1 0 0 0\`: if rank 1 starts item 0 of F1, what follows is \`at 2: 1 1 0 0\`; no state of the cover dominates it, and its own bound is 9"
refuted links 's/ \| 0 -1//' 16 "-:16: \`at 1: 1 0 0 0\`: if rank 1 starts item 0 of F1, what follows is \`at 2: 1 1 0 0\`; no state of the cover dominates it, and its own bound is 10"
refuted links 's/\| 2 -2/| 2 -1/' 16 "-:18: \`at 3: 1 1 0 0\`: if rank 1 starts item 0 of B1, what follows is \`at 5: 1 1 1 0 | 2 -2\`; no state of the cover dominates it, and its own bound is 13"
refuted one_rank 's/^proof.*/proof cover 2/; s/^end/at 4: 2 2 | 1 -1\nend/' 6 "-:11: \`at 4: 2 2 | 1 -1\`: everything has started, and nothing in it shows an end at the limit or later"

# Lags and room. A larger lag never shortens a schedule, but from 4 on the cover lacks a state at the next event.
check links 's/^after 1: 0\+2/after 1: 0+3/' '0 1f1b: no schedule ends before 4 (16 ticks of 0.25; cover of 6 states)'
refuted links 's/^after 1: 0\+2/after 1: 0+4/' 16 "-:16: \`at 1: 1 0 0 0 | 0 -1\`: if no rank starts anything, what follows is \`at 4: 1 0 0 0\`; no state of the cover dominates it, and its own bound is 14"
refuted links 's/^after 1: 0\+2/after 1: 0+1/; s/ \| 0 -1//' 16 "-:16: \`at 1: 1 0 0 0\`: if rank 1 starts item 0 of F1, what follows is \`at 2: 1 1 0 0\`; no state of the cover dominates it, and its own bound is 10"
refuted links "$(proof memory); s/^after 1: 0\+2/after 1: 0+1/" 16 'by memory, nothing ends before 14, the bound of rank 0'
refuted two_ranks 's/^room.*/room 0 2/' 12 "-:16: \`at 1: 1 0 0 0\`: if rank 0 starts item 1 of F0, what follows is \`at 2: 2 0 0 0\`; no state of the cover dominates it, and its own bound is 10"
refuted two_ranks "$(proof memory); s/^room.*/room 0 2/" 12 'by memory, nothing ends before 6, the bound of rank 0'

# Room must not appear from nothing: from a class that releases without taking, or from a pool with unordered items.
nothing='memory bounds nothing: that needs a rank with room whose every giving class is linked, through `after` lines, to a class that takes as much'
refuted two_ranks "$(proof memory); /^room/d" 12 "$nothing"
refuted two_ranks "$(proof memory); s/^(class 3 .*)/\1\nclass 4 X rank 0 time 1 items 2 take 0 give 1/" 12 "$nothing"
refuted pool "s/^class 0/room 0 1\n&/; s/A rank 1(.*) take 0/A rank 0\1 take 1/; s/(class 2 .*) give 0/\1 give 1/; s/^proof.*/proof memory/" 5 "$nothing"

# Spans: jobs a and A on rank 0, b and B on rank 1, one unit each. A starts one unit after b, B two units after a. If a
# and b start together, rank 1 spans 3; if b starts one unit later, rank 0 does. The second state is redundant; the last
# checks make it unreadable.
check spans '' '0 spans: no schedule that starts its jobs at whole ticks has spans below 3 (cover of 2 states)'
check spans "$(proof work); s/^limit.*/limit 2/" '0 spans: no schedule has spans below 2 (work of rank 0)'
refuted_spans() { # SED OF LIMIT WHY
    check spans "$1" "1 spans: refuted: that no schedule$2 has spans below $3"$'\n'"$4"
}
whole=' that starts its jobs at whole ticks'
refuted_spans "$(proof work)" '' 3 "by work, no rank's span is 3: the longest is rank 0's, of 2"
refuted_spans 's/^limit.*/limit 4/' "$whole" 4 "-:14: \`at 0: 0 0 0 0\`: if rank 0 starts item 0 of a, rank 1 starts item 0 of b, what follows is \`at 1: 1 1 0 0 | 0 -1 | since 0:1 1:1\`; no state of the cover dominates it, and its own bound is 3"
unreadable spans 's/ . since 0:1$//' 15 'expected " | since ": the line is `at TIME: STARTED … | CLASS START … | … | since RANK:TICKS …`'
unreadable spans 's/since 0:1/since 1:1/' 15 'expected rank 0, which has begun and not ended: name all such ranks, in order'
unreadable spans 's/since 0:1/since 0:0/' 15 'expected how long ago the rank began: a whole number from 1 to 576460752303423488'
unreadable spans 's/since 0:1/& 1:1/' 15 'expected the end of the line'
unreadable spans '/^objective/d' 14 'expected the end of the line'
unreadable spans 's/^objective.*/objective period/' 5 'expected "objective span": the line is `objective span`'
unreadable spans "$(proof memory)" 13 'no span is proved by memory: expected work or cover N'

expect "--json, accepted" '0 {"schema": 1, "accepted": true, "limit": 12, "tick": 1, "proof": "cover", "states": 4}' \
    "$("$PIANOLA" check-bound two_ranks.bound --json | sed 's/^/0 /')"
expect "--json, refuted" '{"schema": 1, "accepted": false, "limit": 6, "tick": 1, "proof": "work", "why": "by work, nothing ends before 5, the work of rank 0"}' \
    "$(sed 's/^limit.*/limit 6/' pool.bound | "$PIANOLA" check-bound - --json)"

. ./unreadable.sh
. ./script.sh
finish
