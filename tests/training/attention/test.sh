#!/usr/bin/env bash
# The fused attention on the CPU: the same source, compiled as C++ against tests/gpu/standin/, compared with the host
# layer. SAN=-fsanitize=address,undefined instruments all of it.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
SAN=${SAN-}
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT

flags="-DWITHOUT_CUDNN -O1 -g -Wall -Wextra -Wpedantic -Werror -Wno-unknown-pragmas $SAN -Itests/gpu/standin -Iruntime"
for source in runtime/layers/{attention,attention_cudnn,team_attention}.cu tests/gpu/kernels/{attention,team_attention}.cpp \
    tests/gpu/standin/grid.cpp; do
    # shellcheck disable=SC2086
    g++ -x c++ -std=c++17 -DKERNELS_ON_HOST $flags -c "$source" -o "$room/$(basename "$source").o" &
done
for name in {attention,dropout,layers,linear,loss,moe,norm,product,team_attention,unit}_host parameters kinds; do
    # shellcheck disable=SC2046,SC2086
    gcc -std=c11 -D_GNU_SOURCE $flags $(pkg-config --cflags $BLAS) -c "runtime/layers/$name.c" -o "$room/$name.c.o" &
done
wait
# shellcheck disable=SC2046,SC2086
for name in attention team_attention; do
    g++ $SAN -o "$room/$name" "$room/$name.cpp.o" "$room"/*.cu.o "$room/grid.cpp.o" "$room"/*.c.o \
        $(pkg-config --libs $BLAS) -lm || exit 1
    OPENBLAS_NUM_THREADS=1 timeout 300 "$room/$name"
    expect "$name as on the host" 0 $?
done
finish
