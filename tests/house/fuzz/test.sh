#!/usr/bin/env bash
# Runs the fuzz targets under sanitizers on their corpus and on mutants of it, the same ones each time. Nothing may
# crash, leak, hang or exhaust memory. `make fuzz` looks further, guided by coverage: see fuzz.sh.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh

# mutants TARGET N
mutants() {
    local got corpus last=build/asan/fuzz/$1.last
    corpus=(tests/house/fuzz/corpus/"$1"/*)
    got=$("build/asan/fuzz/fuzz_$1" "$2" "$last" "${corpus[@]}" 2>build/asan/fuzz/$1.log)
    expect "$1: inputs run" "0 $((${#corpus[@]} + $2))" "$? $got"
    [ "$got" ] || { tail -n 30 "build/asan/fuzz/$1.log" && echo "again: build/asan/fuzz/fuzz_$1 0 $last.new $last"; }
}
mutants script 5000
mutants text 10000
mutants tsv 10000
mutants torch 10000
mutants bound 10000
mutants tokens 5000
mutants gguf 10000
mutants trace 10000
mutants aoti 10000
finish
