#!/usr/bin/env bash
# Every rank is a process, over MPI: the programs that `pianola compile` writes, built by their own Makefile; every
# collective, against its definition; ranks that do not belong together are refused by name. The matrix
# (tests/training/matrix) runs schedules and features over MPI.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PKG_CONFIG_PATH=$PWD/build:$PKG_CONFIG_PATH
integers="--model schedules/models/integers.lua"

compiled() { "$PIANOLA" compile "$@" && make -s -C "${@: -1}"; }
# started DIR ARGS...: starts all ranks together, each with the arguments
started() { timeout 120 mpirun --oversubscribe --app <(sed "s|\$| ${*:2}|" "$1/app.mpi") 2>&1; }
weights() { sed -n 's/^weights *\([0-9a-f]*\).*/\1/p'; }

# Built with make, as users do. Sums of floats match too, although they depend on the order: reductions keep the rank
# order. shellcheck disable=SC2086
compiled schedules/1f1b.lua $integers -o "$room/1f1b"
text=/usr/share/common-licenses/GPL-3
compiled schedules/ddp.lua --model schedules/models/gpt.lua -D workers=4 -o "$room/gpt"
wanted=$("$PIANOLA" run schedules/ddp.lua --model schedules/models/gpt.lua -D workers=4 --data $text --steps 3 2>/dev/null | weights)
expect "GPT with DDP over MPI" "$wanted" "$(started "$room/gpt" --steps 3 --data $text | weights)"

# Every collective, in handmade programs.
read -ra host < <(pkg-config --cflags --libs pianola-host)
mpicc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -O1 -Iruntime -Itests/support -o "$room/collectives" \
    tests/processes/mpi/collectives.c "${host[@]}"
for ranks in 2 3 7; do
    expect "collectives of $ranks ranks over MPI" 0 \
        "$(timeout 120 mpirun --oversubscribe -n $ranks "$room/collectives" $((ranks + 200)) >&2; echo $?)"
done

# Ranks that do not belong together.
first_error() { sed -n 's/^pianola: error: //p' | head -n 1; }
swapped=$(sed '1s/rank0/rank1/;2s/rank1/rank0/' "$room/1f1b/app.mpi")
expect "another rank's program" "process 0 runs the program of rank 1 of 1f1b; start them in order" \
    "$(mpirun --oversubscribe --app <(echo "$swapped") 2>&1 | first_error)"
expect "another world size" "1f1b is compiled for 4 ranks, but 3 were started" \
    "$(mpirun --oversubscribe --app <(head -n 3 "$room/1f1b/app.mpi") 2>&1 | first_error)"
# shellcheck disable=SC2086
compiled schedules/1f1b.lua $integers -D lr=0.5 -o "$room/older"
expect "another compile" yes "$(mpirun --oversubscribe --app <(head -n 3 "$room/1f1b/app.mpi"
    tail -n 1 "$room/older/app.mpi") 2>&1 | grep -q 'rank 3 runs 1f1b of compile .*, but rank 0 runs 1f1b of compile .*; compile again' && echo yes)"
expect "another number of steps" "rank 3 has --steps 4, but rank 0 has 3; give all ranks the same flags" \
    "$(mpirun --oversubscribe --app <(sed '1,3s/$/ --steps 3/;4s/$/ --steps 4/' "$room/1f1b/app.mpi") 2>&1 | first_error)"
head -c 20000 $text >"$room/other"
expect "other data" yes "$(mpirun --oversubscribe --app <(sed "1,3s|\$| --data $text|;4s|\$| --data $room/other|" "$room/gpt/app.mpi") 2>&1 |
    first_error | grep -qE '^rank 3 reads different data than rank 0: 20000 bytes with hash [0-9a-f]{16}, not '"$(wc -c <$text)"' with [0-9a-f]{16}$' && echo yes)"

# shellcheck disable=SC2086
compiled schedules/serial.lua $integers -D precision=bf16 -o "$room/bf16"
expect "a bf16 model on a CPU" 'pianola: rank 0 of serial: error: precision = "bf16" runs on GPUs only; for CPUs, compile the model with precision = "fp32"' \
    "$("$room/bf16/rank" --steps 1 2>&1)"

# nvcc compiles the same source as C++; here a C++ compiler accepts it.
if command -v g++ >/dev/null; then
    g++ -std=c++20 -x c++ -Wall -Wextra -Wno-missing-field-initializers -Werror -fsyntax-only -Ibuild/include "$room/gpt/rank1.cu"
    expect "rank1.cu is C++ as well" 0 $?
fi
finish
