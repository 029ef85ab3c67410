#!/usr/bin/env bash
# The makespan that `run` predicts comes from the CPU time of the ranks' own jobs. So it costs no further step and no
# further memory, and other load on the machine does not lengthen it.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
text=/usr/share/common-licenses/GPL-3

# measured ARGS...: prints the output of run, then its CPU seconds and peak KiB.
measured() {
    python3 - "$PIANOLA" run "$@" --data $text --json <<'PY'
import resource, subprocess, sys
r = subprocess.run(sys.argv[1:], capture_output=True, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(r.stdout, r.stderr if r.returncode else "", sep="")
print(f'  "cpu": {used.ru_utime + used.ru_stime},\n  "kib": {used.ru_maxrss}')
PY
}

# Memory: the plan plus the program with its libraries; a second step's memory would add half as much again.
wide=(schedules/1f1b.lua --model schedules/models/gpt.lua -D workers=4 -D batches=4 -D width=256 -D heads=4)
planned=$(ranks peak_bytes "${wide[@]}" | tr , '\n' | awk '{ sum += $1 } END { print sum / 1024 }')
kib=$(measured "${wide[@]}" --steps 1 | field kib)
expect "memory of a run: $kib KiB, with $planned planned" yes "$(awk -v got="$kib" -v plan="$planned" 'BEGIN { print (plan > 60000 && got < 1.1 * plan + 40000 ? "yes" : "no") }')"

# One rank takes all of the work. More ranks take less, but at least an even share. The process spent all of the work.
small=(--model schedules/models/gpt.lua -D layers=8 -D width=64)
for how in serial "1f1b -D workers=4" "zbv -D workers=4" fsdp zero1 "hsdp -D zero=2" "1f1b -D tensor=2 -D workers=2" dp_tp_pp terapipe pipedream pipedream_2bw \
    1f1b_offload "1f1b --recompute"; do
    read -r name rest <<<"$how"
    # shellcheck disable=SC2086
    measured "schedules/$name.lua" "${small[@]}" $rest --steps 8 >"$room/said"
    n=$("$PIANOLA" show "schedules/$name.lua" "${small[@]}" $rest --json | field workers)
    expect "$how: the predicted makespan within bounds from the work" yes "$(awk -v p="$(field makespan_predicted <"$room/said")" -v w="$(field work <"$room/said")" \
        -v n="$n" -v cpu="$(field cpu <"$room/said")" 'BEGIN {
            even = n == 1 ? 0.9 * w : 0.8 * w / n
            print (w > 0 && p >= even && p <= 1.05 * w && 8 * w < 1.5 * cpu ? "yes" : p " of " w " on " n ", CPU " cpu) }')"
done
expect "--compare does not change the weights" true "$(measured schedules/1f1b.lua "${small[@]}" --steps 2 --compare | field one_rank_same_weights)"
finish
