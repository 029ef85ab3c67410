#!/usr/bin/env bash
# The stand-in for CUDA, cuBLASLt and NCCL reports what these would reject, leave undefined, or hang at. Each test
# breaks one rule in its own process. SAN=-fsanitize=address,undefined instruments it.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=${B:-build}/standin-rules
mkdir -p "$room" || exit 2

headers=$(ls tests/gpu/standin/*.h tests/gpu/standin/rules/*.h tests/gpu/standin/test.sh)
compile() { # SOURCE OBJECT: compiles if the object is older than its source or any header
    [ "$2" -nt "$1" ] && [ -z "$(find $headers -newer "$2")" ] && return
    # shellcheck disable=SC2086
    g++ -std=c++17 -O1 -g -ffp-contract=off -Wall -Wextra -Wpedantic -Werror ${SAN-} -Itests/gpu/standin -c "$1" -o "$2" || rm -f "$2"
}
objects=
for source in tests/gpu/standin/*.cpp tests/gpu/standin/rules/*.cpp; do
    object=$room/$(echo "${source#tests/gpu/standin/}" | tr / -).o
    objects="$objects $object"
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    compile "$source" "$object" &
done
wait
# shellcheck disable=SC2086
g++ ${SAN-} -o "$room/rules" $objects -pthread || exit 1
ulimit -c 0
files=$(mktemp -d) # for the files of ranks as processes
TMPDIR=$files timeout 200 "$room/rules"
expect "the stand-in's rules" 0 $?
rm -rf "$files"
finish
