#!/usr/bin/env bash
# Transports on the machine model's worst machine (tests/transports/worst.c): tensors are scribbled over right before a
# RECV starts, and as soon as a message has ended; ranks dawdle at random. Weights after some steps still equal one rank's
# bit for bit, inside one process, over TCP and over MPI, whatever has a lane of its own.
cd "$(dirname "$0")/.." || exit 2
. tests/lib.sh
. tests/faults/ranks.sh
trap 'rm -rf "$room"' EXIT
integers=(--model schedules/models/integers.lua)
wide=(-D width=256 -D rows=32) # a copy of such a tensor takes its time too
runs=0
flags=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -O1)
worst=("$room/worst.o" -Wl,--wrap=replay_step)
read -ra host < <(pkg-config --cflags --libs pianola-host)
read -ra libraries < <(pkg-config --libs lua5.4 openblas)
cc "${flags[@]}" -c -o "$room/worst.o" tests/transports/worst.c &&
    cc -o "$room/pianola" build/obj/compiler/main.o "${worst[@]}" build/libpianola.a "${libraries[@]}" -lm -pthread ||
    exit 2

weights() { sed -n 's/^weights *\([0-9a-f]*\).*/\1/p' "$@"; }
scribbled() { # NAME SCHEDULE ARGS...: its ranks, each linked with the worst machine
    local source
    "$PIANOLA" compile "schedules/$2.lua" "${integers[@]}" "${wide[@]}" "${@:3}" -o "$room/$1" || exit 2
    for source in "$room/$1"/rank*.cu; do
        mpicc -std=c11 -x c "$source" -x none "${worst[@]}" -o "${source%.cu}" "${host[@]}" || exit 2
    done
}

for schedule in schedules/*.lua; do
    name=$(basename "$schedule" .lua)
    for lanes in edge peer rank; do
        runs=$((runs + 1))
        expect "$name in one process, lanes per $lanes" '"one_rank_same_weights":true' \
            "$(SCRIBBLES=$runs timeout 120 "$room/pianola" run "$schedule" "${integers[@]}" "${wide[@]}" --lanes $lanes \
                --steps 3 --compare --json 2>&1 | grep -E 'same_weights|still written' | tr -d ' ,')"
    done
done

# NAME SCHEDULE RANKS ARGS...
over_processes() {
    local wanted over
    wanted=$("$PIANOLA" run "schedules/$2.lua" "${integers[@]}" "${wide[@]}" "${@:4}" --steps 4 2>/dev/null | weights)
    scribbled "$1" "$2" "${@:4}"
    for over in tcp mpi; do
        SCRIBBLES=$((++runs)) $over "$1" "$3" --steps 4 --deadline 60
        ended 90
        expect "$1 over $over: weights" "$wanted" "$(weights "$room"/out*)"
    done
}
over_processes ddp ddp 4 -D workers=4
over_processes fslpp fslpp 4 -D workers=4 -D stages=4 --lanes peer
over_processes dualpipe dualpipe 4 -D workers=4 --lanes rank
over_processes gpipe gpipe 3 -D workers=3
finish
