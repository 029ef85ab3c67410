#!/usr/bin/env bash
# Checks figures from papers and from published code, through the real command. Costs: F = 1, B = 2.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
L=schedules/clusters/latency.lua

# row NAME MAKESPAN IDLE PEAKS ARGS...
row() {
    expect "$1 makespan" "$2" "$(figure makespan "${@:5}")"
    expect "$1 idle" "$3" "$(ranks idle "${@:5}")"
    expect "$1 peaks" "$4" "$(ranks peak_activations "${@:5}")"
}
P4M8="-D workers=4 -D batches=8"

# GPipe (Huang 2019) and 1F1B (PipeDream-flush, Narayanan 2021) on 4 ranks, 8 microbatches: (M + P - 1)(F + B).
row gpipe 33 9,9,9,9 8,8,8,8 schedules/gpipe.lua $P4M8
row 1f1b 33 9,9,9,9 4,3,2,1 schedules/1f1b.lua $P4M8
expect "gpipe, 64 ranks" 285 "$(figure makespan schedules/gpipe.lua -D workers=64 -D batches=32)"

# Latency c per hop with senders free at once: 1F1B takes 33 + 16c, GPipe 33 + 6c.
for c in 0 1 2; do
    expect "1f1b latency $c" $((33 + 16 * c)) "$(figure makespan schedules/1f1b.lua $P4M8 --cluster $L -D latency=$c)"
    expect "gpipe latency $c" $((33 + 6 * c)) "$(figure makespan schedules/gpipe.lua $P4M8 --cluster $L -D latency=$c)"
done
# The same if a message occupies its edge for c: a lane per directed edge reaches the ideal.
expect "1f1b duration 1" 49 "$(figure makespan schedules/1f1b.lua $P4M8 --cluster $L -D bandwidth=1)"
expect "gpipe duration 1" 39 "$(figure makespan schedules/gpipe.lua $P4M8 --cluster $L -D bandwidth=1)"
expect "gpipe duration 0.25" 34.5 "$(figure makespan schedules/gpipe.lua $P4M8 --cluster $L -D bandwidth=4)"
# With warm-ups derived from the latency, 1F1B reaches GPipe's makespan, (M + P - 1) (F + B) + 2 (P - 1) c. That is the
# least of any order of P stages on P ranks. Rank r has P - r + (P - 1 - r) ceil(2 c / (F + B)) live activations.
while read -r P M c more makespan; do
    A="schedules/latency_1f1b.lua -D workers=$P -D batches=$M -D latency=$c"
    peaks=
    for ((r = 0; r < P; r++)); do
        live=$((P - r + (P - 1 - r) * more))
        peaks+=${peaks:+,}$((live < M ? live : M))
    done
    expect "latency_1f1b $P,$M,$c" "$makespan $peaks" "$(figure makespan $A --cluster $L) $(ranks peak_activations $A --cluster $L)"
done <<<$'4 8 0 0 33\n4 8 1 1 39\n4 8 2 2 45\n4 16 0.25 1 58.5\n4 16 1.5 1 66\n8 32 0.5 1 124\n8 32 1 1 131\n8 32 4.5 3 180\n2 8 3 2 33'
expect "latency_1f1b duration 1" 39 "$(figure makespan schedules/latency_1f1b.lua $P4M8 --cluster $L -D bandwidth=1)"
# Between depth first and breadth first (Lamy-Poirier 2023): interleaved with G microbatches in a group, P <= G <= M,
# has their bubble and holds (V - 1) G + 2 (P - 1 - r) + 1. With latency, G above P reaches breadth first's makespan.
while read -r groups c makespan peaks; do
    A="schedules/interleaved.lua -D workers=4 -D batches=16 -D groups=$groups --cluster $L -D latency=$c"
    expect "interleaved, $groups groups, latency $c" "$makespan $peaks" "$(figure makespan $A) $(ranks peak_activations $A)"
done <<<$'4 0 105 11,9,7,5\n2 0 105 15,13,11,9\n1 0 105 23,21,19,17\n4 0.5 112 11,9,7,5\n2 0.5 108 15,13,11,9\n4 1 119 11,9,7,5\n2 1 111 15,13,11,9'
row "breadth first, latency 1" 111 15,15,15,15 32,32,32,32 schedules/breadth_first.lua -D workers=4 -D batches=16 --cluster $L -D latency=1
# Coarser lanes: one lane for both directions of a pair loses nothing here; one lane for all messages serializes sends
# and receives. Not published: tests/unit/test_sim.c checks the same by relaxation.
per() { figure makespan schedules/gpipe.lua -D "workers=$2" -D "batches=$3" --cluster $L -D bandwidth=1 --lanes "$1"; }
expect "gpipe duration 1, lanes per edge, peer and rank" 39,39,48 "$(per edge 4 8),$(per peer 4 8),$(per rank 4 8)"
expect "gpipe 8 x 32 duration 1, lanes per edge, peer and rank" 131,131,176 \
    "$(per edge 8 32),$(per peer 8 32),$(per rank 8 32)"
