#!/usr/bin/env bash
# Every rank is a process with its own GPU, and messages travel by NCCL, on tests/gpu/standin/ instead of CUDA, cuBLASLt
# and NCCL. Memory, timelines, algorithms of products, and checkpoints that move between CPUs and GPUs. If ranks are
# killed or stopped, the others end in time and name the instruction that waits. If nvcc and NCCL are installed, the
# programs also link with the real ones. The matrix (tests/training/matrix) compares schedules and features with the host.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/timelines.sh
suffix=.gpu
. tests/support/ranks.sh
built=$PWD/build
[ -f "$built/standin/libpianola-cuda.a" ] || { echo "libpianola-cuda.a is not in build/standin: make standin"; exit 1; }
export PKG_CONFIG_PATH=$built/standin:$PKG_CONFIG_PATH PIANOLA_CUDA=$built/standin/libpianola-cuda.so
export STANDIN_START=launch # asserts that nothing is allocated or created after the first graph

integers=(--model schedules/models/integers.lua)
in_process() { STANDIN_START= timeout 120 "$PIANOLA" run "$@" 2>/dev/null | weights_in; }
weights_in() { sed -n 's/^weights *\([0-9a-f]*\).*/\1/p'; }
# over_mpi NAME N ARGS...: prints the run's weights, or the error
over_mpi() {
    timeout 120 mpirun --oversubscribe -n "$2" "$room/$1/rank.gpu" --flight "$room" "${@:3}" >"$room/said" 2>&1
    weights_in <"$room/said" | grep . || grep -m 3 -E 'standin|error|pianola: rank' "$room/said"
}

# ---- a step, and the next ----

compiled 1f1b 1f1b "${integers[@]}"
expect "rank 0 reports the device and transport" yes "$(over_mpi 1f1b 4 --steps 4 >/dev/null
    grep -q 'stand-in for a GPU, messages by NCCL 2.28.9 (launch order issue), one graph for the step$' "$room/said" && echo yes)"
# While a step runs, the next one is already enqueued. This excludes the first step, which is not in a graph, and the
# second, before which its memory is reported. Nothing is enqueued ahead of a checkpoint, of the last step, or of
# reading times.
ahead() { STANDIN_AHEAD=1 over_mpi 1f1b 4 "$@" >/dev/null && grep -o '^standin: .*' "$room/said" | sort | uniq -c | sed 's/^ *//'; }
expect "a step is enqueued ahead" "4 standin: 4 of 5 graphs launched ahead" "$(ahead --steps 6)"
expect "a step is enqueued ahead with put" "4 standin: 4 of 5 graphs launched ahead" "$(ahead --steps 6 --messages put)"
expect "steps enqueued ahead with checkpoints between steps" "4 standin: 2 of 5 graphs launched ahead" "$(ahead --steps 6 --checkpoint "$saved" --every 2)"
rm -rf "$saved"
expect "no step is enqueued ahead of reading times" \
    "4 standin: 0 of 5 graphs launched ahead" "$(ahead --steps 6 --timeline "$room/ahead")"
# Recomputes Muon with numpy, from the checkpoints before and after a step.
if "${PYTHON:=python3}" -c 'import numpy' 2>/dev/null || { PYTHON=/usr/bin/python3 && $PYTHON -c 'import numpy'; }; then
    compiled muon serial --model tests/training/recipe/small.lua -D optimizer=muon -D batches=4 -D stages=1
    over_mpi muon 1 --steps 10 --every 1 --keep 10 --checkpoint "$saved" --data /usr/share/common-licenses/GPL-3 >/dev/null
    expect "muon: weights and moments of step 4" "" "$($PYTHON -B tests/training/recipe/updates.py "$saved" muon 2>&1 | tail -n 1)"
    rm -rf "$saved"
