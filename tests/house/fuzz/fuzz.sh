#!/usr/bin/env bash
# Fuzzes each target of tests/house/fuzz for some seconds, starting from its corpus. Nothing may crash, leak, hang or
# exhaust memory. Findings are in build/fuzz/TARGET-crash-… and run again with: build/fuzz/fuzz_TARGET FILE
#
#   FUZZ_SECONDS=3600 tests/house/fuzz/fuzz.sh [TARGET]...    continues from the corpus that earlier runs kept
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
[ $# -gt 0 ] || set -- script text tsv torch bound tokens gguf trace aoti

if ! echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' |
    clang -fsanitize=fuzzer,address -x c -o /dev/null - 2>/dev/null; then
    echo "SKIPPED: there is no clang with libFuzzer here; make deps installs it on Debian"
    exit 0
fi
make -s fuzzers || exit 1

fuzz() {
    local code log=build/fuzz/$1.log
    mkdir -p "build/fuzz/corpus/$1"
    "build/fuzz/fuzz_$1" -max_total_time="${FUZZ_SECONDS:-8}" -timeout=20 -rss_limit_mb=2048 -max_len=8192 -close_fd_mask=3 \
        -print_final_stats=1 -artifact_prefix="build/fuzz/$1-" "build/fuzz/corpus/$1" "tests/house/fuzz/corpus/$1" >"$log" 2>&1
    code=$?
    [ $code = 0 ] || grep -v '^#' "$log" | tail -n 40
    expect "fuzzing $1: exit code" 0 $code
    # The corpus alone covers much of the reading code. If every input were refused at once, it would cover almost none.
    local covered
    covered=$(sed -n 's/^#[0-9]*.* cov: \([0-9]*\) .*/\1/p' "$log" | sort -n | tail -n 1)
    expect "fuzzing $1: covers what it should ($covered)" yes "$([ "${covered:-0}" -ge "$2" ] && echo yes || echo no)"
    echo "$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | paste -sd+) runs, $covered edges covered"
}
for target; do
    case $target in
    script) fuzz script 1500 ;;
    text) fuzz text 700 ;;
    tsv) fuzz tsv 180 ;;
    torch) fuzz torch 180 ;;
    bound) fuzz bound 300 ;;
    tokens) fuzz tokens 350 ;;
    gguf) fuzz gguf 100 ;;
    trace) fuzz trace 600 ;;
    aoti) fuzz aoti 500 ;;
    *) echo "no such target: $target" && exit 2 ;;
    esac
done
finish
