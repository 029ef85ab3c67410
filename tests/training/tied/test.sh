#!/usr/bin/env bash
# A tied model, as GPT-2: the embedding in stage 0 and the output layer in the last stage share a token table. The table
# is one more set of weights, number `stages`, with the home of stage 0. Checks its figures by hand, its text form, its
# checkpoints over MPI, and the GPT-2 model file. The matrix (tests/training/matrix/memory.tsv) has its training.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
text=/usr/share/common-licenses/GPL-3
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
tied="--model schedules/models/gpt.lua -D tied=true -D layers=2 -D width=32 -D heads=2 -D context=8 -D rows=2"

# row NAME FETCHES PARTS STORED ARGS...: checks fetches, gradient parts received, and sets of weights stored, per rank
row() {
    # shellcheck disable=SC2086
    expect "$1: fetches, parts, stored" "$2 $3 $4" \
        "$(ranks weights_received "${@:5}" $tied) $(ranks reductions_received "${@:5}" $tied) $(ranks stages_stored "${@:5}" $tied)"
}
# Only stage 3 is away from the table: rank 3 fetches it once and sends one gradient part to rank 0, which stores it.
row 1f1b 0,0,0,1 1,0,0,0 2,1,1,1 schedules/1f1b.lua
row gpipe 0,0,0,1 1,0,0,0 2,1,1,1 schedules/gpipe.lua
# Even microbatches run on ranks 0-3, odd ones on 4-7. Stage 0 and the table are at home on ranks 0 and 4, which reduce
# last.
row lpp 0,0,0,1,0,0,0,1 1,0,0,0,1,0,0,0 2,1,1,1,2,1,1,1 schedules/lpp.lua
# Every stage is at home on every rank: five sets are reduced.
row ddp 0,0,0,0,0,0,0,0 0,0,0,0,0,0,0,0 5,5,5,5,5,5,5,5 schedules/ddp.lua
# A rank without a home and with two slots runs 0F 1F 2F 3F 3B 2B 1B 0B and fetches 0 T 1 2 3 . 2 1 0. The table stays
# from 0F to 3B, and all other weights in between share the other slot. Rank 0, the home of 0 and T, fetches 1 2 3 . .
# 1.
row fsdp_whole 4,6,6,6,8,8,8,8 14,7,7,7,0,0,0,0 2,1,1,1,0,0,0,0 schedules/fsdp_whole.lua
# Without slots: one fetch for every F and B of stage 3, for 8 microbatches.
sed 's/order = "strict",/& weight_slots = function() return 0 end,/' schedules/1f1b.lua >"$room/no_slots.lua"
row "no slots" 0,0,0,16 1,0,0,0 2,1,1,1 "$room/no_slots.lua"
# On one rank nothing travels. With one stage, its B adds to the table for both layers at once.
row serial 0 0 5 schedules/serial.lua
row "one stage" 0 0 2 schedules/serial.lua -D stages=1

# ---- training ----

train() { timeout 200 "$PIANOLA" run "$@" --data $text --json 2>&1; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; print (a > 0 && b > 0 && d * d <= 1e-10 * b * b) ? "yes" : a " and " b }'; }
wanted=$(train schedules/1f1b.lua $tied --steps 10 | field loss_last)
proved=0
for ((seed = 1; proved < ${CASES:-10} && seed < 10 * ${CASES:-10}; seed++)); do # the others deadlock because of their caps
    # shellcheck disable=SC2086
    "$PIANOLA" show tests/papers/formulas/random.lua -D costs=false -D seed=$seed -D teams=false $tied --format streams >"$room/random.txt" 2>&1 || continue
    proved=$((proved + 1))
    expect "random schedule $seed: the text form is proved" yes \
        "$("$PIANOLA" verify "$room/random.txt" | grep -q ': proved: ' && echo yes)"
done
expect "random schedules that do not deadlock" "${CASES:-10}" "$proved"

# ---- the text form names the stages that share the table ----

# shellcheck disable=SC2086
"$PIANOLA" show schedules/1f1b.lua $tied --format streams >"$room/streams.txt"
says() { # WHAT WANTED SED: checks the answer of verify about the changed text
    sed "$3" "$room/streams.txt" >"$room/changed.txt"
    expect "$1" "$2" "$("$PIANOLA" verify "$room/changed.txt" 2>&1 | sed -E "s|.*/changed.txt:||; s/, line [0-9]+//; s/^ +//" | head -n 2 | paste -sd' ')"
}
says "the unchanged text" "proved: 1f1b on 4 ranks, at any speed of ranks and links" ""
says "another stage has the unembedding" "refuted (jobs) rank 2 lane compute: F 2 0: needs weight(4) as v, but has no such operand" \
    's/ tied 3/ tied 2/'
says "a missing contribution" \
    "refuted (gradients) rank 0 lane compute: B 0 0: its gradient goes nowhere: no operand dv" 's/^\(B 0 0 .*\) dv=wgrad(4)/\1/'
