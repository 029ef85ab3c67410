#!/usr/bin/env bash
# The layers that are compiled for several levels of x86-64, each level alone, against the program that chooses: the same
# weights after training, bit for bit. And matrix products by kernels for several processors.
cd "$(dirname "$0")/../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
[ "$(uname -m)" = x86_64 ] || finish
marked=$(grep -lE '\b(WIDE|LANES_8)\b' runtime/layers/*.c)

# built LEVEL: the program with all marked files compiled for that level alone
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
# Products' own levels: a variable that asks for less than the processor has is respected, and said.
held() { env "$@" "$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua --steps 1 2>&1 | grep -c 'holds matrix products back'; }
[ ${#levels[@]} = 1 ] || expect "no kernels" 1 "$(held LIBXSMM_TARGET=snb)"
[ ${#levels[@]} = 1 ] || expect "nor wide ones in BLAS" 2 "$(held LIBXSMM_TARGET=snb OPENBLAS_CORETYPE=Core2)"
[ ${#levels[@]} = 1 ] || expect "kernels as wide as the processor" 0 "$(held LIBXSMM_TARGET="$([ ${#levels[@]} = 3 ] && echo skx || echo hsw)")"
[ ${#levels[@]} -lt 3 ] || expect "half as wide" 1 "$(held LIBXSMM_TARGET=hsw)"
finish
