#!/usr/bin/env bash
# Stands for nvcc on machines without GPUs: compiles a unit's sources as C++ against tests/gpu/standin, whose library
# they then use. A launch, kernel<<<grid, block, shared, stream>>>(…), becomes a call of grid_launch.
[ "$1" = --version ] && exec g++ --version
here=$(cd "$(dirname "$0")/../../.." && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
flags=(-std=c++17 -O2 -fPIC -w "-I$here/tests/gpu/standin" -x c++) libraries=(-x none)
while [ $# -gt 0 ]; do
    case $1 in
    -gencode | -Xcompiler | -cudart) shift ;;
    -std=*) ;;
    *.cu)
        perl -0pe 's/(\w+)<<<(.*?)>>>\(/grid_launch("$1", $1, $2, /gs' "$1" >"$room/$(basename "$1").cpp"
        flags+=("$room/$(basename "$1").cpp")
        ;;
    *.c) flags+=(-x c "$1" -x c++) ;;
    *.so | *.a | -l*) libraries+=("$1") ;;
    -shared) flags+=(-shared) libraries+=("$here/build/standin/libpianola-cuda.so" "-Wl,-rpath,$here/build/standin") ;;
    *) flags+=("$1") ;;
    esac
    shift
done
g++ "${flags[@]}" "${libraries[@]}"
