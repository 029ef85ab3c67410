#!/usr/bin/env bash
# Teams over the sequence. With -D parallel=context, each member attends from two chunks of the sequence to the keys and
# values of all members; with -D parallel=ulysses, from all rows with some heads. Checkpoints move between the two.
# Traffic and memory match the figures of the literature. The matrix (tests/training/matrix, feature context) has their
# training.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
text=/usr/share/common-licenses/GPL-3
small=(-D layers=2 -D width=32 -D batches=4)
gpt=(--model schedules/models/gpt.lua "${small[@]}")
export OPENBLAS_NUM_THREADS=1

near() { awk -v d="$1" 'BEGIN { print d != "" && d <= 1e-5 ? "yes" : "no" }'; }
# ---- checkpoints hold whole layers ----

pipeline=(-D workers=2 -D stages=2)
for way in context ulysses; do
    compiled $way 1f1b "${pipeline[@]}" "${gpt[@]}" -D tensor=2 -D parallel=$way
done
leg() { # NAME RANKS STEPS
    tcp "$1" "$2" --steps "$3" --checkpoint "$saved" --every 100 --resume --deadline 60 --data $text
    ended 90
    expect "$1 resumes to step $3" "" "$(said 'error:')"
}
compiled alone serial -D stages=2 "${gpt[@]}"
compiled columns 1f1b "${pipeline[@]}" -D tensor=2 "${gpt[@]}"
leg context 4 2
was=$(weights)
leg alone 1 2
expect "one rank reads the weights of teams over the sequence" "$was" "$(weights)"
leg ulysses 4 4
leg columns 4 5
leg context 4 6
leg alone 1 7
last() { awk 'END { print $3 }' "$1"; }
tcp alone 1 --steps 8 --checkpoint "$saved" --resume --losses "$room/went" --data $text
ended 90
tcp alone 1 --steps 8 --losses "$room/whole" --data $text
ended 90
expect "the eighth step: the loss of an uninterrupted run" yes \
    "$(near "$(awk -v a="$(last "$room/went")" -v b="$(last "$room/whole")" 'BEGIN { print (a > b ? a - b : b - a) }')")"

# ---- figures ----

# A microbatch has s rows of h columns, a team c members; keys have h_kv columns, and so do values. Elements have 4
# bytes. Ring attention (Liu 2023, section 3) passes keys and values around: in the forward each member receives all
# others', 2 s h_kv (c - 1) / c. An all-gather moves as much. The backward moves them again, and their gradients
# as often. Ulysses (Jacobs 2023, section 3.2) exchanges queries, keys, values and attention outputs, s h / c each, of
# which (c - 1) / c leave the member. Ours merges the first three exchanges into one.
s=128 h=128 c=4
layers=(-D rows=4 -D context=32 -D "width=$h" -D heads=8 -D batches=1)
model=(--model schedules/models/gpt.lua "${layers[@]}" schedules/tp.lua -D stages=1)
times() { "$PIANOLA" show "$@" --format tsv | awk -F'\t' '$1 == 0 && $5 ~ /_A$/ { n[$5]++ } END {
    print n["ALL_GATHER_A"] + 0, n["REDUCE_SCATTER_A"] + 0, n["ALL_TO_ALL_A"] + 0 }'; }
each() { # FUNCTION ARGS...: prints how much one more layer adds
    paste -d' ' <("$1" -D layers=3 "${@:2}") <("$1" -D layers=2 "${@:2}") |
        awk '{ for (i = 1; i <= NF / 2; i++) printf "%s%.0f", (i > 1 ? " " : ""), $i - $(i + NF / 2); print "" }'
}
exchanged() { # prints the bytes a member receives within jobs: the others' pieces, or its part of an all-to-all of that size
    "$PIANOLA" show "$@" --format tsv | awk -F'\t' -v c="$c" '$1 == 0 && $5 ~ /_A$/ {
        sum += $9 * (c - 1) / ($5 == "ALL_TO_ALL_A" ? c : 1) } END { print sum }'
}
for c in 2 4 8; do
    way=(-D tensor=$c -D parallel=context)
    expect "context, $c members: exchanges of a layer" "2 1 0" "$(each times "${model[@]}" "${way[@]}")"
    expect "context, $c members: exchanged" $((3 * 4 * 2 * s * h * (c - 1) / c)) "$(each exchanged "${model[@]}" "${way[@]}")"
    way=(-D tensor=$c -D parallel=ulysses)
    expect "Ulysses, $c members: exchanges of a layer" "0 0 4" "$(each times "${model[@]}" "${way[@]}")"
    expect "Ulysses, $c members: exchanged" $((2 * 4 * 4 * s * h / c * (c - 1) / c)) \
        "$(each exchanged "${model[@]}" "${way[@]}")"
done
# Grouped queries: keys and values have fewer columns, in proportion to their heads.
for kv in 4 2 1; do
    c=4
    expect "$kv heads of keys and values of 8" $((3 * 4 * 2 * s * h * kv / 8 * (c - 1) / c)) \
        "$(each exchanged --model schedules/models/llama.lua "${layers[@]}" -D kv_heads=$kv schedules/tp.lua -D stages=1 \
            -D tensor=$c -D parallel=context)"
done

# A member keeps 1/c of what one rank keeps.
stash() { "$PIANOLA" show "$@" --json | sed -nE 's/.*at_peak.*"stash": ([0-9]+).*/\1/p' | head -n 1; }
alone=$(each stash "${model[@]}" -D tensor=1)
for c in 2 4 8; do
    expect "context, $c members: stash of a layer" $((alone / c)) "$(each stash "${model[@]}" -D tensor=$c -D parallel=context)"
done

# The two chunks balance the work: all ranks are busy for equally long, and without links for 1/c of one rank's time.
for c in 2 4 8; do
    busy=$(ranks busy "${model[@]}" -D tensor=$c -D parallel=context | tr , '\n' | sort -u | wc -l)
    expect "context, $c members: all ranks are equally busy" 1 "$busy"
done

finish