fi
# Validations between steps give the host's losses.
head -c 10000 /usr/share/common-licenses/GPL-3 >"$room/text"
tail -c 400 /usr/share/common-licenses/GPL-3 >"$room/held"
gpt=(--model schedules/models/gpt.lua -D layers=4 -D width=16 -D heads=2 -D context=8 -D rows=1 -D batches=4)
validated=(--steps 4 --val "$room/held" --val-every 2 --data "$room/text")
for name in 1f1b pipedream; do
    compiled "$name-gpt" "$name" "${gpt[@]}"
    n=$(wc -l <"$room/$name-gpt/app.gpu")
    in_process "schedules/$name.lua" "${gpt[@]}" "${validated[@]}" --metrics "$room/host" >/dev/null
    for flags in "" "--messages put" "--no-graph"; do
        [[ $name != 1f1b && $flags == --no-graph ]] && continue # pipedream repeats a period
        # shellcheck disable=SC2086
        over_mpi "$name-gpt" "$n" "${validated[@]}" --metrics "$room/ranks" $flags >/dev/null
        expect "$name $flags: losses of the host" "" "$(python3 -B tests/training/recipe/judge.py same "$room/host" "$room/ranks" 2>&1 | tail -n 1)"
        expect "$name $flags: three validations, one before the first step" 3 "$(grep -c validation_loss "$room/ranks")"
    done
done
# A reduction in two pieces, neither of which divides evenly among its three ranks, against one without pieces.
cat >"$room/wide.lua" <<'EOF'
return model {
  input = tokens { vocab = 8, context = 4, rows = 1 },
  layers = { embedding { width = 2100 }, linear { width = 4000 }, linear { width = 8 }, cross_entropy {} },
  optimizer = sgd { lr = 0.5 },
}
EOF
wide=(-D workers=3 -D stages=1 -D batches=3 --model "$room/wide.lua")
piece=$(sed -nE 's/^enum \{ REDUCE_PIECE = (.*) \};/\1/p' runtime/ops.h)
expect "the gradients exceed one piece" 1 $((4 * (12 * 2100 + 2101 * 4000 + 4001 * 8) > piece))
compiled pieces ddp "${wide[@]}"
expect "a reduction in two pieces" "$(in_process schedules/ddp.lua "${wide[@]}" --steps 1 --device cuda)" \
    "$(over_mpi pieces 3 --steps 1 --reduce ordered)"
# Each collective against its definition, including some that no schedule uses, with a scratch so small that sums go in
# pieces.
for source in comm/comm_nccl process/comm_loopback; do
    sed 's/SCRATCH = REDUCE_PIECE/SCRATCH = 4096/' runtime/$source.cu >"$room/$(basename $source).cpp"
done
grep -c 'SCRATCH = 4096' "$room"/comm_nccl.cpp "$room"/comm_loopback.cpp >/dev/null &&
    g++ -std=c++17 -O1 -g -Wall -Wextra -Wno-missing-field-initializers -Werror -Itests/gpu/standin -Iruntime -Iruntime/comm -Iruntime/process -Itests/support \
        -o "$room/collectives" tests/gpu/ranks/collectives.cpp "$room/comm_nccl.cpp" "$room/comm_loopback.cpp" \
        "$built/standin/libpianola-cuda.a" -lm -pthread
for how in nccl ordered put loopback; do
    for n in 2 7; do # odd numbers run bf16
        codes=
        if [ $how = loopback ]; then
            "$room/collectives" $how $n $n >"$room/err0" 2>&1
            codes=$?
        else
            forget
            pid=() meetings=$((meetings + 1))
            for ((k = 0; k < n; k++)); do
                RANK=$k WORLD_SIZE=$n MASTER_ADDR=127.$((1 + $$ / 250 % 250)).$(($$ % 250)).$((meetings % 250 + 1)) \
                    MASTER_PORT=29500 STANDIN_MEMORY=1e11 "$room/collectives" $how $n $n >"$room/out$k" 2>"$room/err$k" &
                pid+=($!)
            done
            ended 60
        fi
        expect "collectives of $n ranks, $how" "0" "$(tr ' ' '\n' <<<"$codes" | sort -u)$(grep -hE -m 1 '^standin|error|^rank' "$room"/err*)"
    done
