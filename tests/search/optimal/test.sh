#!/usr/bin/env bash
# Checks the best orders through the real command against known figures. Each has a certificate that the checker
# accepts, and a script that is proved, takes the reported time, and trains.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
latency=(--cluster schedules/clusters/latency.lua -D latency=1)

value() { sed -nE "s/.*\"$1\": ([^,}]+).*/\1/p" <<<"$2"; }

# best WHAT MAKESPAN OPTIONS...: expects an accepted certificate, and a script with that makespan that trains
best() {
    local what=$1 want=$2 got
    shift 2
    got=$("$PIANOLA" optimal tests/search/optimal/caps.lua "$@" --json -o "$room/best.lua" 2>&1)
    expect "$what" "$want $want true" "$(value makespan "$got") $(value lower_bound "$got") $(value optimal "$got")"
    expect "$what: the certificate" "true $want" \
        "$(got=$("$PIANOLA" check-bound "$room/best.bound" --json); echo "$(value accepted "$got") $(value limit "$got")")"
    expect "$what: the certificate belongs to the script" "true" \
        "$(value accepted "$("$PIANOLA" check-bound "$room/best.bound" tests/search/optimal/caps.lua "$@" --json)")"
    local cluster=()
    [[ "$*" != *latency* ]] || cluster=("${latency[@]}")
    expect "$what: the script" "$want" \
        "$("$PIANOLA" show "$room/best.lua" "${cluster[@]}" --format json | sed -nE 's/^  "makespan": (.*),/\1/p')"
    expect "$what: trains to the bits of one rank" 1 "$("$PIANOLA" run "$room/best.lua" --model schedules/models/integers.lua \
        --steps 1 --compare 2>&1 | grep -c 'equal bit for bit')"
}

# 4 ranks, 8 microbatches; F = 1 and B = 2, or F = I = W = 1
caps=(0 1 2 3 4) unsplit=(0 96 51 39 33) split=(0 72 41 31 27)
for i in 1 2 3 4; do
    best "unsplit, cap ${caps[i]}" "${unsplit[i]}" -D caps="${caps[i]}"
    best "split, cap ${caps[i]}" "${split[i]}" -D caps="${caps[i]}" -D split=true
done
v=(0 0 101 86 59 56 53 52 51)
for cap in 2 3 4 5 6 7 8; do
    best "in a V, cap $cap" "${v[cap]}" -D caps=$cap -D split=true -D chunks=2 -D v=true
done
best "two chunks" 57 -D caps=99 -D chunks=2
best "two chunks, split" 51 -D caps=99 -D chunks=2 -D split=true
best "a latency of 1, caps 4, 3, 2, 1" 49 -D caps=4,3,2,1 "${latency[@]}"
best "a latency of 1, caps 5, 4, 3, 2" 43 -D caps=5,4,3,2 "${latency[@]}"
best "a latency of 1, caps 7, 5, 3, 1" 39 -D caps=7,5,3,1 "${latency[@]}"
best "a latency of 1, split, cap 4" 39 -D caps=4 -D split=true "${latency[@]}"
best "8 ranks, 16 microbatches, split, cap 6" 61 -D workers=8 -D batches=16 -D caps=6 -D split=true

# Two runs give the same bytes.
for i in 1 2; do
    "$PIANOLA" optimal tests/search/optimal/caps.lua -D caps=2 -o "$room/$i.lua" >/dev/null
    sed -i "s/$i\.bound/N.bound/" "$room/$i.lua"
done
expect "the same script twice" 0 "$(cmp "$room/1.lua" "$room/2.lua" >/dev/null; echo $?)"
expect "the same certificate twice" 0 "$(cmp "$room/1.bound" "$room/2.bound" >/dev/null; echo $?)"

