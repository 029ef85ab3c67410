# Part of test.sh: checks whether a certificate belongs to a script. In tests/search/optimal, all certificates are
# accepted with their scripts. Here, one of each kind is refused with other scripts, and with each number of its
# instance made worse.
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
caps=../../search/optimal/caps.lua latency=(--cluster ../../../schedules/clusters/latency.lua)
printf 'return cluster { speed = function(r) return r == 1 and 2 or 1 end }\n' >"$room/fast.lua"
printf 'return cluster { speed = function(r) return 0.1 end }\n' >"$room/slow.lua"

# of NAME SED WANTED ARGS...: compares the exit code and last output line for NAME.bound after the change, and a script.
of() {
    local got
    got=$(sed -E "$2" "$room/$1.bound" | timeout 60 "$PIANOLA" check-bound - "${@:4}" 2>&1)
    expect "$1, $2, with ${*:4}" "$3" "$? $(tail -n 1 <<<"$got")"
}
write() { # NAME OPTIONS...
    "$PIANOLA" optimal $caps "${@:2}" -o "$room/$1.lua" >/dev/null || echo "no $1"
}
write straight -D caps=2
write pool -D caps=3 -D chunks=2 -D v=true -D split=true
write links -D caps=4,3,2,1 "${latency[@]}" -D latency=1

straight="0 caps: no schedule of $caps -D caps=2 ends before 51 (cover of 61 states)"
of straight '' "$straight" $caps -D caps=2
of straight 's/^schedule.*/schedule another/' "$straight" $caps -D caps=2
of links '' "0 caps: no schedule of $caps -D caps=4,3,2,1 -D latency=1 --cluster ${latency[1]} ends before 49 (cover of 47 states)" \
    $caps -D caps=4,3,2,1 -D latency=1 "${latency[@]}"
of pool '' "0 caps: no schedule of $caps -D caps=3 -D chunks=2 -D v=true -D split=true ends before 86 (cover of 3738 states)" \
    $caps -D caps=3 -D chunks=2 -D v=true -D split=true
# The bound covers all orders of these jobs, including the best one, written as its own script.
of straight '' "0 straight: no schedule of $room/straight.lua ends before 51 (cover of 61 states)" "$room/straight.lua"
# Changes that only lengthen schedules: smaller caps, slower ranks, links.
of straight '' "0 caps: no schedule of $caps -D caps=1 ends before 51 (cover of 61 states)" $caps -D caps=1
of straight '' "0 caps: no schedule of $caps -D caps=2 --cluster $room/slow.lua ends before 51 (cover of 61 states)" \
    $caps -D caps=2 --cluster "$room/slow.lua"
# Ticks that are not binary fractions: 3 of 0.1 are 0.3.
sed 's/split_backward/cost = function(s, b, d) return d == "F" and 0.3 or 0.6 end, split_backward/' $caps >"$room/tenths.lua"
tenths='s/^tick 1/tick 0.1/; s/time 1/time 3/; s/time 2/time 6/; s/\+1/+3/g; s/\+2/+6/g; s/^limit.*/limit 99/; /^at /d; s/^proof.*/proof work/'
of straight "$tenths" "0 tenths: no schedule of $room/tenths.lua -D caps=2 ends before 9.9 (99 ticks of 0.1; work of rank 3)" \
    "$room/tenths.lua" -D caps=2
of straight "$tenths; s/(F2 .*) time 3/\1 time 4/; s/4\+3/4+4/" "1 -:14: F2 takes 0.4, but the script's 2F0 takes only 0.3" \
    "$room/tenths.lua" -D caps=2

