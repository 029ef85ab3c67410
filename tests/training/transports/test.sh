#!/usr/bin/env bash
# Transports on the machine model's worst machine (tests/training/transports/worst.c). It overwrites tensors right
# before an instruction that only writes them, and as soon as a message or a collective ends; ranks pause at random. The
# weights still match one rank bit for bit, in one process, over TCP and over MPI, with any lanes. Starts and ends of
# messages are in the model's order.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
trap 'rm -rf "$room"' EXIT
integers=(--model schedules/models/integers.lua)
wide=(-D width=256 -D rows=32) # large tensors, whose copies take noticeable time
runs=0
flags=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -O1 -Iruntime)
worst=("$room/worst.o" -Wl,--wrap=replay_step)
worst_rank=("$room/worst_rank.o" -Wl,--wrap=replay_step,--wrap=rank_main)
read -ra host < <(pkg-config --cflags --libs pianola-host)
read -ra libraries < <(pkg-config --libs lua5.4 $BLAS libpcre2-8 libutf8proc)
cc "${flags[@]}" -c -o "$room/worst.o" tests/training/transports/worst.c &&
    cc "${flags[@]}" -DPROCESSES -c -o "$room/worst_rank.o" tests/training/transports/worst.c &&
    cc -o "$room/pianola" build/obj/compiler/cli/main.o "${worst[@]}" build/libpianola.a "${libraries[@]}" -lm -pthread ||
    exit 2

weights() { sed -n 's/^weights *\([0-9a-f]*\).*/\1/p' "$@"; }
# ordered: checks the messages logged since the last call. In no step does a RECV end before its SEND starts, nor does a
# collective end on a member before it starts on one whose data reach it.
ordered() {
    cat "$room"/orders* | awk '
        { of = $1 " " $2; n++ }
        $6 && $4 > start[of] { start[of] = $4 }
        $7 && (!(of in end) || $5 < end[of]) { end[of] = $5 }
        END { for (of in end) if (start[of] > end[of]) late++; print (n ? late + 0 : "no") " messages out of order" }'
    rm "$room"/orders*
}
scribbled() { # NAME SCHEDULE ARGS...: builds its ranks, each linked with the worst machine
    local source
    "$PIANOLA" compile "schedules/$2.lua" "${integers[@]}" "${wide[@]}" "${@:3}" -o "$room/$1" || exit 2
    for source in "$room/$1"/rank*.cu; do
        mpicc -std=c11 -x c "$source" -x none "${worst_rank[@]}" -o "${source%.cu}" "${host[@]}" || exit 2
    done
}

in_one_process() { # NAME LANES FLAGS...
    ORDERS=$room SCRIBBLES=$runs timeout 120 "$room/pianola" run "schedules/$1.lua" "${integers[@]}" "${wide[@]}" \
        --lanes "$2" --steps 3 --json "${@:3}" 2>&1
}
# Every column is used, so each update reads weights that the previous one wrote.
repeated() { # MACHINE NAME LANES
    ORDERS=$room SCRIBBLES=$runs timeout 120 "$1" run "schedules/$2.lua" "${integers[@]}" -D width=64 -D rows=32 -D batches=40 \
        --lanes "$3" --steps 3 2>&1 | sed -nE 's/^weights *([0-9a-f]*).*/\1/p;/still written|error:/p'
}
for schedule in schedules/*.lua; do
    name=$(basename "$schedule" .lua)
    [ "$name" != serial ] || continue # one rank, no messages
    # Most schedules get one kind of lanes, in turn; these get all kinds.
    ways=(edge peer rank)
    case $name in 1f1b | fslpp | zbv | weipipe | pipedream | dualpipe) ;; *) ways=("${ways[runs % 3]}") ;; esac
    for lanes in "${ways[@]}"; do
        runs=$((runs + 1))
        if several_updates "schedules/$name.lua"; then
            wanted=$(repeated "$PIANOLA" "$name" $lanes)
            got=$(repeated "$room/pianola" "$name" $lanes)
        else
            wanted='"one_rank_same_weights":true'
            got=$(in_one_process "$name" $lanes --compare | grep -E 'same_weights|still written' | tr -d ' ,')
        fi
        expect "$name in one process, lanes per $lanes" "$wanted" "$got"
        expect "$name in one process, lanes per $lanes: S(SEND) before E(RECV)" "0 messages out of order" "$(ordered)"
    done
done

# NAME SCHEDULE RANKS ARGS...
over_processes() {
    local wanted over
    wanted=$("$PIANOLA" run "schedules/$2.lua" "${integers[@]}" "${wide[@]}" "${@:4}" --steps 4 2>/dev/null | weights)
    scribbled "$1" "$2" "${@:4}"
    for over in tcp mpi; do
        ORDERS=$room SCRIBBLES=$((++runs)) $over "$1" "$3" --steps 4 --deadline 60
        ended 90
        expect "$1 over $over: weights" "$wanted" "$(weights "$room"/out*)"
        expect "$1 over $over: S(SEND) before E(RECV)" "0 messages out of order" "$(ordered)"
    done
}
over_processes ddp ddp 4 -D workers=4
over_processes fslpp fslpp 4 -D workers=4 -D stages=4 --lanes peer
over_processes dualpipe dualpipe 4 -D workers=4 --lanes rank
over_processes gpipe gpipe 3 -D workers=3
over_processes fsdp fsdp 4 -D workers=4 -D stages=2 -D batches=4
over_processes zero1 zero1 3 -D workers=3 -D batches=3
over_processes hsdp hsdp 4 -D workers=4 -D group=2 -D zero=2
over_processes whole fsdp_whole 4 -D workers=4
over_processes weipipe weipipe 4 -D workers=4
over_processes pipedream pipedream 4 -D batches=40
over_processes tawpipe tawpipe 4 -D workers=4 -D stages=4 -D batches=8 -D group=2
cat >"$room/nothing.lua" <<'LUA' # its second stage has no weights, so its gradient has no bytes
return model {
  input = integers { features = 256, rows = 32 },
  layers = { linear { width = 256 }, relu {}, mse {} },
  cut = { 2 },
  optimizer = sgd { lr = 0.015625 },
}
LUA
integers=(--model "$room/nothing.lua") wide=()
over_processes nothing ddp 4 -D workers=4 -D stages=2 -D batches=4
finish
