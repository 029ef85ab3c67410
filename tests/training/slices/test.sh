#!/usr/bin/env bash
# Microbatches cut along the sequence: the balanced cut, against all cuts; bytes of keys and values; the text form. The
# matrix (tests/training/matrix/slices.tsv) has their training.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
export PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so
[ -f "$PIANOLA_CUDA" ] || { echo "$PIANOLA_CUDA is not there: make standin"; exit 1; }
A=tests/training/slices/any.lua
text=/usr/share/common-licenses/GPL-3

# losses ARGS...: prints the loss of each step, to the file's precision, or the error
steps=10
losses() {
    rm -f "$room/losses"
    timeout 200 "$PIANOLA" run "$@" --steps $steps --losses "$room/losses" >"$room/out" 2>&1 || grep error "$room/out"
    cut -f 3 "$room/losses" 2>/dev/null
}
# prints the largest relative difference of two lists of n losses
apart() { paste <(echo "$1") <(echo "$2") | awk -v n=$((${3:-$steps} + 1)) '{ d = ($1 - $2) / $2; d = d < 0 ? -d : d; m = d > m ? d : m } END { print NR == n && m <= 1e-5 ? "yes" : NR " losses, " m " apart" }'; }

# Options of a model that the matrix trains in slices change its losses.
scaled="-D rope_factor=8 -D rope_low=1 -D rope_high=4 -D rope_context=16 -D eps=0.01"
M="--model schedules/models/llama.lua --data $text -D width=16 -D heads=2 -D kv_heads=2 -D context=24 -D rows=2 -D layers=2 -D batches=2"
steps=2
for what in "$scaled" "-D rope_factor=3" "-D qk_norm=true -D eps=0.1"; do
    # shellcheck disable=SC2086
    whole=$(losses schedules/serial.lua $M -D stages=1 $what)
    # shellcheck disable=SC2086
    expect "$what changes the losses" \
        no "$(apart "$(losses schedules/serial.lua $M -D stages=1)" "$whole" | sed 's/.* apart/no/')"
done

U=tests/training/slices/updates.lua
expect "microbatches of an update and of the period, in the text" "slices 4 updates 3 3 3 period 3 times" \
    "$("$PIANOLA" show $U -D batches=60 -D update=3 -D slices=4 --format streams | grep -oE 'slices 4|^updates .*|^period [0-9]+ times' | paste -sd' ')"
"$PIANOLA" show $U -D batches=60 -D update=3 -D slices=4 --format streams >"$room/streams"
expect "the text reads back and is proved" 0 "$("$PIANOLA" verify "$room/streams" >/dev/null 2>&1; echo $?)"
expect "more slices than a kernel has room for" "pianola: error: layer 4 (attention): 65 slices of a microbatch read each other's \
keys and values; --device cuda takes at most 64" "$(timeout 60 "$PIANOLA" run $A --model schedules/models/gpt.lua -D slices=65 \
    -D context=65 --device cuda 2>&1 | tail -n 1)"

# Only its kv holds the keys and values of a slice. A stash, here sent to another rank's backward, is smaller by their
# bytes.
sent() { # KIND FLAGS...: prints the bytes of all slices
    "$PIANOLA" show $A -D workers=2 -D stages=1 -D batches=1 --model schedules/models/gpt.lua -D width=16 -D heads=2 -D context=64 \
        -D rows=1 -D layers=2 "${@:2}" --format tsv | awk -F'\t' -v op="SEND_$1" '$5 == op { n += $9 } END { print n }'
}
expect "a stash without keys and values" $(($(sent S -D slices=1) - 2 * 64 * 2 * 16 * 4)) "$(sent S -D slices=4)"
expect "its keys and values" $((2 * 64 * 2 * 16 * 4)) "$(sent K -D slices=4)"

# The balanced cut is the best of all cuts: its largest slice, forward plus backward, is the smallest.
S=$room/one.lua
cat >"$S" <<'LUA'
local p = params { slices = 2, cut = { 0 }, balanced = false }
return schedule {
  workers = 1, stages = 1, batches = 1, slices = p.slices, slice_cut = p.balanced and "balanced" or p.cut,
  w = function(s, b, d, q) return 0, 0 end,
}
LUA
M="--model schedules/models/gpt.lua -D context=40 -D width=8 -D heads=2 -D layers=8 -D rows=1"
largest() { # the largest slice's F and B together
    # shellcheck disable=SC2086
    "$PIANOLA" show "$S" $M "$@" --format tsv | awk -F'\t' '$5 == "F" || $5 == "B" { t[$7] += $4 - $3 } END { for (q in t) m = t[q] > m ? t[q] : m; printf "%.0f\n", m }'
}
best=
for ((i = 1; i < 40; i++)); do
    at=$(largest -D balanced=false -D "cut=$i,$((40 - i))")
    [ -z "$best" ] || [ "$at" -lt "$best" ] && best=$at
done
expect "the balanced cut of 40 rows into 2 is the best of 39" "$best" "$(largest -D balanced=true)"
expect "the even cut is worse" yes "$([ "$(largest -D balanced=false -D cut=20,20)" -gt "$best" ] && echo yes)"
best=
for ((i = 1; i <= 10; i++)); do
    for ((j = 1; i + j <= 11; j++)); do
        at=$(largest -D balanced=false -D context=12 -D slices=3 -D "cut=$i,$j,$((12 - i - j))")
        [ -z "$best" ] || [ "$at" -lt "$best" ] && best=$at
    done
done
expect "the balanced cut of 12 rows into 3 is the best of 55" "$best" "$(largest -D balanced=true -D context=12 -D slices=3)"

# The text form reads back, and keys and values travel.
"$PIANOLA" show $A -D hop=1 --format streams >"$room/streams"
expect "kv and dkv are sent" "RECV_D RECV_K SEND_D SEND_K" "$(grep -oE '^(SEND|RECV)_[KD]' "$room/streams" | sort -u | paste -sd' ')"
expect "the text is proved" 0 "$("$PIANOLA" verify "$room/streams" >/dev/null 2>&1; echo $?)"
expect "stages without attention need nothing of other slices" "attention 0 1" \
    "$("$PIANOLA" show $A --model schedules/models/gpt.lua -D layers=2 -D context=24 --format streams | sed -n 3p)"
"$PIANOLA" run $A --model schedules/models/gpt.lua -D width=16 -D heads=2 -D context=12 -D rows=1 --steps 2 --timeline "$room/measured" >/dev/null 2>&1
expect "a measured timeline has the predicted one's rows" \
    "$("$PIANOLA" show $A --model schedules/models/gpt.lua -D width=16 -D heads=2 -D context=12 -D rows=1 --format tsv | cut -f 1,2,5-9 | tail -n +2 | sort | cksum)" \
    "$(cut -f 2,3,6-10 "$room/measured" | tail -n +2 | sort | cksum)"
expect "diff reads the measured timeline" 0 "$("$PIANOLA" diff $A "$room/streams" -D hop=1 >/dev/null 2>&1; echo $?)"
finish
