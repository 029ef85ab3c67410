#!/usr/bin/env bash
# Checks that tidy.py reports one breach of each rule (tests/house/tidy/rules.py) in a small tree, then checks the real
# tree.
set -u
cd "$(dirname "$0")/../../.."
. tests/support/lib.sh
house=$(mktemp -d)
trap 'rm -rf "$house"' EXIT

build_house() {
    rm -rf "${house:?}"/*
    mkdir -p "$house"/{compiler/{base,passes},runtime/{comm,device},schedules,tests/house/tidy}
    cat >"$house/compiler/passes/sched.h" <<'END'
#ifndef SCHED_H
#define SCHED_H
/* Says "of" inside. */
#define MOST_RANKS 8
#define LANES(X) X(up) X(down)
#define NAME(name) LANE_##name,
enum { LANES(NAME) LANE_UP, LANE_DOWN };
struct sched {
    int ranks, (*order)[2];
    union {
        int up;
        struct {
            int down : 2;
        } inner;
    };
};
int sched_run(struct sched *sched, int (*less)(int, int));
static inline int sched_half(int ranks) { return ranks / 2; }
#endif
END
    cat >"$house/compiler/passes/sched.c" <<'END'
#include "sched.h"
#define CASE(lane)                                                                                                     \
    case LANE_##lane: return 1; /* never mind } */
static const char brace[] = "{ Of so many";
static int up_to(int n)
#ifdef BIG
{
    return MOST_RANKS + n;
#else
{
    return n + brace['}' - '}'];
#endif
}
int sched_run(struct sched *s, int (*less)(int, int)) {
    switch (s->ranks) { CASE(UP) }
    return up_to(s->up) + (*s->order)[s->inner.down] + sched_half(less(s->ranks, 0));
}
END
    echo 'int main(void) { return sched_run(0, 0) + world_open(); }' >"$house/compiler/base/main.c"
    echo 'int world_open(void);' >"$house/runtime/comm/world.h"
    echo 'int world_open(void) { return 0; }' | tee "$house/runtime/comm/world_host.c" >"$house/runtime/comm/world_cuda.cu"
}

# tidies WHAT PATTERN...: checks that tidy.py on the small tree prints exactly one line for each pattern.
tidies() {
    local what=$1 got pattern
    shift
    got=$(python3 tests/house/tidy/tidy.py "$house" 2>&1)
    expect "$what: exit" $(($# > 0)) $?
    expect "$what: lines" $# "$(grep -c . <<<"$got")"
    for pattern; do
        expect "$what" "$pattern" "$(grep -xE -e "$pattern" <<<"$got" >/dev/null && echo "$pattern" || echo "$got")"
    done
}

# reports FILE TEXT PATTERN...: does the same with TEXT added to FILE.
reports() {
    build_house
    printf '%s\n' "$2" >>"$house/$1"
    tidies "$1 with ${2:0:60}" "${@:3}"
}

repeat() { printf "$2%.0s" $(seq "$1"); }
sched=compiler/passes/sched
build_house
tidies "no breach"
reports $sched.c "int main(void) {
$(repeat 58 '//\n')
}" "$sched\.c:[0-9]+: definitions of external main, first in compiler/base/main\.c: 2, limit 1"
reports $sched.c "static int sum(int a) {
$(repeat 59 '//\n')
}" "$sched\.c:18: lines of function sum: 61, limit 60"
reports $sched.c 'static int sum(int a, int b[2], int (*c)(int, int), int d, int e, int f, int g, int h) { return 0; }' \
    "$sched\.c:18: parameters of function sum: 8, limit 7"
reports runtime/comm/world_cuda.cu 'static __global__ void sum(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j) {}'
reports runtime/comm/world_cuda.cu \
    'static __global__ void sum(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k) {}' \
    'runtime/comm/world_cuda\.cu:2: parameters of function sum: 11, limit 10'
reports $sched.c "struct wide {
int order, ranks $(repeat 23 ', up');
union { struct { int down; }; }; };
static struct wide wide;" "$sched\.c:18: members of struct wide: 26, limit 25"
reports $sched.c "struct wide {
int order, ranks $(repeat 23 ', up');
union { int down; } inner; struct { int up, down; } inner; };
static struct wide wide;" "$sched\.c:18: members of struct wide: 27, limit 25"
reports $sched.h "$(repeat 282 '//\n')" "$sched\.h:301: lines of header $sched\.h: 301, limit 300"
reports $sched.c "$(repeat 484 '//\n')" "$sched\.c:501: lines of file $sched\.c: 501, limit 500"
reports tests/long.sh "$(repeat 601 '//\n')" "tests/long\.sh:601: lines of file tests/long\.sh: 601, limit 600"
reports $sched.c "/* $(repeat 115 'ü') */" "$sched\.c:18: columns of a line in $sched\.c: 121, limit 120"
reports runtime/device/sched.c '' "runtime/device/sched\.c:1: files named sched\.c, first $sched\.c: 2, limit 1"
reports runtime/comm/world.c 'int world_open(void) { return 0; }' \
    'runtime/comm/world_cuda\.cu:1: definitions of external world_open, first in runtime/comm/world\.c: 2, limit 1' \
    'runtime/comm/world_host\.c:1: definitions of external world_open, first in runtime/comm/world\.c: 2, limit 1'
reports runtime/comm/world.c 'static int sched_run(void) { return 0; }' \
    "runtime/comm/world\.c:1: definitions of sched_run, external in $sched\.c: 2, limit 1"