# If a rank launches its messages one after another, they behave as on one lane.
serial() { figure makespan schedules/gpipe.lua -D "workers=$1" -D "batches=$2" --cluster $L -D bandwidth=1 --launch-order serial; }
expect "gpipe duration 1, serial launches" 48,176 "$(serial 4 8),$(serial 8 32)"

# Unequal stages: F = cost of the stage, B = 2F. A greedy rank under 1F1B's cap changes its order, for better or worse.
U=tests/papers/formulas/costs.lua
for want in 1f1b/2,1,1,1/51 1f1b/1,1,1,2/57 1f1b/1,1,1,1.5/45 gpipe/2,1,1,1/57 gpipe/1,1,1,2/57 gpipe/1,1,1,1.5/45 \
    greedy/1,1,1,1/33 greedy/2,1,1,1/54 greedy/1,1,1,2/57; do
    IFS=/ read -r scheme costs makespan <<<"$want"
    expect "$scheme, costs $costs" "$makespan" "$(figure makespan $U -D "scheme=$scheme" -D "costs=$costs")"
done

# Across steps, a rank continues as soon as its own lanes have ended. Then the zero bubble schedules (Qi 2023; Qi 2024)
# have no bubble, ZB-H1 has (P-1)(F+B-2W), and 1F1B keeps (P-1)(F+B). ZB-V's F is the time of half a rank's share.
while read -r name period bubble; do
    expect "$name, from step to step" "$period $bubble" \
        "$(figure period schedules/"$name".lua $P4M8) $(figure steady_bubble schedules/"$name".lua $P4M8 | cut -c-6)"
done <<<$'zb_h2 24 0\nzb_h1 27 0.1111\n1f1b 33 0.2727\nzbv 48 0'
expect "ZB-H2, three steps: end of the last step" \
    75 "$("$PIANOLA" show schedules/zb_h2.lua $P4M8 --steps 3 --format chrome |
    sed -nE 's/.*"ts":([0-9]+)000.000,"name":"last step ends".*/\1/p' | sort -n | tail -n 1)"

# PipeDream (Harlap 2018; Narayanan 2019): a microbatch every F + B, so N of them take (N + P - 1)(F + B). Stage s of P
# reads weights with a staleness of P-1-s and keeps P-s versions. With vertical sync every stage has a staleness of P-1;
# in 2BW (Narayanan 2021) it is 1, with two versions. A stage on r ranks keeps one version per microbatch in flight on
# each.
list() { json "${@:2}" | sed -nE "s/^  \"$1\": \[(.*)\],$/\1/p;/error:/p" | tr -d ' '; }
# In each period of r microbatches, a rank of the first stage is busy for F + B, a rank of the second all the time.
while read -r replicas makespan period batches stale versions bubble; do
    A="schedules/pipedream.lua -D replicas=$replicas -D batches"
    [ "$makespan" = - ] || expect "pipedream $replicas, 40 microbatches" "$makespan" "$(figure makespan $A=40)"
    expect "pipedream $replicas" "$period/$batches $stale $versions $bubble" \
        "$(figure period $A=1680)/$(figure period_batches $A=1680) $(list staleness $A=1680) $(list versions $A=1680) $(figure steady_bubble $A=1680)"
done <<'TABLE'
1,1 123 3 1 1,0 2,1 0
1,1,1 126 3 1 2,1,0 3,2,1 0
1,1,1,1 129 3 1 3,2,1,0 4,3,2,1 0
7,1 - 21 7 1,0 2,1 0.75
15,1 - 45 15 1,0 2,1 0.875
TABLE
while read -r name stale versions mixed; do
    A="schedules/$name.lua -D batches=1680"
    expect "$name" "$stale $versions $mixed" "$(list staleness $A) $(list versions $A) $(figure mixed_versions $A)"
