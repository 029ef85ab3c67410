#!/usr/bin/env bash
# Teams whose members hold their own rows between the layers they divide (-D parallel=sequence) train as one rank does.
# On integers the weights match one rank bit for bit. In one process, over TCP and MPI, and on the CUDA stand-in.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
built=$PWD/build
integers=(--model schedules/models/integers.lua -D rows=4 -D batches=8)
by_rows=(-D parallel=sequence)
export OPENBLAS_NUM_THREADS=1

in_process() { timeout 120 "$PIANOLA" run "$@" --json 2>"$room/said" | field weights; }
loss() { timeout 120 "$PIANOLA" run "$@" --json 2>"$room/said" | field loss_last; }

# ---- in one process ----

one=$(in_process schedules/serial.lua "${integers[@]}" --steps 3)
for schedule in schedules/*.lua; do
    case $schedule in
    schedules/pianola.d.lua) continue ;;

    schedules/vocab_parallel.lua) continue ;; # its teams have two sizes
    schedules/context.lua) continue ;; # its teams of 4 become teams of 8, more than a microbatch has rows
    schedules/seq1f1b.lua | schedules/slimpipe.lua | schedules/terapipe.lua) continue ;; # slices of a model
    *) several_updates "$schedule" && continue ;;
    esac
    expect "$schedule in teams of 2 by rows: the weights of one rank" "$one" \
        "$(in_process "$schedule" -D tensor=2 "${integers[@]}" "${by_rows[@]}" --steps 3)"
done
expect "a team of 4" "$one" \
    "$(in_process schedules/1f1b.lua -D tensor=4 "${integers[@]}" "${by_rows[@]}" --steps 3)"
expect "teams that a schedule names" "$one" \
    "$(in_process schedules/fsdp_tp.lua "${integers[@]}" "${by_rows[@]}" --steps 3)"
for more in "--recompute" "-D stages=8" "--prefetch one_ahead"; do
    # shellcheck disable=SC2086
    expect "in teams of 2, $more" "$(in_process schedules/1f1b.lua $more "${integers[@]}" --steps 3)" \
        "$(in_process schedules/1f1b.lua $more -D tensor=2 "${integers[@]}" "${by_rows[@]}" --steps 3)"
done
expect "the loss is the sum over members" "$(loss schedules/serial.lua "${integers[@]}" --steps 3)" \
    "$(loss schedules/1f1b.lua -D tensor=4 "${integers[@]}" "${by_rows[@]}" --steps 3)"

# Sums of norms and biases over each member's rows; with attention, a tied table, and the loss by vocabulary between
# them.
gpt=(--model schedules/models/gpt.lua --data /usr/share/common-licenses/GPL-3)
llama=(--model schedules/models/llama.lua --data /usr/share/common-licenses/GPL-3)
near() { # WHAT SCHEDULE ARGS...
    far=$(timeout 120 "$PIANOLA" run "schedules/$2.lua" "${@:3}" "${by_rows[@]}" --steps 5 --compare --json 2>/dev/null |
        field one_rank_largest_difference)
    expect "$2, $1: losses within 1e-5 ($far)" yes "$(awk -v d="$far" 'BEGIN { print d != "" && d <= 1e-5 ? "yes" : "no" }')"
}
for schedule in 1f1b zb_h1 fsdp; do
    near "GPT in teams of 2" $schedule -D tensor=2 "${gpt[@]}"
done
near "GPT in teams of 4" 1f1b -D workers=2 -D stages=2 -D tensor=4 "${gpt[@]}"
near "GPT with recompute" 1f1b --recompute -D tensor=2 "${gpt[@]}"
near "GPT with a tied table" 1f1b -D tensor=2 -D tied=true "${gpt[@]}"
near "GPT in braided pairs" dualpipev -D workers=2 -D batches=8 -D tensor=2 "${gpt[@]}"
near "GPT between shards" fsdp_tp "${gpt[@]}"
near "Llama in teams of 2" zb_h1 -D tensor=2 "${llama[@]}"
near "Llama with norms of heads in teams of 2" zb_h1 -D tensor=2 "${llama[@]}" -D qk_norm=true

# ---- between processes ----

pipeline=(-D workers=2 -D stages=2 "${integers[@]}")
wanted=$(in_process schedules/1f1b.lua "${pipeline[@]}" --steps 4)
compiled rows 1f1b "${pipeline[@]}" -D tensor=2 "${by_rows[@]}"
for how in tcp mpi; do
    $how rows 4 --steps 4 --deadline 60
    ended 90
    expect "1f1b in teams by rows over $how" "$wanted" "$(weights)$(said 'error:')"
done

# ---- checkpoints hold whole layers: by rows, by columns alone, without a team ----

leg() { # NAME RANKS STEPS ARGS...
    tcp "$1" "$2" --steps "$3" --checkpoint "$saved" --every 100 --resume --deadline 60 "${@:4}"
    ended 90
    expect "$1 goes on to step $3" "" "$(said 'error:')"
}
compiled one serial "${integers[@]}"
compiled four serial -D tensor=4 "${integers[@]}" "${by_rows[@]}"
compiled columns 1f1b "${pipeline[@]}" -D tensor=2
wanted=$(in_process schedules/1f1b.lua "${pipeline[@]}" --steps 10)
step=0
for next in "rows 4" "one 1" "four 4" "columns 4" "rows 4"; do
    # shellcheck disable=SC2086
    leg $next $((step += 2))
done
expect "one after the other, two steps each: the weights of ten of one" "$wanted" "$(weights)"

rm -r "$saved"
data=(--data "${gpt[3]}")
small=(-D workers=2 -D stages=2 -D batches=4 -D width=32 -D layers=2)
compiled gpt 1f1b "${small[@]}" -D tensor=2 "${by_rows[@]}" "${gpt[@]:0:2}"
compiled alone serial "${small[@]:2}" "${gpt[@]:0:2}"
leg gpt 4 2 "${data[@]}"
was=$(weights)
leg alone 1 2 "${data[@]}"
expect "one rank reads what members have learned, their norms too" "$was" "$(weights)"
leg gpt 4 5 "${data[@]}"
expect "teams go on as if they had never stopped" \
    "$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${by_rows[@]}" "${gpt[@]}" --steps 5)" "$(weights)"

# ---- on GPUs, with the stand-in ----

[ -f "$built/standin/libpianola-cuda.a" ] || { echo "libpianola-cuda.a is not in build/standin: make standin"; exit 1; }
export PKG_CONFIG_PATH=$built/standin:$PKG_CONFIG_PATH PIANOLA_CUDA=$built/standin/libpianola-cuda.so
suffix=.gpu
over_nccl() { # NAME N ARGS...
    timeout 120 mpirun --oversubscribe -n "$2" "$room/$1/rank.gpu" --flight "$room" "${@:3}" >"$room/out0" 2>"$room/err0"
    weights | grep . || grep -m 3 -E 'standin|error|pianola: rank' "$room/err0"
}
wanted=$(in_process schedules/1f1b.lua "${pipeline[@]}" --steps 4)
expect "1f1b in teams by rows, all in one process" "$wanted" \
    "$(in_process schedules/1f1b.lua "${pipeline[@]}" "${by_rows[@]}" -D tensor=2 --steps 4 --device cuda)"
compiled rows 1f1b "${pipeline[@]}" -D tensor=2 "${by_rows[@]}"
for flags in "" "--messages put" "--reduce ordered" "--no-graph"; do
    # shellcheck disable=SC2086
    expect "1f1b in teams by rows, a GPU each, $flags" "$wanted" "$(over_nccl rows 4 --steps 4 $flags)"
done
for precision in fp32 bf16; do
    set=(-D "precision=$precision" "${small[@]:4}" "${by_rows[@]}" "${gpt[@]:0:2}")
    compiled $precision serial -D tensor=4 "${set[@]}"
    wanted=$(in_process schedules/serial.lua -D tensor=4 "${set[@]}" --steps 3 --device cuda)
    for flags in "--messages put" "--reduce ordered"; do
        # shellcheck disable=SC2086
        expect "a GPT of $precision in a team of 4 by rows, $flags" "$wanted" "$(over_nccl $precision 4 --steps 3 $flags)"
    done
done
finish