done
tcp 1f1b 4 --steps 4
ended 60
expect "1f1b over TCP" "0 0 0 0 $(in_process schedules/1f1b.lua "${integers[@]}" --steps 4)" "$codes $(weights)"
memory='^pianola: device memory of a rank, at most: planned ([0-9]+) bytes, taken \1; NCCL.s connections [0-9]+, and ([0-9]+) more with the first step, of ([0-9]+) expected$'
expect "one allocation, of the planned bytes" yes "$(says "$memory")"
# At the end, memory also holds the graph.
taken() { sed -nE 's/.* taken ([0-9]+); NCCL.s connections ([0-9]+), and ([0-9]+) more .*/\1 + \2 + \3/p' "$room/err0"; }
at_end() { sed -nE 's/^memory +([0-9]+) bytes of device memory at the end, on the rank that uses most$/\1/p' "$room/out0"; }
expect "memory at the end" "$(($(taken)))" "$(at_end)"
STANDIN_GRAPH_BYTES=4096 tcp 1f1b 4 --steps 4
ended 60
expect "memory at the end, with a graph that takes memory" "$(($(taken) + 4096))" "$(at_end)"
STANDIN_GRAPH_BYTES=4096 tcp 1f1b 4 --steps 4 --json
ended 60
expect "memory at the end, as JSON" "$(($(taken) + 4096))" "$(sed -nE 's/^  "device_bytes_at_end": ([0-9]+),$/\1/p' "$room/out0")"
tcp 1f1b 4 --steps 4 # as before
ended 60
# Ranks 1 and 2 receive from two and send to two: with 8 channels (maxCTAs), each 10 MiB and 2 MiB.
expect "NCCL's channels are limited" $((8 * 2 * 12 << 20)) "$(sed -nE "s/$memory/\2/p" "$room/err0")"
# The estimate has 6 MiB to send, as on A100s, and 8 MiB for each of four communicators.
expect "the estimate of NCCL's memory" $((8 * 2 * 16 + 4 * 8 << 20)) "$(sed -nE "s/$memory/\3/p" "$room/err0")"
compiled 1f1b-peer 1f1b "${integers[@]}" --lanes peer # both directions of a pair share a communicator
tcp 1f1b-peer 4 --steps 1
ended 60
expect "the estimate of NCCL's memory with a communicator per pair" $((8 * 2 * 16 + 2 * 8 << 20)) "$(sed -nE "s/$memory/\3/p" "$room/err0")"
NCCL_BUFFSIZE=1048576 NCCL_MAX_CTAS=2 tcp 1f1b 4 --steps 1 # 4 MiB to send, 8 MiB to receive
ended 60
expect "the estimate with smaller buffers" $((2 * 2 * 12 + 4 * 8 << 20)) "$(sed -nE "s/$memory/\3/p" "$room/err0")"

