#!/usr/bin/env bash
# Checks the CUDA kernels on the CPU: the same source, compiled as C++ against tests/gpu/standin/, against the host
# layers. First checks that the stand-in catches mistakes. SAN=-fsanitize=address,undefined instruments everything.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
SAN=${SAN-}
room=${B:-build}/kernels
mkdir -p "$room" || exit 2

# object SOURCE COMPILER...: compiles the source if its object is older than the source or any header
headers=$(ls runtime/*.h runtime/*/*.h runtime/*/*.cuh tests/gpu/standin/*.h tests/gpu/kernels/*.h tests/gpu/kernels/test.sh)
object() {
    local o h
    o=$room/$(basename "$1").o
    [ -e "$o" ] && [ "$o" -nt "$1" ] && for h in $headers; do [ "$o" -nt "$h" ] || break; done && [ "$o" -nt "$h" ] && return
    # shellcheck disable=SC2086
    "${@:2}" -O1 -g -ffp-contract=off -Wall -Wextra -Wpedantic -Werror $SAN -Iruntime -c "$1" -o "$o" || rm -f "$o"
}
device() { object "$1" g++ -x c++ -std=c++17 -DKERNELS_ON_HOST -Wno-unknown-pragmas -Itests/gpu/standin; }
# shellcheck disable=SC2046
host() { object "$1" gcc -std=c11 -D_GNU_SOURCE $(pkg-config --cflags $BLAS); }

jobs_of() { while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done; }
sources="$(echo runtime/layers/{bias,clip,dropout,elementwise,embedding,norm,headnorm,loss,moe,optim}.cu) tests/gpu/standin/grid.cpp"
reference="layers_host dropout_host norm_host loss_host linear_host product_host attention_host team_attention_host moe_host muon_host optim_host clip_host unit_host parameters kinds"
for source in $sources tests/gpu/kernels/{kernels,moe,mistakes}.cpp; do
    jobs_of
    device "$source" &
done
for name in $reference; do
    jobs_of
    host "runtime/layers/$name.c" &
done
wait
objects() { for f in "$@"; do echo "$room/$(basename "$f").o"; done; }
for test in kernels moe; do
    # shellcheck disable=SC2046,SC2086
    g++ $SAN -o "$room/$test" $(objects $sources tests/gpu/kernels/$test.cpp) \
        $(for name in $reference; do echo "$room/$name.c.o"; done) $(pkg-config --libs $BLAS) -lm || exit 1
done
# shellcheck disable=SC2046,SC2086
g++ $SAN -o "$room/mistakes" $(objects tests/gpu/standin/grid.cpp tests/gpu/kernels/mistakes.cpp) || exit 1

timeout 60 "$room/mistakes"
expect "the stand-in detects mistakes" 0 $?
timeout 120 "$room/kernels"
expect "kernels match the host" 0 $?
timeout 120 "$room/moe"
expect "a mixture of experts matches the host" 0 $?

# Fused layers need the sweeps, cuBLASLt and streams: the whole stand-in, as built by `make standin`.
for test in fused muon ahead; do
    g++ -x c++ -std=c++17 -O1 -g -Wall -Wextra -Wpedantic -Werror -Itests/gpu/standin -Iruntime "tests/gpu/kernels/$test.cpp" -x none \
        -o "$room/$test" build/standin/libpianola-cuda.so build/libpianola.a -Wl,-rpath,"$PWD/build/standin" \
        $(pkg-config --libs $BLAS lua5.4) -lm -pthread || exit 1
done
OPENBLAS_NUM_THREADS=1 timeout 200 "$room/fused"
expect "layers that run as one kernel" 0 $?
OPENBLAS_NUM_THREADS=1 timeout 200 "$room/muon"
expect "Muon matches the host" 0 $?
timeout 60 "$room/ahead"
expect "updates that go ahead match the host" 0 $?
finish
