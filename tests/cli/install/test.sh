#!/usr/bin/env bash
# Checks make install, a rank program built from installed files alone, and how ranks are started. Everything happens
# outside the source tree, in folders with a space in their names.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
unset PKG_CONFIG_PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

make -s B="$(dirname "$PIANOLA")" install DESTDIR="$room/sta ge" PREFIX=/opt/pianola
expect "make install" 0 $?
at="$room/sta ge/opt/pianola"
for file in bin/pianola lib/libpianola-host.a lib/libpianola-nompi.a lib/pkgconfig/pianola-host.pc include/pianola/ops.h include/pianola/rt_program.h \
    share/pianola/schedules/1f1b.lua share/pianola/schedules/models/gpt.lua share/pianola/schedules/pianola.d.lua \
    share/man/man1/pianola.1 share/bash-completion/completions/pianola share/zsh/site-functions/_pianola \
    share/fish/vendor_completions.d/pianola.fish; do
    expect "installed: $file" yes "$([ -s "$at/$file" ] && echo yes)"
done
if [ -f "$(dirname "$PIANOLA")/libpianola-cuda.a" ]; then
    for file in lib/libpianola-cuda.a lib/libpianola-cuda.so lib/pkgconfig/pianola-cuda.pc; do
        expect "the installed file is the built one: $file" yes "$([ -f "$at/$file" ] && echo yes)"
    done
fi
expect "nothing is installed outside these folders" \
    "opt/pianola/bin opt/pianola/include opt/pianola/lib opt/pianola/share" \
    "$(cd "$room/sta ge" && echo */*/*)"

got=$(cd "$at/share" && . bash-completion/completions/pianola && COMP_WORDS=(pianola ver) COMP_CWORD=1 && _pianola && echo "${COMPREPLY[@]}")
expect "the installed completion completes" verify "$got"
if command -v zsh >/dev/null && command -v script >/dev/null; then
    # shellcheck disable=SC2016
    got=$(printf '%b\n' "fpath=('$at/share/zsh/site-functions' \$fpath)" 'autoload -Uz compinit; compinit -u -D' \
        'pianola() echo "<$*>"' 'pianola ver\tx --js\t' exit | TERM=dumb timeout 60 script -qec "zsh -f -i" /dev/null)
    expect "zsh finds the installed completion" "<verify x --json>" "$(tr -d '\r' <<<"$got" | grep -a '^<')"
fi
if command -v fish >/dev/null; then
    expect "fish finds the installed completion" verify \
        "$(HOME=$room XDG_DATA_DIRS="$at/share" PATH=$at/bin:$PATH fish -c 'complete -C "pianola ver"' | cut -f 1)"
fi
if command -v man >/dev/null; then
    expect "man finds the installed page" "$(cd "$at/share/man" && pwd)/man1/pianola.1" "$(man -M "$at/share/man" -w pianola)"
fi

# pkg-config finds the staged files without being told where they are, and also with the stage as system root.
ask() { env "${@:2}" PKG_CONFIG_PATH="$at/lib/pkgconfig" pkg-config "--variable=$1" pianola-host | sed 's/\\//g'; }
mkdir "$room/flat" && cp -R "$room/sta ge/opt" "$room/flat/"
expect "libdir in the stage" "$(cd "$at/lib" && pwd)" "$(cd "$(ask libdir)" && pwd)"
at="$room/flat/opt/pianola"
expect "libdir after a move" "$at/lib" "$(cd "$(ask libdir)" && pwd)"
expect "flags in a system root" 2 \
    "$(PKG_CONFIG_SYSROOT_DIR="$room/flat" PKG_CONFIG_PATH="$at/lib/pkgconfig" pkg-config --cflags --libs pianola-host |
        grep -o -e "-[IL]$at/lib/pkgconfig/../../[a-z]*" | wc -l)"
rm -r "$room/flat"
at="$room/sta ge/opt/pianola"

# ---- built with the installed library alone ----

mkdir "$room/away" && cd "$room/away" || exit 2
integers=$at/share/pianola/schedules/models/integers.lua
compile() { "$at/bin/pianola" compile "$at/share/pianola/schedules/$1.lua" --model "$integers" -o "$2"; }
compile serial "a b"
says() { sed 's/^Makefile:[0-9]*: //' <<<"$1"; }
got=$(PKG_CONFIG_LIBDIR="$room/none" make -s -C "a b" 2>&1)
expect "no runtime" "2 *** pianola-host not found: make install, or make runtime in the source tree.  Stop." "$? $(says "$got")"
PATH=$PATH:$at/bin
got=$(make -s -C "a b" MPICC=no-such-mpicc 2>&1)
expect "no MPI" \
    "2 *** no-such-mpicc not found: install MPI (on Debian: libopenmpi-dev), name its compiler with MPICC, or leave MPICC out.  Stop." \
    "$? $(says "$got")"
expect "nothing was compiled" "rank rank.gpu rank0.cu" "$(cd "a b" && echo rank*)"
make -s -C "a b"
expect "make, with pianola on the PATH" 0 $?
make -s -C "a b" -q
expect "the files that make builds" 0 $?
touch "$at/lib/libpianola-host.a"
make -s -C "a b" -q
expect "a changed runtime rebuilds the program" 1 $?
if [ -f "$at/lib/libpianola-cuda.a" ]; then
    make -s -C "a b" gpu
    expect "make gpu" "0 yes" "$? $([ -x "a b/rank0.gpu" ] && echo yes)"
else
    got=$(make -s -C "a b" gpu 2>&1)
    expect "no runtime for GPUs" "2 yes" "$? $(grep -q '\*\*\* pianola-cuda not found: it needs nvcc and NCCL; ' <<<"$got" && echo yes)"
