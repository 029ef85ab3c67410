#!/usr/bin/env bash
# Training in slices gives the losses of training without, for any cut, ranks and order, on CPUs and on the CUDA
# stand-in. The balanced cut is compared with all cuts.
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

for model in gpt llama; do
    M="--model schedules/models/$model.lua --data $text -D width=32 -D context=24 -D rows=2 -D layers=3 -D batches=3"
    # shellcheck disable=SC2086
    whole=$(losses schedules/serial.lua $M -D stages=1)
    while read -r name flags; do
        # shellcheck disable=SC2086
        expect "$model, $name: losses of whole microbatches" yes "$(apart "$(losses $A $M $flags)" "$whole")"
    done <<'TABLE'
even -D away=0
two -D away=0 -D slices=2
many -D away=0 -D slices=24
uneven -D cut=3,5,16 -D away=0
falling -D cut=13,8,3 -D away=0
one_row -D cut=22,1,1 -D away=0
balanced -D balanced=true -D away=0
away
away_uneven -D cut=3,5,16
split -D split=true
split_here -D split=true -D away=0 -D cut=7,8,9
recompute -D recompute=true
recompute_all -D away=0 --recompute
offload -D offload=true -D away=0
everything -D split=true -D recompute=true -D offload=true -D cut=10,10,4
one_rank -D workers=1 -D away=0
one_stage -D workers=2 -D stages=1
lanes --lanes rank
hop -D hop=1
hop_split -D hop=1 -D split=true -D cut=5,9,10
team -D tensor=2
team_everything -D tensor=2 -D split=true -D recompute=true -D offload=true -D hop=1 -D cut=3,5,16
TABLE
done

# A scaled rope on a slice uses the positions of its rows. Also another eps, and per-head norms before rope.
scaled="-D rope_factor=8 -D rope_low=1 -D rope_high=4 -D rope_context=16 -D eps=0.01"
M="--model schedules/models/llama.lua --data $text -D width=16 -D heads=2 -D kv_heads=2 -D context=24 -D rows=2 -D layers=2 -D batches=2"
steps=2
for what in "$scaled" "-D rope_factor=3" "-D qk_norm=true -D eps=0.1"; do
    # shellcheck disable=SC2086
    whole=$(losses schedules/serial.lua $M -D stages=1 $what)
    for flags in "-D cut=3,5,16 -D away=0" "-D away=0 -D slices=24" "-D away=0 --recompute" "--device cuda" \
        "-D split=true -D recompute=true -D offload=true -D cut=10,10,4" "-D tensor=2 -D hop=1 -D recompute=true"; do
        # shellcheck disable=SC2086
        expect "$what $flags: losses of whole microbatches" yes "$(apart "$(losses $A $M $what $flags)" "$whole")"
    done
    # shellcheck disable=SC2086
    expect "$what matters" no "$(apart "$(losses schedules/serial.lua $M -D stages=1)" "$whole" | sed 's/.* apart/no/')"
done

# The same on a GPU, with a smaller model.
steps=3
small="-D width=16 -D heads=4 -D context=12 -D rows=2 -D layers=2 -D batches=2 --data $text"
for model in gpt llama; do
    M="--model schedules/models/$model.lua $small"
    # shellcheck disable=SC2086
    whole=$(losses schedules/serial.lua $M -D stages=1)
    while read -r name flags; do
        # shellcheck disable=SC2086
        expect "$model on a GPU, $name: losses of whole microbatches" yes "$(apart "$(losses $A $M $flags --device cuda)" "$whole")"
    done <<'TABLE'
even -D slices=4
uneven -D cut=2,3,7
everything -D split=true -D recompute=true -D offload=true -D cut=5,5,2 -D hop=1
team -D tensor=2 -D cut=2,3,7
TABLE
done

# Integers give the same bits.
weights_of() { timeout 200 "$PIANOLA" run "$@" --model schedules/models/integers.lua -D rows=8 --steps 4 --json 2>&1 | sed -nE 's/^  "weights": "(.*)",?$/\1/p;/error:/p'; }
whole=$(weights_of schedules/serial.lua -D stages=1 -D batches=4)
for flags in "-D slices=8" "-D cut=1,2,5" "-D slices=2 -D split=true" "-D recompute=true -D cut=4,3,1" "-D tensor=2 -D cut=1,2,5"; do
    # shellcheck disable=SC2086
    expect "integers $flags: weights of whole microbatches" "$whole" "$(weights_of $A -D batches=4 $flags)"
    # shellcheck disable=SC2086
    expect "integers $flags, on a GPU" "$whole" "$(weights_of $A -D batches=4 $flags --device cuda)"
done

# Updates within the step: after the same microbatches, whatever their slices. 60 microbatches repeat a period.
U=tests/training/slices/updates.lua
for set in "" "-D version=0" "-D batches=60 -D update=3"; do
    # shellcheck disable=SC2086
    {
        once=$(weights_of $U $set)
        for flags in "-D slices=4" "-D slices=3 -D cut=1,2,5" "-D slices=2 --device cuda"; do
            expect "updates $set $flags: weights of whole microbatches" "$once" "$(weights_of $U $set $flags)"
        done
    }
done
expect "microbatches of an update and of the period, in the text" "slices 4 updates 3 3 3 period 3 times" \
    "$("$PIANOLA" show $U -D batches=60 -D update=3 -D slices=4 --format streams | grep -oE 'slices 4|^updates .*|^period [0-9]+ times' | paste -sd' ')"