# Versions from which NCCL overlaps its launches, with and without a graph; for older ones launches are serial or an
# error.
for versions in "22809 12090 issue" "22809 12080 serial" "22602 13000 serial" "22703 12090 issue" "22602 12030 --no-graph issue" \
    "22809 12080 --no-graph issue" "22809 12020 --no-graph serial"; do
    IFS=' ' read -r nccl driver rest <<<"$versions"
    # shellcheck disable=SC2086
    STANDIN_NCCL=$nccl STANDIN_DRIVER=$driver tcp 1f1b 4 --steps 1 ${rest%%[is]*}
    ended 60
    expect "NCCL $versions" yes "$(says "messages by NCCL 2\.[0-9.]+ \(launch order ${rest##* }\), ")"
done
# The compiler's issue order is safe if NCCL runs a rank's communications one after another.
compiled fslpp fslpp "${integers[@]}"
compiled dualpipe dualpipe "${integers[@]}"
for name in 1f1b fslpp dualpipe; do
    wanted=$(in_process schedules/$name.lua "${integers[@]}" --steps 4)
    n=$(wc -l <"$room/$name/app.gpu")
    expect "$name, serial launches" "$wanted" "$(STANDIN_DRIVER=12020 over_mpi $name "$n" --steps 4)"
done
STANDIN_NCCL=22505 tcp 1f1b 4 --steps 1
ended 20
expect "NCCL 2.25" "2 2 2 2 yes" "$codes $(says '^pianola: error: rank 0: NCCL is of version 22505, and 2.26 or newer is needed$')"
NCCL_LAUNCH_ORDER_IMPLICIT=0 tcp 1f1b 4 --steps 1
ended 20
expect "NCCL without a launch order" "2 2 2 2 yes" "$codes $(says '^pianola: error: rank 0: NCCL_LAUNCH_ORDER_IMPLICIT is 0: ranks could wait ')"

# Measured timelines: the weights stay the same, and nothing is allocated after training has begun (STANDIN_START).
wanted=$(in_process schedules/fslpp.lua "${integers[@]}" --steps 13)
"$PIANOLA" show schedules/fslpp.lua "${integers[@]}" --format tsv >"$room/program"
for flags in "" --no-graph "--messages put"; do
    # shellcheck disable=SC2086
    expect "timelines $flags: weights" "$wanted" "$(over_mpi fslpp 8 --steps 13 --timeline "$room/measured" $flags)"
    check_timeline "timelines $flags" "$room/program" "4 5 6 7 8 9 10 11 12 13" 1 "$room"/measured/*.tsv
done
compiled ddp ddp "${integers[@]}"
expect "timelines of one step" "$(in_process schedules/ddp.lua "${integers[@]}" --steps 1)" \
    "$(over_mpi ddp 8 --steps 1 --timeline "$room/measured")"
expect "timelines of one step: every instruction has its time" "" "$("$PIANOLA" show schedules/ddp.lua "${integers[@]}" --format tsv |
    tail -n +2 | cut -f 1,2,5-9 | sort | diff - <(tail -qn +2 "$room"/measured/*.tsv | cut -f 2,3,6-10 | sort))"

# A transformer's sums depend on their order. With --reduce ordered it is the rank order, so the same kernels in one
# process (loopback) give the same bits. NCCL's own sums differ here.
gpt=(--model schedules/models/gpt.lua -D workers=3 -D layers=1 -D width=16 -D context=8 -D rows=1)
text=/usr/share/common-licenses/GPL-3
compiled gpt ddp "${gpt[@]}"
wanted=$(in_process schedules/ddp.lua "${gpt[@]}" --data $text --steps 3 --device cuda)
expect "GPT with ddp: the bits of loopback" "$wanted" "$(over_mpi gpt 3 --data $text --steps 3 --reduce ordered)"
expect "GPT with ddp: sums in order" 0 "$(grep -q ' messages by NCCL 2.28.9 (launch order issue, sums in order), ' "$room/said"; echo $?)"
summed=$(over_mpi gpt 3 --data $text --steps 3)
expect "GPT with ddp: NCCL's sums" yes "$([ ${#summed} = 16 ] && [ "$summed" != "$wanted" ] && echo yes)"

# Product algorithms: ranks time what no lower rank has, and rank 0 writes the file. Then all ranks, and loopback, use
# it.
compiled gpt-1f1b 1f1b "${gpt[@]}"
kept=(--algorithms "$room/algorithms" --data $text --steps 3)
plain=$(over_mpi gpt-1f1b 3 --data $text --steps 3)
chosen=$(STANDIN_FASTEST=1 over_mpi gpt-1f1b 3 "${kept[@]}")
expect "algorithms timed by ranks: other weights" yes "$([ ${#chosen} = 16 ] && [ "$chosen" != "$plain" ] && echo yes)"
expect "algorithms timed by ranks: each product once, of all stages" "" \
    "$(cut -f 1-3 "$room/algorithms" | sort | uniq -d; grep -q 'NN 256 x 8 x 16' "$room/algorithms" && grep -q 'NN 48 x 8 x 16' "$room/algorithms" || echo "not all")"
cp "$room/algorithms" "$room/algorithms.first"
expect "algorithms from the file: ranks" "$chosen" "$(STANDIN_FASTEST=2 over_mpi gpt-1f1b 3 "${kept[@]}")"
expect "algorithms from the file: put" "$chosen" "$(STANDIN_FASTEST=2 over_mpi gpt-1f1b 3 "${kept[@]}" --messages put)"
expect "algorithms from the file: loopback" "$chosen" "$(in_process schedules/1f1b.lua "${gpt[@]}" "${kept[@]}" --device cuda)"
sed -i '$s/.$/x/' "$room/algorithms" && n=$(wc -l <"$room/algorithms")
expect "a corrupt line ends all ranks" "pianola: error: $room/algorithms:$n: the algorithm is not 128 hexadecimal digits; fix the file, or remove it to time all algorithms again" \
    "$(over_mpi gpt-1f1b 3 "${kept[@]}")"
app=$(sed "s| *$| --algorithms $room/algorithms.first|; 2s/ --algorithms.*//" "$room/gpt-1f1b/app.gpu")
expect "algorithms on some ranks only" "rank 1 has --algorithms 0, but rank 0 has 1; give all ranks the same flags" \
    "$(timeout 60 mpirun --oversubscribe --app <(echo "$app") 2>&1 | sed -n 's/^pianola: error: //p' | head -n 1)"

# bf16, with a table shared by embedding and unembedding: checkpoints hold masters, and weights are rounded from them.
half=("${gpt[@]}" -D precision=bf16 -D tied=true)
for name in 1f1b zero1; do
    compiled half $name "${half[@]}"
    wanted=$(in_process schedules/$name.lua "${half[@]}" --data $text --steps 4 --device cuda)
    expect "bf16, $name: the bits of loopback" "$wanted" "$(over_mpi half 3 --data $text --steps 4 --reduce ordered)"
    over_mpi half 3 --data $text --steps 2 --checkpoint "$saved" --reduce ordered >/dev/null
    expect "bf16, $name: resumed from a checkpoint" "$wanted" \
        "$(over_mpi half 3 --data $text --steps 4 --checkpoint "$saved" --resume --reduce ordered)"
    rm -rf "$saved"
done

compiled wide 1f1b --model schedules/models/gpt.lua -D workers=2 -D layers=2 -D width=272 -D heads=2 -D context=8 -D rows=1
expect "heads that are too wide" "rank 0: heads of attention have 136 columns, and GPUs take at most 128: give it more heads" \
    "$(timeout 60 mpirun --oversubscribe -n 2 "$room/wide/rank.gpu" --data $text --steps 1 2>&1 | sed -n 's/^pianola: error: //p' | head -n 1)"

# ---- checkpoints: the same on CPUs and on GPUs ----

adam=(--model schedules/models/gpt.lua -D workers=2 -D layers=2 -D width=16 -D context=8 -D rows=1)
compiled pipe 1f1b "${adam[@]}"
on_cpu() { timeout 60 mpirun --oversubscribe -n 2 "$room/pipe/rank" --data $text "$@" 2>&1 | weights_in; }
whole=$(over_mpi pipe 2 --data $text --steps 8)
first=$(over_mpi pipe 2 --data $text --steps 5 --checkpoint "$saved" --every 2)
expect "a checkpoint of GPUs" "5 ${#whole}" "$(newest) ${#first}"
cp -r "$saved" "$room/of_gpus"
expect "GPUs resume from GPUs' checkpoints, bit for bit" "$whole" "$(over_mpi pipe 2 --data $text --steps 8 --checkpoint "$saved" --resume)"
# Layers on CPUs and GPUs differ in the last bits, but at the checkpoint itself nothing has been computed.
expect "CPUs read the weights of GPUs" "$first" "$(on_cpu --steps 5 --checkpoint "$room/of_gpus" --resume)"
rm -rf "$saved"
first=$(on_cpu --steps 5 --checkpoint "$saved")
expect "GPUs read the weights of CPUs" "$first" "$(over_mpi pipe 2 --data $text --steps 5 --checkpoint "$saved" --resume)"
rm -rf "$saved"
wanted=$(in_process schedules/1f1b.lua "${integers[@]}" --steps 7)
timeout 60 mpirun --oversubscribe -n 4 "$room/1f1b/rank" --steps 3 --checkpoint "$saved" >/dev/null 2>&1
expect "integers: CPUs to step 3, then GPUs" "$wanted" "$(over_mpi 1f1b 4 --steps 7 --checkpoint "$saved" --resume)"
rm -rf "$saved"
over_mpi 1f1b 4 --steps 3 --checkpoint "$saved" >/dev/null
expect "integers: GPUs to step 3, then CPUs" "$wanted" "$(timeout 60 mpirun --oversubscribe -n 4 "$room/1f1b/rank" --steps 7 \
    --checkpoint "$saved" --resume 2>/dev/null | weights_in)"
rm -rf "$saved"

# A signal ends the step, with a checkpoint.
tcp 1f1b 4 --steps 100000 --checkpoint "$saved" --every 100000
begun
kill -INT "${pid[1]}"
ended 30
expect "SIGINT" "130 130 130 130 yes" "$codes $([ "$(newest)" -gt 0 ] && says "^pianola: SIGINT came: stopped after step $(newest), with a checkpoint$")"
rm -rf "$saved"

# ---- ranks that die or stop ----

at='waits at [0-9]+ (RECV|SEND)_[FB] (act|grad)\([0-9],[0-9]\) (from|to) rank [0-9]|is at [0-9]+ [FB] [0-9] [0-9]'
others() { pid=("${pid[@]:0:2}" "${pid[3]}"); }
# all_said WHY: counts how many of ranks 0, 1 and 3 report where they waited, and why
all_said() {
    local k
    for k in 0 1 3; do
        says "^pianola: rank $k ($at|waits for all ranks to end the step): ($1)$" $k
        [ -f "$room/flight-rank$k.txt" ] && echo yes
    done | grep -c yes
}
gone='NCCL: a message: ncclRemoteError: remote process exited or there was a network error|NCCL: (RECV|SEND)_[FB] act.*|NCCL: (RECV|SEND)_[FB] grad.*|rank [0-9] closed its connection|rank [0-9]: Connection reset by peer'
for deaf in "" 1; do # NCCL may or may not notice that a rank is gone; the ranks' own connections do
    if [ $deaf ]; then export STANDIN_DEAF=1; else unset STANDIN_DEAF; fi
    for flags in "" --no-graph; do
        # shellcheck disable=SC2086
        tcp 1f1b 4 --steps 100000 --deadline 20 $flags
        begun && sleep 0.3
        kill -KILL "${pid[2]}"
        others
        ended 10
        expect "a killed rank${deaf:+, to a deaf NCCL} $flags" "1 1 1: 6" "$codes: $(all_said "$gone")"
    done
done
for flags in "" --no-graph; do
    # shellcheck disable=SC2086
    tcp 1f1b 4 --steps 100000 --deadline 2 $flags
    begun && sleep 0.3
    kill -STOP "${pid[2]}"
    stopped=${pid[2]}
    others
    ended 10
    expect "a stopped rank $flags" "1 1 1: 6" "$codes: $(all_said 'step [0-9]+ has taken 2 s \(--deadline\)')"
    kill -KILL "$stopped"
done
# The messages name the right ranks: 1 and 3 wait for rank 2, which is stopped. If it had sent the whole step before,
# they wait for the end of the step.
for k in 1 3; do
    expect "rank $k waits for rank 2" yes "$(grep -qE \
        "^pianola: rank $k waits (at .* rank 2|for all ranks to end the step): " "$room/err$k" && echo yes)"
done
unset STANDIN_DEAF
# Threads of one process on one GPU: the first one never reaches a graph.
for call in 2000 100000; do
    PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so stuck $call --model schedules/models/gpt.lua -D layers=2 -D width=16 \
        -D context=8 -D rows=1 --device cuda
done

# NCCL's own calls may hang: they get two seconds.
STANDIN_HANGS=abort tcp 1f1b 4 --steps 100000 --deadline 2
begun && sleep 0.3
kill -STOP "${pid[2]}"
stopped=${pid[2]} before=${EPOCHREALTIME/./}
others
ended 12
took=$(((${EPOCHREALTIME/./} - before) / 1000))
expect "an abort that hangs: $took ms" "1 1 1 yes" "$codes $([ $took -gt 3000 ] && [ $took -lt 7000 ] && echo yes)"
kill -KILL "$stopped"
STANDIN_HANGS=init tcp 1f1b 4 --steps 3 --deadline 2
ended 12
expect "an initialisation that hangs" "1 1 1 1 4" "$codes $(grep -lE \
    '^pianola: rank [0-9] waits for all ranks to connect their GPUs: (2 s have passed \(--deadline\)|rank [0-9].*|NCCL: .*)$' "$room"/err? | wc -l)"
STANDIN_HANGS=finalize tcp 1f1b 4 --steps 3
ended 20
expect "a finalisation that hangs" \
    "0 0 0 0 $(in_process schedules/1f1b.lua "${integers[@]}" --steps 3)" "$codes $(weights)"

# ---- missing parts ----

STANDIN_DEVICES=2 tcp 1f1b 4 --steps 3
ended 20
expect "two GPUs for four ranks" "2 2 2 2 yes" "$codes $(says "^pianola: error: ranks 0 and 2 would share GPU 0 of $(hostname), a stand-in for a GPU: each needs its own, and 2 are there to be seen; to try things out, --messages put lets ranks share one$")"
STANDIN_DEVICES=0 tcp 1f1b 4 --steps 3
ended 20
expect "no GPU" "2 2 2 2 yes" "$codes $(says "^pianola: error: rank 0: no CUDA device on $(hostname): ")"
STANDIN_MEMORY=1e6 tcp 1f1b 4 --steps 3
ended 20
small='^pianola: error: rank 0: no memory on the device: GPU 0, a stand-in for a GPU, has %d bytes free; the plan takes [0-9]+, and the buffers of NCCL up to %d, which '
# shellcheck disable=SC2059
expect "a GPU that is too small" "2 2 2 2 yes" "$codes $(says "$(printf "$small" 1000000 $((8 * 16 + 2 * 8 << 20)))")"
STANDIN_MEMORY=1e8 tcp 1f1b 4 --steps 3
ended 20
# shellcheck disable=SC2059
expect "a GPU that is too small for NCCL" "2 2 2 2 yes" "$codes $(says "$(printf "$small" 100000000 $((8 * 16 + 2 * 8 << 20)))")"
# If NCCL's allocator fails, cudaMalloc gives the memory, and nothing is registered. If that fails too, the error has
# both reasons, and speaks of memory only if it is short.
refused="Cuda failure 101 'invalid device ordinal'"
STANDIN_NCCL_ALLOC=$refused tcp 1f1b 4 --steps 4
ended 60
expect "memory that NCCL cannot allocate: weights" "0 0 0 0 $(in_process schedules/1f1b.lua "${integers[@]}" --steps 4)" "$codes $(weights)"
expect "memory that NCCL cannot allocate: each rank prints why" "4 4" "$(grep -hc "^pianola: rank [0-3]: NCCL: ncclMemAlloc: \
ncclUnhandledCudaError: unhandled cuda error: $refused; cudaMalloc gives the memory instead, unregistered, .* NCCL_CUMEM_ENABLE=0 for all ranks$" \
    "$room"/err* | paste -sd+ | bc) $(grep -h ncclMemAlloc "$room"/err* | sort -u | wc -l)"
STANDIN_MALLOC=800 STANDIN_NCCL_ALLOC=$refused tcp 1f1b 4 --steps 4
ended 20
expect "memory that neither NCCL nor CUDA can allocate: both reasons" "2 2 2 2 yes" "$codes $(says "^pianola: error: rank 0: CUDA: cudaMalloc: cudaErrorNotPermitted: \
operation not permitted \(NCCL: ncclMemAlloc: ncclUnhandledCudaError: unhandled cuda error: $refused\): it takes [0-9]+ bytes of GPU 0, ")"
expect "memory that neither NCCL nor CUDA can allocate: no mention of a shortage" "" "$(said 'no memory')"
STANDIN_MALLOC=2 STANDIN_NCCL_ALLOC=$refused tcp 1f1b 4 --steps 4
ended 20
expect "memory is short" yes "$(says "^pianola: error: rank 0: no memory on the device \(NCCL: ncclMemAlloc: .*$refused\): it takes ")"
for code in 2 800; do
    STANDIN_MALLOC=$code tcp 1f1b 4 --steps 4 --messages put
    ended 20
    expect "put, cudaMalloc fails with $code" yes "$(says "^pianola: error: rank 0: $([ $code = 2 ] && echo "no memory on the device" ||
        echo "CUDA: cudaMalloc: cudaErrorNotPermitted: operation not permitted"): it takes ")"
done

# ---- a kernel's fault, which surfaces later ----

# Makes the last rank's loss kernel fault in the second step's first microbatch. In a graph, the device's progress shows
# where it was.
illegal='cudaErrorIllegalAddress: an illegal memory access was encountered'
later=' An earlier instruction may be at fault: to see which, run with --no-graph and with CUDA_LAUNCH_BLOCKING=1 in the environment, then under compute-sanitizer$'
export STANDIN_FAULT='(mse<T>)' STANDIN_FAULT_AT=9
for flags in "" "--messages put"; do
    # shellcheck disable=SC2086
    STANDIN_FAULT_LATER=3 tcp 1f1b 4 --steps 4 $flags
    ended 30
    expect "a fault in a graph $flags" "1 1 1 1 yes" "$codes $(says "^pianola: rank 3 (is at 2 F 3 0|waits at [0-9]+ RECV_F act\(2,0\) from rank 2): CUDA: cudaEventQuery: $illegal\.$later" 3)"
    # shellcheck disable=SC2086
    CUDA_LAUNCH_BLOCKING=1 tcp 1f1b 4 --steps 4 --no-graph --deadline 3 $flags # others wait in a launch
    ended 30
    expect "a fault where launches block $flags" "1 1 1 1 yes" "$codes $(says "^pianola: error: CUDA: launch of \(mse<T>\): \
$illegal, in rank 3, step 2: 3F0; to see where in it, run this under compute-sanitizer$" 3)"
done
unset STANDIN_FAULT STANDIN_FAULT_AT

app=$(sed '1s/\.gpu$//' "$room/1f1b/app.gpu") # rank 0 on a CPU
expect "CPUs and GPUs together" "rank 1 is built for a GPU, but rank 0 for a CPU" \
    "$(timeout 60 mpirun --oversubscribe --app <(echo "$app") 2>&1 | sed -n 's/^pianola: error: //p' | head -n 1)"
app=$(sed '2s/$/ --no-graph/' "$room/1f1b/app.gpu")
expect "a graph on some ranks only" "rank 1 has --no-graph 1, but rank 0 has 0; give all ranks the same flags" \
    "$(timeout 60 mpirun --oversubscribe --app <(echo "$app") 2>&1 | sed -n 's/^pianola: error: //p' | head -n 1)"
app=$(sed '2s/$/ --reduce ordered/' "$room/1f1b/app.gpu")
expect "sums in order on some ranks only" "rank 1 has --reduce ordered, but rank 0 has nccl; give all ranks the same flags" \
    "$(timeout 60 mpirun --oversubscribe --app <(echo "$app") 2>&1 | sed -n 's/^pianola: error: //p' | head -n 1)"
expect "an unknown value of --reduce" "pianola: rank 0 of serial: error: --reduce rank: expected nccl or ordered" \
    "$(compiled serial serial "${integers[@]}" && "$room/serial/rank0.gpu" --reduce rank 2>&1)"
expect "no files of NCCL's communicators are left" "" "$(ls "$room" | grep '^standin-')"

# ---- the real libraries, as far as possible without a GPU ----

make -s -C "$room/ddp" clean gpu # links the stand-in the way that users link CUDA
expect "built by make: the weights of one process" "$(in_process schedules/ddp.lua "${integers[@]}" --steps 4)" "$(over_mpi ddp 8 --steps 4)"
got=$(PKG_CONFIG_LIBDIR=$room/none PKG_CONFIG_PATH='' make -s -C "$room/ddp" clean gpu 2>&1)
expect "no runtime for GPUs" yes "$(grep -q 'pianola-cuda not found: it needs nvcc and NCCL; make gpu in the source tree' <<<"$got" && echo yes)"
nvcc=${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}
if [ -x "$nvcc" ] && make -s -j"$(nproc)" gpu && [ -f build/libpianola-cuda.a ]; then
    PKG_CONFIG_PATH=$built make -s -C "$room/1f1b" clean gpu
    expect "the programs link with CUDA and NCCL" "0 yes" "$? $(ldd "$room/1f1b/rank0.gpu" | grep -q libnccl && echo yes)"
    if ! ls /dev/nvidia0 >/dev/null 2>&1; then
        tcp 1f1b 4 --steps 3
        ended 30
        expect "the programs report that there is no GPU" "2 2 2 2 yes" "$codes $(says '^pianola: error: rank 0: no CUDA device on ')"
    fi
else
    echo "nvcc or NCCL is not here: the programs were linked with the stand-in only"
fi
[ ! -x "$nvcc" ] || {
    "$nvcc" -std=c++20 -x cu -c -Ibuild/include -o "$room/rank0.o" "$room/1f1b/rank0.cu" >"$room/nvcc" 2>&1
    expect "rank0.cu compiles with nvcc, unchanged" "0 " "$? $(cat "$room/nvcc")"
}
finish
