#!/usr/bin/env bash
# Spare memory: on slow links and on unequal ranks, every schedule ends no later than with --memory least. Lists the
# schedules that end earlier, and the effect of a memory limit.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
slow="--cluster schedules/clusters/latency.lua -D bandwidth"
limited=$(mktemp --suffix=.lua)
trap 'rm -f "$limited"' EXIT

# beside ARGS...: prints "later", "earlier" or "same" for the makespan against --memory least, or the error
beside() {
    paste <(figure makespan "$@") <(figure makespan "$@" --memory least) | awk '
        /error/ { print; exit }
        { e = 1e-9 * $2; print ($1 > $2 + e ? "later" : $1 < $2 - e ? "earlier" : "same") }'
}
earlier=
for schedule in schedules/*.lua; do
    name=$(basename "$schedule" .lua)
    for cluster in "--cluster schedules/clusters/unequal.lua" "$slow=1" "$slow=0.5 -D latency=0.5" "$slow=0.25"; do
        # shellcheck disable=SC2086
        what=$(beside "$schedule" $cluster)
        [ "$what" = earlier ] && what=same && [ "$cluster" = "$slow=0.25" ] && earlier+="$name "
        expect "$name $cluster" same "$what"
    done
done
expect "schedules that end earlier on slow links" "1f1b_offload 2bp asp breadth_first breadth_first_fsdp cuckoo dualpipev experts fsdp_whole fslpp graph \
helixpipe interleaved latency_1f1b lpp overflow pipedream pipedream_2bw pipedream_naive pipedream_vertical seq1f1b slimpipe stp tawpipe tp_zbv v_cap vocab_parallel weipipe zb_h2 zbv " "$earlier"

# With free links no rank waits, so no memory is spent to avoid waits.
for name in 1f1b gpipe zb_h1 zbv interleaved lpp; do
    expect "$name, free links" "$(ranks peak_bytes schedules/$name.lua --memory least)" \
        "$(ranks peak_bytes schedules/$name.lua)"
done

# With a limit, rank 2 uses less memory, at first without any delay.
overflow() { "$1" "${@:2}" schedules/overflow.lua $slow=0.25; }
expect "spare" "16,16,24,11,6,7" "$(overflow ranks peak_bytes)"
expect "spare: the least" "13,16,16,11,6,7" "$(overflow ranks least_bytes)"
expect "least" "13,16,16,11,6,7" "$(overflow ranks peak_bytes --memory least)"
expect "the report names both" "memory       24 B a rank at most; 16 B would do, with waits (--memory least)" \
    "$(overflow "$PIANOLA" show | grep would)"
expect "least: there is only one" "" "$(overflow "$PIANOLA" show --memory least | grep would)"
limit() {
    echo "return cluster { memory = $1, link = function() return 0, 0.25 end }" >"$limited"
    "${@:2}" schedules/overflow.lua --cluster "$limited"
}
expect "24 bytes suffice" 77 "$(limit 24 figure makespan)"
expect "18 bytes suffice too" "77 16,16,18,11,6,7" "$(limit 18 figure makespan) $(limit 18 ranks peak_bytes)"
expect "17 bytes suffice with a delay" "79 16,16,17,11,6,7" "$(limit 17 figure makespan) $(limit 17 ranks peak_bytes)"
expect "16 bytes: the least plan" "85 13,16,16,11,6,7" "$(limit 16 figure makespan) $(limit 16 ranks peak_bytes)"
expect "15 bytes: too little" "$(limit 15 "$PIANOLA" check --memory least 2>&1)" "$(limit 15 "$PIANOLA" check 2>&1)"
expect "15 bytes: the error" 1 "$(limit 15 "$PIANOLA" check 2>&1 | grep -c 'rank 1 needs 16 bytes, 1 more than the cluster.s memory of 15')"
expect "an unknown word" "pianola: error: --memory most: expected spare or least" \
    "$("$PIANOLA" show schedules/1f1b.lua --memory most 2>&1)"
finish