done <<'TABLE'
pipedream 3,2,1,0 4,3,2,1 0
pipedream_vertical 3,3,3,3 4,4,4,4 0
pipedream_2bw 1,1,1,1 2,2,2,2 0
pipedream_naive 3,2,1,0 1,1,1,1 5037
model_parallel 0,0,0,0 1,1,1,1 0
TABLE
# All backwards of 3 stages are mixed, except for the first microbatch, which precedes any update: 3 x 1679. A step's
# cost to compile does not depend on its length.
million() { timeout 5 "$PIANOLA" show schedules/pipedream.lua -D batches=1000000 "$@"; }
expect "a million microbatches" "3000009 1000000" "$(million --json | sed -nE 's/^  "(makespan|batches)": (.*),/\2/p' | sort -nr | paste -sd' ')"
expect "a million microbatches: summary" "period       3 units per microbatch, once ranks are in step; bubble 0.0 %" "$(million | grep '^period')"
expect "backwards that mix versions in naive pipelining" \
    "mixed        B(0,1) reads v1, F(0,1) read v0; 5037 backwards read another version than their forwards" \
    "$("$PIANOLA" show schedules/pipedream_naive.lua -D batches=1680 | grep '^mixed')"

# Slices (TeraPipe, Li 2021; Seq1F1B, Ao 2024): if a slice's forward takes one unit, M microbatches of k slices take
# 3 (M k + P - 1). A rank of Seq1F1B holds P - 1 - r + k slices, a rank of TeraPipe all. SlimPipe (Li 2025) adds chunks.
all() { local list; list=$(printf ",$1%.0s" $(seq "$2")); echo "${list:1}"; }
while read -r P M k makespan peaks; do
    for scheme in "seq1f1b $peaks" "terapipe $(all $((M * k)) "$P")"; do
        A="schedules/${scheme% *}.lua -D workers=$P -D batches=$M -D slices=$k"
        expect "${scheme% *} $P,$M,$k" "$makespan ${scheme#* }" "$(figure makespan $A) $(ranks peak_activations $A)"
    done
    V=2 peaks=
    [ "$k" -ge "$P" ] || continue
    for ((r = 0; r < P; r++)); do peaks+=${peaks:+,}$((P - 1 - r + k * V)); done
    A="schedules/slimpipe.lua -D workers=$P -D batches=$M -D slices=$k -D chunks=$V"
    expect "slimpipe $P,$M,$k,$V" "$((3 * (M * k * V + P - 1))) $peaks" "$(figure makespan $A) $(ranks peak_activations $A)"
done <<<$'4 8 4 105 7,6,5,4\n4 8 2 57 5,4,3,2\n8 16 4 213 11,10,9,8,7,6,5,4\n4 4 4 57 7,6,5,4\n2 3 5 48 6,5'
# If slices cost unequally, as under causal attention, 1F1B's order waits for the longest each time.
for want in seq1f1b/3,5,7,9/909 terapipe/3,5,7,9/657 seq1f1b/6,6,6,6/630 terapipe/6,6,6,6/630 seq1f1b/2,4/222 terapipe/2,4/180; do
    IFS=/ read -r scheme costs makespan <<<"$want"
    k=$(tr , '\n' <<<"$costs" | wc -l)
    expect "$scheme, slices of $costs" "$makespan" "$(figure makespan schedules/$scheme.lua $P4M8 -D "slices=$k" -D "costs=$costs")"
done

# Rahimi 2025, the simulator with the paper: S = 4, B = 8, oldest batch first. Its activation transmissions equal ours
# of activations and gradients, plus one for each microbatch that enters stage 0 on a rank other than its placement for
# "stage -1". It fetches weights for every job: weight_slots = 0.
S=tests/papers/formulas/rahimi.lua
transmissions() { # prints the activations and gradients sent per rank
    local a g i sum=
    IFS=, read -ra a <<<"$(ranks activations_received "$@")"
    IFS=, read -ra g <<<"$(ranks gradients_received "$@")"
    for i in "${!a[@]}"; do sum+=${sum:+,}$((a[i] + g[i])); done
    echo "$sum"
}
row "rahimi ddp" 12 0,0,0,0,0,0,0,0 4,4,4,4,4,4,4,4 $S -D scheme=ddp -D workers=8
row "rahimi fsdp" 12 0,0,0,0,0,0,0,0 4,4,4,4,4,4,4,4 $S -D scheme=fsdp -D workers=8
expect "rahimi fsdp weight sends" 6,6,6,6,8,8,8,8 "$(ranks weights_received $S -D scheme=fsdp -D workers=8)"
row "rahimi gpipe, stage first" 33 9,9,9,9 8,8,8,8 $S -D scheme=gpipe -D workers=4 -D stage_first=true
row "rahimi gpipe, batch first" 33 9,9,9,9 8,7,4,1 $S -D scheme=gpipe -D workers=4
expect "rahimi gpipe sends" $((16 - 8)),16,16,8 "$(transmissions $S -D scheme=gpipe -D workers=4)"
for scheme in lpp fslpp; do
    row "rahimi $scheme" 28 4,4,4,4 6,3,6,3 $S -D scheme=$scheme -D workers=4
    expect "rahimi $scheme sends" $((16 - 4)),12,$((16 - 4)),12 "$(transmissions $S -D scheme=$scheme -D workers=4)"