"$PIANOLA" show $U -D batches=60 -D update=3 -D slices=4 --format streams >"$room/streams"
expect "which reads back and is proved" 0 "$("$PIANOLA" verify "$room/streams" >/dev/null 2>&1; echo $?)"
for model in gpt llama; do
    # shellcheck disable=SC2086
    expect "$model with updates: losses of whole microbatches" yes "$(apart "$(losses $U --model schedules/models/$model.lua $small \
        -D batches=4 -D slices=3 -D cut=2,3,7)" "$(losses $U --model schedules/models/$model.lua $small -D batches=4)" 6)"
done

# Ranks as processes, on CPUs and with a GPU each: the bits of all ranks in one process, over any transport.
built=$PWD/build
export PKG_CONFIG_PATH=$built/standin:$PKG_CONFIG_PATH
gpt="--model schedules/models/gpt.lua $small"
set="-D hop=1 -D cut=2,3,7 ${gpt% --data *}"
trained() { # NAME FLAGS...
    timeout 120 mpirun --oversubscribe -n "$(find "$room/$1" -name 'rank*.cu' | wc -l)" "$room/$1/rank$suffix" --flight "$room" "${@:2}" >"$room/out0" 2>"$room/err0"
    weights | grep . || grep -m 3 -E 'standin|error|pianola: rank' "$room/err0"
}
in_process() { timeout 200 "$PIANOLA" run $A "$@" --data $text --steps 3 --json 2>&1 | sed -nE 's/^  "weights": "(.*)",?$/\1/p;/error:/p'; }
# shellcheck disable=SC2086
{
    compiled host ../${A%.lua} $set
    expect "a GPT over MPI" "$(in_process $set)" "$(trained host --data $text --steps 3)"
    suffix=.gpu
    for precision in fp32 bf16; do
        compiled $precision ../${A%.lua} $set -D precision=$precision
        wanted=$(in_process $set -D precision=$precision --device cuda)
        for flags in "" "--messages put" "--no-graph"; do
            expect "a GPT of $precision on a GPU each, $flags" "$wanted" "$(trained $precision --data $text --steps 3 $flags)"
        done
    done
    compiled integers ../${A%.lua} -D batches=4 -D cut=1,2,5 --model schedules/models/integers.lua -D rows=8
    for flags in "" "--messages put"; do
        expect "integers on a GPU each, $flags" "$whole" "$(trained integers --steps 4 $flags)"
    done
    # bf16 rounds the gradients of keys and values that later slices send.
    half=$(losses $A $gpt -D precision=bf16 --device cuda)
    expect "losses in bf16 near those in fp32" yes "$(paste <(echo "$half") <(losses $A $gpt) |
        awk 'NR > 1 { d = $1 - $2; d = d < 0 ? -d : d; m = d > m ? d : m } END { print (NR == 4 && m > 0 && m < 0.01) ? "yes" : NR " losses, " m " apart" }')"
}
expect "more slices than a kernel has room for" "pianola: error: layer 4 (attention): 65 slices of a microbatch read each other's \
keys and values; --device cuda takes at most 64" "$(timeout 60 "$PIANOLA" run $A --model schedules/models/gpt.lua -D slices=65 \
    -D context=65 --device cuda 2>&1 | tail -n 1)"

# A member of a team has the keys and values of its heads.
# shellcheck disable=SC2086
{
    compiled team ../${A%.lua} $set -D workers=2 -D stages=2 -D tensor=2
    wanted=$(in_process $set -D workers=2 -D stages=2 -D tensor=2 --device cuda)
    for flags in "--messages put" "--reduce ordered"; do
        expect "a GPT in teams of 2, $flags" "$wanted" "$(trained team --data $text --steps 3 $flags)"
    done
}
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
largest() { # of the slices' F and B together
    # shellcheck disable=SC2086
    "$PIANOLA" show "$S" $M "$@" --format tsv | awk -F'\t' '$5 == "F" || $5 == "B" { t[$7] += $4 - $3 } END { for (q in t) m = t[q] > m ? t[q] : m; printf "%.0f\n", m }'
}
best=
for ((i = 1; i < 40; i++)); do
    at=$(largest -D balanced=false -D "cut=$i,$((40 - i))")
    [ -z "$best" ] || [ "$at" -lt "$best" ] && best=$at
done
expect "the balanced cut of 40 rows into 2 is the best of 39" "$best" "$(largest -D balanced=true)"
expect "and the even one is not as good" yes "$([ "$(largest -D balanced=false -D cut=20,20)" -gt "$best" ] && echo yes)"
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
expect "kv and dkv travel" "RECV_D RECV_K SEND_D SEND_K" "$(grep -oE '^(SEND|RECV)_[KD]' "$room/streams" | sort -u | paste -sd' ')"
expect "the text is proved" 0 "$("$PIANOLA" verify "$room/streams" >/dev/null 2>&1; echo $?)"
expect "stages without attention need nothing of other slices" "attention 0 1" \
    "$("$PIANOLA" show $A --model schedules/models/gpt.lua -D layers=2 -D context=24 --format streams | sed -n 3p)"
"$PIANOLA" run $A --model schedules/models/gpt.lua -D width=16 -D heads=2 -D context=12 -D rows=1 --steps 2 --timeline "$room/measured" >/dev/null 2>&1
expect "a measured timeline has the predicted one's rows" \
    "$("$PIANOLA" show $A --model schedules/models/gpt.lua -D width=16 -D heads=2 -D context=12 -D rows=1 --format tsv | cut -f 1,2,5-9 | tail -n +2 | sort | cksum)" \
    "$(cut -f 2,3,6-10 "$room/measured" | tail -n +2 | sort | cksum)"
expect "and compares with it" 0 "$("$PIANOLA" diff $A "$room/streams" -D hop=1 >/dev/null 2>&1; echo $?)"
finish