# All schedules: no slower than the script's own order, no faster than the bound. The checker accepts the certificate,
# and the written script is proved and takes the reported time. Otherwise the command says why, about the script or
# about -o.
rm -f "$room"/best.*
for script in schedules/*.lua; do
    got=$("$PIANOLA" optimal "$script" --json -o "$room/best.lua" 2>/dev/null)
    if [[ $got == *"searched for jobs that each run alone on one rank"* ]]; then
        expect "$script: says why it is refused" 1 "$(grep -cE 'teams|update|pairs' <<<"$got")"
        continue
    fi
    if [[ $got == *"leave out -o"* ]]; then
        expect "$script: nothing is written" "" "$(ls "$room" | grep best)"
        got=$("$PIANOLA" optimal "$script" --json 2>&1)
    else
        expect "$script: the written script takes the reported time" \
            "$(value makespan "$got") true 0" "$(figure makespan "$room/best.lua") $(
            value accepted "$("$PIANOLA" check-bound "$room/best.bound" "$script" --json)") $(
            "$PIANOLA" check "$room/best.lua" >/dev/null 2>&1; echo $?)"
    fi
    rm -f "$room"/best.*
    makespan=$(value makespan "$got") own=$(figure makespan "$script") lower=$(value lower_bound "$got")
    expect "$script: $lower <= $makespan <= $own" yes \
        "$(awk -v l="$lower" -v m="$makespan" -v o="$own" 'BEGIN { print 0 < l && l <= m && m <= o ? "yes" : "no" }')"
done

# Costs without a common tick: the bound holds, and no order is called optimal.
got=$("$PIANOLA" optimal schedules/1f1b.lua --model schedules/models/gpt.lua --cluster schedules/clusters/latency.lua \
    -D flops=1e12 -D bandwidth=1e9 --json 2>&1)
expect "costs of a model" "yes false" "$(awk -v l="$(value lower_bound "$got")" -v m="$(value makespan "$got")" \
    'BEGIN { print l <= m && m < 1.01 * l ? "yes" : "no" }') $(value optimal "$got")"

# Errors
says() { expect "$1" 1 "$("$PIANOLA" optimal "${@:3}" 2>&1 | grep -c "$2")"; }
says "no room" "no order at all" tests/search/optimal/caps.lua -D caps=1 -D chunks=2 -D v=true
says "no time" "time" schedules/1f1b.lua --time 0
says "a missing folder" "$room/none" schedules/1f1b.lua -o "$room/none/best.lua"
says "its own file" "schedules/1f1b.lua" schedules/1f1b.lua -o schedules/1f1b.lua
says "stdout" "written as two files" schedules/1f1b.lua -o -
mkdir "$room/out" "$room/out/folder.bound"
mkfifo "$room/out/pipe.lua"
cp tests/search/optimal/caps.lua "$room/out/read.bound"
before=$(ls -lA "$room/out")
says "a pipe" "pipe.lua: .*written as two files" schedules/1f1b.lua -o "$room/out/pipe.lua"
says "no place for the certificate" "folder.bound: .*written as two files" schedules/1f1b.lua -o "$room/out/folder.lua"
says "a certificate over the script" "read.bound: this file is an input" "$room/out/read.bound" -o "$room/out/read.lua"

# An interrupted run leaves no files. The shell that runs this test may ignore SIGINT.
timeout --preserve-status -k 20 -s INT 1 env --default-signal=INT "$PIANOLA" optimal tests/search/optimal/caps.lua -D workers=8 \
    -D batches=24 -D chunks=2 -D v=true -D split=true -D caps=10 --time 60 -o "$room/out/cut.lua" >"$room/said" 2>&1
expect "interrupted" 130 $?
expect "it prints nothing" "" "$(cat "$room/said")"
expect "nothing is left or changed" "$before" "$(ls -lA "$room/out")"
# With noise, the figures equal show's for the written script, and the bound still applies to the makespan.
noise() { "$PIANOLA" show "$@" --jitter 10% --json | sed -nE 's/.*"mean": ([^,]*), "p95": ([^,]*),.*/\1 \2/p'; }
for options in "-D caps=3 -D split=true" "-D caps=5 -D split=true -D chunks=2 -D v=true"; do
    # shellcheck disable=SC2086
    "$PIANOLA" optimal tests/search/optimal/caps.lua $options --jitter 10% --json -o "$room/noisy.lua" >"$room/noisy"
    # shellcheck disable=SC2086
    "$PIANOLA" optimal tests/search/optimal/caps.lua $options -o "$room/calm.lua" >/dev/null
    expect "$options: mean and p95" "$(noise "$room/noisy.lua")" "$(sed -nE 's/.*"mean": ([^,]*), "p95": ([^,]*),.*/\1 \2/p' "$room/noisy")"
    expect "$options: no worse than before" yes "$(sed -nE 's/.*"p95": ([^,]*),.*"p95_before": ([^,}]*).*/\1 \2/p' "$room/noisy" |
        awk '{ print ($1 <= $2 ? "yes" : $0) }')"
    expect "$options: the script is proved" 0 "$("$PIANOLA" check "$room/noisy.lua" >/dev/null 2>&1; echo $?)"
    expect "$options: its certificate" "$("$PIANOLA" check-bound "$room/calm.bound" | cut -d: -f2)" "$("$PIANOLA" check-bound "$room/noisy.bound" | cut -d: -f2)"
done
expect "noise applies to the makespan only" "pianola: error: --jitter: noise counts for the makespan, not for --objective span or period" \
    "$("$PIANOLA" optimal tests/search/optimal/caps.lua --objective span --jitter 10% 2>&1)"
expect "recomputing costs time" "41" "$("$PIANOLA" optimal schedules/1f1b.lua --recompute --json | sed -nE 's/.*"makespan": ([^,]*),.*/\1/p')"

# Sums of decimal fractions are printed without rounding errors, and a bound never exceeds a makespan that reaches it.
cat >"$room/fractions.lua" <<'LUA'
return schedule { workers = 4, stages = 4, batches = 4, w = function(s) return s, s end,
  n = function(s, b, d) return b end, cost = function(s, b, d) return d == "F" and 1.1 or 2.3 + 0.1 * s end }
LUA
expect "fractions" "fractions: 25.3 units is optimal; the script's own order takes 25.3 units|no order takes less than 25.3 units" \
    "$("$PIANOLA" optimal "$room/fractions.lua" | sed 's/: a rank.*//' | paste -sd'|')"
expect "fractions, as JSON" '"makespan": 25.3, "own": 25.3, "lower_bound": 25.3' \
    "$("$PIANOLA" optimal "$room/fractions.lua" --json | grep -o '"makespan": [^,]*, "own": [^,]*, "lower_bound": [^,]*')"
expect "with a model, the times have their unit" "GFLOP is optimal" \
    "$("$PIANOLA" optimal schedules/1f1b.lua --model schedules/models/gpt.lua -D workers=2 -D batches=4 | grep -o '[^ ]* is optimal')"

finish