reports runtime/comm/world.c 'static int sched_half(void) { return 0; }' \
    "runtime/comm/world\.c:1: definitions of sched_half, external in $sched\.h: 2, limit 1"
reports runtime/comm/world.c 'static int up_to(void) { return 0; }' \
    'compiler:1: static function names defined in several files: 1, limit 0'
reports $sched.h 'int sched_lost(void);' "$sched\.h:20: undefined prototype of sched_lost: 1, limit 0"
reports $sched.c 'int *sched_alone(void) { return 0; }' \
    "$sched\.c:18: unused external function sched_alone: 1, limit 0"
reports $sched.c '#define LEAST_RANKS 1' "$sched\.c:18: unused macro LEAST_RANKS: 1, limit 0"
reports $sched.c 'struct idle { int up; };' "$sched\.c:18: unused struct idle: 1, limit 0"
reports $sched.c 'static struct { int up, idle; } both;' "$sched\.c:18: unused member idle of struct without a name: 1, limit 0"
reports $sched.c 'enum { IDLE, BUSY };' "$sched\.c:18: unused enum of IDLE: 1, limit 0"
reports $sched.c '/* Of a sched. */' "$sched\.c:18: comments that open with \"Of\": 1, limit 0"
reports $sched.c '// Of a sched.
// Of none.' "$sched\.c:18: comments that open with \"Of\": 1, limit 0"
reports $sched.c '/* Counts so
 * many ranks, and those of a lane. */' "$sched\.c:18: comments that say \"so many\": 1, limit 0" \
    "$sched\.c:19: comments that say \"those of\": 1, limit 0"
for phrase in "those which" "is said" "is asked" "the same of"; do
    reports $sched.c "// A lane, $phrase." "$sched\.c:18: comments that say \"$phrase\": 1, limit 0"
done

# Only a unit's own row and what loads or checks it may ask whether a layer is a unit.
asks="$sched\.c:18: questions in $sched\.c that only a unit's row answers: 1, limit 0"
reports $sched.c 'static bool asks(struct layer *l) { return l->unit; }' "$asks"
reports $sched.c 'static int asks(struct layer *l) { return l[0].unit->up; }' "$asks"
reports $sched.c 'static bool asks(struct layer *l) { return l->kind == LAYER_unit; }' "$asks"
reports $sched.c 'static struct layer of(struct layer *l) { l->unit = 0; return (struct layer){.unit = l->unit}; }'
reports $sched.c 'static int of[] = {[LAYER_unit] = MOST_RANKS}; static int *name(struct report *report) { return report->unit; }'
reports compiler/passes/layer_unit.c 'static bool asks(struct layer *l) { return l->unit && l->unit->up; }'

# The rules on words also apply to scripts, tests and documents, but not to their code.
reports schedules/1f1b.lua "local note = 'so many'
--| so many
-- Runs so
-- many forwards." 'schedules/1f1b\.lua:3: comments that say "so many": 1, limit 0'
reports tests/test.sh 'echo "so many"
# Runs so many tests.' 'tests/test\.sh:2: comments that say "so many": 1, limit 0'
reports tests/judge.py '"""Runs so many tests."""
note = "so many"' 'tests/judge\.py:1: comments that say "so many": 1, limit 0'
reports tests/judge.c 'static const char note[] = "so many"; /* so many */' \
    'tests/judge\.c:1: comments that say "so many": 1, limit 0'
reports runtime/page.js 'let note = "so many"
// so many' 'runtime/page\.js:2: comments that say "so many": 1, limit 0'
reports README.md '    so many `so many`
```
so many
```
Runs so many.' 'README\.md:5: comments that say "so many": 1, limit 0'

# limits.txt raises a limit for a reason, and has no superfluous row.
build_house
echo '// Of a sched.' | tee -a "$house/$sched.c" >>"$house/compiler/base/main.c"
echo '1 comments that open with "Of": to be rewritten' >"$house/tests/house/tidy/limits.txt"
tidies "over a raised limit" "$sched\.c:18: comments that open with \"Of\": 2, limit 1"
sed -i 's/^1/2/' "$house/tests/house/tidy/limits.txt"
tidies "at a raised limit"
sed -i 's/^2/9/' "$house/tests/house/tidy/limits.txt"
expect "below a raised limit" 'tests/house/tidy/limits.txt:1: comments that open with "Of": could be 2 instead of 9' \
    "$(python3 tests/house/tidy/tidy.py "$house")"
build_house
echo '2 comments that open with "Of": to be rewritten' >"$house/tests/house/tidy/limits.txt"
tidies "a limit too many" 'tests/house/tidy/limits\.txt:1: comments that open with "Of": remove this row, no case needs it'
echo '2 comments that open with "Of":' >"$house/tests/house/tidy/limits.txt"
tidies "a limit without a reason" 'tests/house/tidy/limits\.txt:1: expected LIMIT WHAT: REASON, got: .*'

build_house
expect "--measures" "     6 functions
     5 function names" "$(python3 tests/house/tidy/tidy.py --measures "$house" | grep -E 'function( name)?s$')"

tidied=$(python3 tests/house/tidy/tidy.py)
expect "the tree" "" "$(grep -v ': could be [0-9]* instead of ' <<<"$tidied")"
grep ': could be [0-9]* instead of ' <<<"$tidied"
finish