says "no table" "49: error: expected a stage, a number from 0 to 3 49 | weight(4) 18176 32768" 's/ tied 3//'
says "no such stage" "2: error: expected the stage of the unembedding, a number from 0 to 3 \
2 | program 1f1b workers 4 stages 4 batches 8 tied 4" 's/ tied 3/ tied 4/'
says "a job of the table" "4: error: expected a stage, a number from 0 to 3 4 | F 4 0 w=weight(0) v=weight(4) \
stash=stash(0,0) y=act(0,0)" 's/^F 0 0 /F 4 0 /'

# ---- ranks as processes ----

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PKG_CONFIG_PATH=$PWD/build:$PKG_CONFIG_PATH
# shellcheck disable=SC2086
compiled() { "$PIANOLA" compile $1 $tied -o "$room/$2" && make -s -j2 -C "$room/$2"; }
started() { timeout 120 mpirun --oversubscribe --app <(sed "s|\$| ${*:2} --data $text|" "$room/$1/app.mpi") 2>&1; }
weights() { sed -n 's/^weights *\([0-9a-f]*\).*/\1/p'; }
fslpp="schedules/fslpp.lua -D workers=4 -D group=2"
compiled "$fslpp" fslpp
compiled schedules/1f1b.lua 1f1b
# shellcheck disable=SC2086
six=$(train $fslpp $tied --steps 6 | field weights)
expect "fslpp over MPI: weights of the in-process run" "$six" "$(started fslpp --steps 6 | weights)"
started fslpp --steps 3 --checkpoint "$room/saved" --every 3 >/dev/null
expect "resumed" "$six" "$(started fslpp --steps 6 --checkpoint "$room/saved" --resume | weights)"
started fslpp --steps 3 --checkpoint "$room/other" --every 3 >/dev/null
expect "resumed under another schedule" yes "$(near "$(started 1f1b --steps 10 --checkpoint "$room/other" --resume --json | field loss_last)" "$wanted")"
"$PIANOLA" export-weights "$room/saved" -o "$room/all.safetensors" >/dev/null
expect "exported: the table once, and no other output layer" "1 1 0" \
    "$(for name in layer.0.token layer.0.position 'layer.2[7-9].weight'; do head -c 20000 "$room/all.safetensors" | grep -aoc "\"$name\":"; done | paste -sd' ')"

# ---- GPT-2: the published numbers of parameters (Radford 2019, as released), and with a padded vocabulary ----

counts() { # SIZE PUBLISHED PADDED [INSTRUCTIONS]
    for vocab in 50257=$2 50304=$3; do
        expect "GPT-2 $1, vocabulary ${vocab%=*}" "1f1b: proved: 64 jobs, ${4:-170} instructions on 4 ranks, ${vocab#*=} parameters, at any speed of ranks and links" \
            "$("$PIANOLA" check schedules/1f1b.lua --model schedules/models/gpt2.lua -D size="$1" -D vocab="${vocab%=*}" 2>&1)"
    done
}
counts 124M 124439808 124475904 169 # the last stage has only the table, so it has no update of its own
counts 350M 354823168 354871296
counts 774M 774030080 774090240
counts 1558M 1557611200 1557686400
# The table goes to rank 3 with 2 bytes an element, its gradient to rank 0 with 4; 8 activation tensors go each way.
act=$((8 * 4 * 1024 * 768 * 2)) table=$((50304 * 768))
expect "GPT-2 124M in bf16: bytes received" "$((act + 4 * table)),$((2 * act)),$((2 * act)),$((act + 2 * table))" \
    "$(ranks bytes_received schedules/1f1b.lua --model schedules/models/gpt2.lua -D precision=bf16)"
expect "an unknown size" "schedules/models/gpt2.lua:N: error: size = 1.5B: the sizes of GPT-2 are 124M, 350M, 774M and 1558M" \
    "$("$PIANOLA" check schedules/1f1b.lua --model schedules/models/gpt2.lua -D size=1.5B 2>&1 | sed "1!d; s,:[0-9]*:,:N:,")"
# Rank 0 sums the output layer's part of the table's gradient in two rounds, and holds both at once.
cat >"$room/rounds.lua" <<'EOF'
local home = { [0] = 0, 1, 1, 0 }
return schedule {
  workers = 2, stages = 4, batches = 2, w = function(s, b, d) return home[s], 0 end, n = oldest_batch_first, grad_slots = 1,
}
EOF
# shellcheck disable=SC2086
"$PIANOLA" show "$room/rounds.lua" $tied --format streams >"$room/rounds.txt"
expect "both rounds have names" "2 proved" "$(grep -c '^wgrad(4)#[0-9]* ' "$room/rounds.txt") $("$PIANOLA" verify "$room/rounds.txt" 2>&1 | grep -o 'proved')"
finish