# Other scripts: a cap, a number of microbatches, chunks, a direction, a place, costs, latency.
of straight '' "1 -:6: rank 0 has room for 2 activations, but its cap in the script is 3" $caps -D caps=3
of straight '' "1 -:10: F0 has 8 items, but the script has 9 such jobs" $caps -D caps=2 -D batches=9
of straight '' "1 -:14: F2 is on rank 2, but the script has these jobs on rank 0" $caps -D caps=2 -D workers=2 -D chunks=2
of straight '' "1 -:11: the script has no jobs for B0, or another class covers them" $caps -D caps=2 -D split=true
of straight '' "1 -:18: B0 comes 2 after B1, and 0B0 of the script only 1 after the start of 1B0" $caps -D caps=2 --cluster "$room/fast.lua"
of pool '' "1 -:22: F4 is on rank 3, but the script has these jobs on rank 0" $caps -D caps=3 -D chunks=2 -D split=true
of links '' "1 -:18: B0 comes 3 after B1, and 0B0 of the script only 2 after the start of 1B0" $caps -D caps=4,3,2,1
of straight '' "1 certificates cover jobs that each run alone on one rank, but ../../../schedules/dualpipe.lua has pairs of jobs that overlap" \
    ../../../schedules/dualpipe.lua

# Refused because of the script: the claim itself is trivial.
trivial='s/^limit.*/limit 0/; /^at /d; s/^proof.*/proof work/'
nothing="caps: no schedule of $caps -D caps=2 ends before 0 (work of rank 3)"
of straight "$trivial" "0 $nothing" $caps -D caps=2
# A chain of dependencies proves more than the file: the chain from F0 to B0 through the last stage takes 10.
of straight "18s/ 0\\+1/ 0+10/; $trivial" "0 $nothing" $caps -D caps=2
of straight "18s/ 0\\+1/ 0+11/; $trivial" "1 -:18: B0 comes 11 after F0, and 0B0 of the script only 10 after the start of 0F0" \
    $caps -D caps=2

# Makes each number of the instance worse, one by one.
worse() { # NAME CHANGES ARGS...: makes CHANGES random changes, and expects that none is accepted
    local name=$1 changes change n=0 accepted=0
    changes=$(awk '{
        if (/^room/) print NR "s/[0-9]+$/" $3 - 1 "/"
        if (/^class/) {
            print NR "s/rank [0-9]+/rank " ($5 + 1) % 4 "/"; print NR "s/time [0-9]+/time " $7 + 1 "/"
            print NR "s/take [0-9]+/take " $11 + 1 "/"; if ($13) print NR "s/give [0-9]+/give " $13 - 1 "/"
            print NR "s/" substr($3, 1, 1) "/" (substr($3, 1, 1) == "F" ? "R" : "F") "/"
        }
        if (/^(after|pool)/) for (i = 3; i <= NF; i++) {
            split($i, arc, "+"); print NR "s/ " arc[1] "\\+" arc[2] "/ " arc[1] "+" arc[2] + 99 "/"
        }
    }' "$room/$name.bound")
    while read -r change; do
        n=$((n + 1))
        ! sed -E "$change; $trivial" "$room/$name.bound" | timeout 60 "$PIANOLA" check-bound - $caps "${@:3}" >"$room/said" 2>&1 ||
            { accepted=$((accepted + 1)); echo "$name, $change: $(cat "$room/said")"; }
    done <<<"$changes"
    expect "$name: changes, of which are accepted" "$2 0" "$n $accepted"
}
worse straight 50 -D caps=2
worse pool 118 -D caps=3 -D chunks=2 -D v=true -D split=true
worse links 50 -D caps=4,3,2,1 "${latency[@]}" -D latency=1
of straight "s/items 8/items 9/; $trivial" "1 -:10: F0 has 9 items, but the script has 8 such jobs" $caps -D caps=2
of pool "s/items 8/items 9/; s/items 16/items 18/; $trivial" "1 -:10: F0 has 9 items, but the script has 8 such jobs" \
    $caps -D caps=3 -D chunks=2 -D v=true -D split=true

# Usage
expect "a second script" "pianola: error: \`check-bound\` takes one certificate and one schedule, but got 'c' too" \
    "$("$PIANOLA" check-bound a b c 2>&1)"
expect "options without a script" \
    "pianola: error: \`check-bound\` takes -D, --model, --cluster and --recompute only with a schedule: add one after pool.bound" \
    "$("$PIANOLA" check-bound pool.bound -D caps=2 2>&1)"
