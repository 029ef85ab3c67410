#!/usr/bin/env bash
# The best orders, through the real command: figures that were computed elsewhere, each proved, with a certificate that the
# checker accepts, and a script that compiles, takes as long as said, and trains.
cd "$(dirname "$0")/../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
latency=(--cluster schedules/clusters/latency.lua -D latency=1)

value() { sed -nE "s/.*\"$1\": ([^,}]+).*/\1/p" <<<"$2"; }

# best WHAT MAKESPAN OPTIONS...: proved, with an accepted certificate and a script of that makespan
best() {
    local what=$1 want=$2 got
    shift 2
    got=$("$PIANOLA" optimal tests/optimal/caps.lua "$@" --json -o "$room/best.lua" 2>&1)
    expect "$what" "$want $want true" "$(value makespan "$got") $(value lower_bound "$got") $(value optimal "$got")"
    expect "$what: the certificate" "true $want" \
        "$(got=$("$PIANOLA" check-bound "$room/best.bound" --json); echo "$(value accepted "$got") $(value limit "$got")")"
    local cluster=()
    [[ "$*" != *latency* ]] || cluster=("${latency[@]}")
    expect "$what: the script" "$want" \
        "$("$PIANOLA" show "$room/best.lua" "${cluster[@]}" --format json | sed -nE 's/^  "makespan": (.*),/\1/p')"
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

# It trains to the bits of one rank.
for options in "-D caps=3" "-D caps=5 -D split=true -D chunks=2 -D v=true"; do
    # shellcheck disable=SC2086
    "$PIANOLA" optimal tests/optimal/caps.lua $options -o "$room/best.lua" >/dev/null
    expect "$options: weights" 1 "$("$PIANOLA" run "$room/best.lua" --model schedules/models/integers.lua --steps 2 --compare \
        2>&1 | grep -c 'equal bit for bit')"
done

# Twice the same bytes.
for i in 1 2; do
    "$PIANOLA" optimal tests/optimal/caps.lua -D caps=2 -o "$room/$i.lua" >/dev/null
    sed -i "s/$i\.bound/N.bound/" "$room/$i.lua"
done
expect "the same script twice" 0 "$(cmp "$room/1.lua" "$room/2.lua" >/dev/null; echo $?)"
expect "the same certificate twice" 0 "$(cmp "$room/1.bound" "$room/2.bound" >/dev/null; echo $?)"

# The zoo: no longer than the script's own order, no shorter than the bound; or it says why not.
for script in schedules/*.lua; do
    [[ $script != *pianola.d.lua ]] || continue
    got=$("$PIANOLA" optimal "$script" --time 2 --json 2>&1)
    makespan=$(value makespan "$got") own=$(value own "$got") lower=$(value lower_bound "$got")
    if [[ $got == *"error:"* ]]; then
        expect "$script: says why not" 1 "$(grep -cE 'teams|update|pairs|takes no time|its backward on rank' <<<"$got")"
    else
        expect "$script: $lower <= $makespan <= $own" yes \
            "$(awk -v l="$lower" -v m="$makespan" -v o="$own" 'BEGIN { print l <= m && m <= o ? "yes" : "no" }')"
    fi
done

# Costs without a common tick: the bound holds, and nothing is called optimal.
got=$("$PIANOLA" optimal schedules/1f1b.lua --model schedules/models/gpt.lua --cluster schedules/clusters/latency.lua \
    -D flops=1e12 -D bandwidth=1e9 --json 2>&1)
expect "costs of a model" "yes false" "$(awk -v l="$(value lower_bound "$got")" -v m="$(value makespan "$got")" \
    'BEGIN { print l <= m && m < 1.01 * l ? "yes" : "no" }') $(value optimal "$got")"

# Errors
says() { expect "$1" 1 "$("$PIANOLA" optimal "${@:3}" 2>&1 | grep -c "$2")"; }
says "no room" "no order at all" tests/optimal/caps.lua -D caps=1 -D chunks=2 -D v=true
says "no time" "time" schedules/1f1b.lua --time 0
says "a missing folder" "$room/none" schedules/1f1b.lua -o "$room/none/best.lua"
says "its own file" "schedules/1f1b.lua" schedules/1f1b.lua -o schedules/1f1b.lua
finish
