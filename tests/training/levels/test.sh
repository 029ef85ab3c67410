#!/usr/bin/env bash
# Builds the layers that are compiled for several levels of x86-64 at each level alone, and compares with the program
# that chooses at run time: the same weights after training, bit for bit. Also matrix products with kernels for several
# processors.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
[ "$(uname -m)" = x86_64 ] || finish
marked=$(grep -lE '\b(WIDE|LANES_8)\b' runtime/layers/*.c)

# built LEVEL: builds the program with all of its marked files compiled for that level
built() {
    mkdir "$room/$1"
    local file flags=(-std=c11 -D_GNU_SOURCE -fno-math-errno -O3 -fno-trapping-math -Ibuild -Iruntime)
    for file in $marked; do
        # shellcheck disable=SC2046
        gcc "${flags[@]}" "-DWIDE=__attribute__((target(\"arch=$1\")))" $(pkg-config --cflags $BLAS) \
            -c -o "$room/$1/$(basename "$file" .c).o" "$file" || return 1
    done
    # shellcheck disable=SC2046
    gcc -o "$room/pianola-$1" build/obj/compiler/cli/main.o "$room/$1"/*.o build/libpianola.a \
        $(pkg-config --libs lua5.4 $BLAS libpcre2-8 libutf8proc) -lm -pthread
}
trained() { "$@" --steps 3 --json 2>/dev/null | sed -n 's/.*"weights": "\(.*\)".*/\1/p'; }

flags=$(sed -n '/^flags/{p;q}' /proc/cpuinfo)
levels=(x86-64)
[[ $flags != *" avx2 "* ]] || levels+=(x86-64-v3)
[[ $flags != *" avx512vl "* ]] || levels+=(x86-64-v4)
targets=$([ ${#levels[@]} = 1 ] || echo hsw; [ ${#levels[@]} -lt 3 ] || echo skx clx)
for level in "${levels[@]}"; do
    built "$level"
    expect "$level is built" 0 $?
done
while read -r -a what; do
    wanted=$(trained "$PIANOLA" run "${what[@]}")
    expect "${what[*]}: trains" 16 ${#wanted}
    for level in "${levels[@]}"; do
        expect "${what[*]}: $level" "$wanted" "$(trained "$room/pianola-$level" run "${what[@]}")"
    done
    for target in $targets; do
        expect "${what[*]}: products for $target" "$wanted" "$(LIBXSMM_TARGET=$target trained "$PIANOLA" run "${what[@]}")"
    done
done <<'EOF'
schedules/serial.lua --model schedules/models/gpt.lua -D batches=4
schedules/1f1b.lua --model schedules/models/gpt.lua -D width=88 -D heads=4 -D context=52
schedules/zbv.lua --model schedules/models/llama.lua -D layers=2
schedules/zbv.lua --model schedules/models/llama.lua -D layers=2 -D qk_norm=true -D dim=22
schedules/experts.lua --model schedules/models/moe.lua
schedules/1f1b.lua --model schedules/models/integers.lua -D width=37
EOF
# Variables that restrict matrix products to older processors, or select OpenBLAS, are respected and reported. Variables
# of the library that is not in use are not reported. The machine's own OPENBLAS_CORETYPE is unset.
said() { # VARIABLE=VALUE...: prints the reports, and which library makes the products
    env -u OPENBLAS_CORETYPE "$@" "$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua --steps 1 2>&1 |
        sed -nE 's/^pianola: (.*(LIBXSMM_TARGET|OPENBLAS_CORETYPE)=.*)/\1/p;s/.*matrix products by ([^ ]* for [^ ,]*),.*/\1/p'
}
if [ ${#levels[@]} -gt 1 ]; then
    own=hsw best=Haswell # libxsmm's kernels for this processor, and the best of OpenBLAS's
    [ ${#levels[@]} -lt 3 ] || own=skx best=SkylakeX
    [[ $flags != *" avx512_bf16 "* ]] || best=Cooperlake
    core=$(said LIBXSMM_TARGET=snb | sed -n 's/^OpenBLAS for //p') # the kernels that OpenBLAS chooses, which may differ on AMD processors
    change="with LIBXSMM_TARGET=snb libxsmm cannot compute matrix products: OpenBLAS does, and their bits depend on its kernels for"
    expect "libxsmm has no kernels" "$change $core"$'\n'"OpenBLAS for $core" "$(said LIBXSMM_TARGET=snb)"
    expect "libxsmm has no kernels, and BLAS no wide ones" "$change Core2
OPENBLAS_CORETYPE=Core2 limits matrix products: their kernels are for Core2, not for $best
OpenBLAS for Core2" "$(said LIBXSMM_TARGET=snb OPENBLAS_CORETYPE=Core2)"
    expect "BLAS's kernels are as wide as the processor" "$change $best"$'\n'"OpenBLAS for $best" \
        "$(said LIBXSMM_TARGET=snb OPENBLAS_CORETYPE=$best)"
    expect "libxsmm's kernels are as wide as the processor" "libxsmm for $own" "$(said LIBXSMM_TARGET=$own)"
    expect "a limit on BLAS, which does not make the products" \
        "libxsmm for $own" "$(said LIBXSMM_TARGET=$own OPENBLAS_CORETYPE=Core2)"
    [ $own = hsw ] || expect "libxsmm's kernels are half as wide as the processor" "LIBXSMM_TARGET=hsw limits matrix products: their kernels are for hsw, not for $best
libxsmm for hsw" "$(said LIBXSMM_TARGET=hsw OPENBLAS_CORETYPE=Core2)"
fi
finish