fi
# Without mpicc, a C compiler builds ranks that meet over TCP.
mkdir "$room/tools" && ln -s /usr/bin/* "$room/tools/" && rm -f "$room/tools"/*mpi*
compile gpipe "e f"
got=$(PATH=$room/tools:$at/bin make -s -C "e f" 2>&1)
expect "make without mpicc" "0 mpicc not found: the ranks will meet over TCP alone" "$? $got"
expect "no MPI is linked" "" "$(ldd "e f"/rank[0-9] | grep -i mpi)"
for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000)) timeout 60 "e f/rank" --steps 3 >"$room/tcp$rank" 2>&1 &
done
wait
expect "ranks without MPI train" "$("$at/bin/pianola" run "$at/share/pianola/schedules/gpipe.lua" --model "$integers" --steps 3 2>/dev/null | sed -n 's/^weights *\([0-9a-f]*\).*/\1/p')" \
    "$(sed -n 's/^weights *\([0-9a-f]*\).*/\1/p' "$room/tcp0")"
got=$(OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 "e f/rank" --steps 3 2>&1)
expect "under mpirun they report that they lack MPI" \
    1 "$(grep -c "an MPI launcher started this program, but it was built without MPI" <<<"$got")"
got=$(env -u RANK -u OMPI_COMM_WORLD_RANK -u PMIX_RANK -u PMI_RANK -u SLURM_PROCID "e f/rank" --help)
expect "--help needs no rank" "0 Rank 0 of 4 of gpipe." "$? $(head -n 1 <<<"$got" | cut -d' ' -f1-6)"

make -s -C "a b" clean && expect "make clean" "rank rank.gpu rank0.cu" "$(cd "a b" && echo rank*)"
PATH=/usr/bin:/bin PKG_CONFIG_PATH="$at/lib/pkgconfig" make -s -C "a b"
expect "make, with PKG_CONFIG_PATH" 0 $?

weights() { sed -n 's/^weights *\([0-9a-f]*\).*/\1/p'; }
wanted=$("$at/bin/pianola" run "$at/share/pianola/schedules/serial.lua" --model "$integers" --steps 3 2>/dev/null | weights)
for program in "a b/rank0" "a b/rank"; do
    got=$(timeout 60 "$program" --steps 3 2>"$room/err")
    expect "$program --steps 3, one rank without a launcher ($(head -n 1 "$room/err"))" "0 $wanted" "$? $(weights <<<"$got")"
done

# ---- which rank is started: the start script, with programs that print their rank ----

compile 1f1b "c d"
for rank in 0 1 2 3; do
    printf '#!/bin/sh\necho "rank %d of $#: $*"\n' $rank >"c d/rank$rank"
    chmod +x "c d/rank$rank"
done
starts() { # WANTED VARIABLE=VALUE... -- ARGS...
    local set=()
    while [ "$2" != -- ]; do
        set+=("$2")
        set -- "$1" "${@:3}"
    done
    got=$(env -u RANK -u OMPI_COMM_WORLD_RANK -u PMIX_RANK -u PMI_RANK -u SLURM_PROCID "${set[@]}" "c d/rank" "${@:3}" 2>&1)
    expect "${set[*]} rank ${*:3}" "$1" "$got"
}
all=(OMPI_COMM_WORLD_RANK=2 PMIX_RANK=3 PMI_RANK=0 SLURM_PROCID=1)
expect "rank may be run" 755 "$(stat -c %a "c d/rank")"
starts "rank 3 of 2: --rank 3" RANK=1 "${all[@]}" -- --rank 3
starts "rank 3 of 3: --steps 9 --rank=3" RANK=1 "${all[@]}" -- --steps 9 --rank=3
starts "rank 3 of 4: --rank 2 --rank 3" RANK=1 -- --rank 2 --rank 3
starts "rank 1 of 2: --data my  book" RANK=1 "${all[@]}" -- --data "my  book"
starts "rank 2 of 0: " "${all[@]}" --
starts "rank 3 of 0: " "${all[@]:1}" --
starts "rank 0 of 0: " RANK= "${all[@]:2}" --
starts "rank 1 of 0: " SLURM_PROCID=1 --
starts "rank 0 of 1: --help" --  --help
starts "rank 2 of 1: -h" RANK=2 -- -h
there="not there; the ranks are 0 to 3, and make -C 'c d' builds them"
starts "pianola: error: c d/rank4: $there" RANK=4 --
starts "pianola: error: rank -1: expected a whole number" -- --rank -1
starts "pianola: error: rank ../rank1: expected a whole number" RANK=../rank1 --
starts "pianola: error: nothing says which rank this is: start it with mpirun or srun, give --rank K, or set RANK" -- --steps 3
rm "c d/rank2"
starts "pianola: error: c d/rank2: $there" RANK=2 --
env -u OMPI_COMM_WORLD_RANK "c d/rank" >/dev/null 2>&1
expect "no variable gives the rank: exit code" 2 $?
expect "from its own folder" "rank 1 of 0: " "$(cd "c d" && RANK=1 ./rank)"
expect "through sh" "rank 1 of 0: " "$(cd "c d" && RANK=1 sh rank)"
if command -v shellcheck >/dev/null; then
    expect "shellcheck" "" "$(shellcheck "c d/rank")"
fi

# The real programs: mpirun alone assigns the ranks, and no file needs editing.
if command -v mpirun >/dev/null; then
    rm "c d"/rank[0-9] && make -s -j2 -C "c d"
    got=$(timeout 60 mpirun --oversubscribe -n 4 "c d/rank" --steps 3 2>&1)
    expect "mpirun -n 4 rank --steps 3 ($(head -n 1 <<<"$got"))" "0 $wanted" "$? $(weights <<<"$got")"
fi
finish