done
expect "rahimi lpp weight sends" 0,0,0,0 "$(ranks weights_received $S -D scheme=lpp -D workers=4)"
expect "rahimi fslpp weight sends" 0,16,16,0 "$(ranks weights_received $S -D scheme=fslpp -D workers=4)"
expect "rahimi lpp, 64 stages" 201 \
    "$(figure makespan $S -D scheme=lpp -D workers=64 -D stages=64 -D batches=32 -D group=8)"
expect "rahimi lpp (12,4,4,8)" 39 "$(figure makespan $S -D scheme=lpp -D workers=8 -D stages=12 -D batches=4 -D group=4)"
expect "rahimi lpp (8,16,4,8)" 64 "$(figure makespan $S -D scheme=lpp -D workers=8 -D stages=8 -D batches=16 -D group=4)"

# Precision. 8 layers of 16 x 16 in 4 stages, 2 rows: an activation has 2 x 16 numbers, a stage's weights 512, of 4 or 2
# bytes each. Weight gradients always have 4 bytes.
received() { ranks bytes_received "schedules/$1.lua" --model schedules/models/integers.lua -D precision="$2"; }
row_of() { local sum="$1"; for ((i = 1; i < $2; i++)); do sum+=,$1; done; echo "$sum"; }
while read -r precision e; do
    act=$((32 * e))
    expect "1f1b $precision: bytes received" $((8 * act)),$((16 * act)),$((16 * act)),$((8 * act)) "$(received 1f1b "$precision")"
    expect "ddp $precision: a ring over 8 homes" "$(row_of $((4 * 512 * 4 * 2 * 7 / 8)) 8)" "$(received ddp "$precision")"
    expect "fsdp $precision: fetches of weights, parts of gradients" \
        "$(row_of $((4 * 512 * e + 7 * 512 * 4)) 4),$(row_of $((6 * 512 * e)) 4)" "$(received fsdp_whole "$precision")"
done <<<$'fp32 4\nbf16 2'
# Memory by kind at the peak: the kinds add up to the arena, and there is one stash per live activation.
M="--model schedules/models/integers.lua"
held() { "$PIANOLA" show "$2" $M --json | sed -nE "s/.*at_peak.*\"$1\": ([0-9]+).*/\1/p" | paste -sd,; }
stashes() { # per rank, from the sizes in streams.txt; here a rank's stage has its number
    "$PIANOLA" show "$1" $M --format streams | awk '/^rank .* memory/ { r = $2 } $1 == "stash(" r ",0)" { print $3 }' | paste -sd,
}
for schedule in 1f1b gpipe; do
    IFS=, read -ra live <<<"$(ranks peak_activations schedules/$schedule.lua $M)"
    IFS=, read -ra each <<<"$(stashes schedules/$schedule.lua)"
    wanted=
    for i in "${!live[@]}"; do wanted+=${wanted:+,}$((live[i] * each[i])); done
    expect "$schedule: stashes at the peak" "$wanted" "$(held stash schedules/$schedule.lua)"
done
for schedule in schedules/*.lua; do
    model=gpt
    [ "$schedule" = schedules/helixpipe.lua ] && model=gpt_stages # has more stages than gpt.lua has layers
    expect "$schedule: the peak is the sum of its parts" yes "$("$PIANOLA" show "$schedule" --model schedules/models/$model.lua -D layers=8 --json | awk '
        /peak_bytes/ { gsub(/[^0-9]/, ""); peak = $0 }
        /at_peak/ { n = split($0, part, /[^0-9]+/); sum = 0; for (i = 1; i <= n; i++) sum += part[i]; ok += sum == peak; all++ }
        END { print (all > 0 && ok == all) ? "yes" : "no" }')"
done
finish
