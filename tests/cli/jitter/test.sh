#!/usr/bin/env bash
# Checks --jitter, the makespans of many runs with noise, through the real command, against values derived here.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# jitter ARGS...: prints level, runs, mean, p95 and worst. judge WHAT CONDITION ARGS...: tests them and the makespan in
# Python.
jitter() { json "$@" | sed -nE 's/^  "jitter": \{ "level": (.*), "runs": (.*), "mean": (.*), "p95": (.*), "worst": (.*) \},$/\1 \2 \3 \4 \5/p;/error:/p'; }
judge() {
    local makespan figures
    makespan=$(figure makespan "${@:3}")
    figures=$(jitter "${@:3}")
    expect "$1 ($makespan; $figures)" True "$(python3 -c "
import math, sys
makespan = float(sys.argv[1])
level, runs, mean, p95, worst = map(float, sys.argv[2].split())
print($2)" "$makespan" "$figures" 2>&1)"
}

# Without noise, every run equals the prediction, bit for bit where sums are exact; also where a period repeats.
for schedule in schedules/*.lua; do
    for cluster in "" "--cluster schedules/clusters/latency.lua -D latency=0.25 -D bandwidth=8"; do
        m=$(figure makespan "$schedule" $cluster)
        expect "$schedule $cluster: no noise" "0 3 $m $m $m" "$(jitter "$schedule" $cluster --jitter 0% --runs 3)"
    done
done
expect "every repetition of a period runs" "0 2 7209 7209 7209" \
    "$(jitter schedules/pipedream.lua -D batches=2400 --jitter 0% --runs 2)"

# One rank: 24 jobs in a row, a third of them of cost 2. The sum is nearly normal; each job deviates by l / sqrt(3).
one="schedules/serial.lua -D batches=12 --jitter 20% --runs 4000"
judge "a chain's mean" "abs(mean - makespan) < 4 * 0.2 / math.sqrt(3) * math.sqrt(12 * 4 * (1 + 4) / 4000)" $one -D stages=4
judge "its 95th percentile" \
    "abs(p95 - makespan - 1.645 * 0.2 / math.sqrt(3) * math.sqrt(12 * 4 * (1 + 4))) < 0.15" $one -D stages=4
judge "its worst" "makespan < p95 < worst < 1.2 * makespan" $one -D stages=4
# Each repetition of a period has its own noise; shared noise would not average out.
judge "a long step averages" "0.999 * makespan < mean < worst < 1.002 * makespan" \
    schedules/model_parallel.lua -D batches=9600 --jitter 20% --runs 20

# On average, noise only costs time, and more noise costs more.
for schedule in gpipe 1f1b zb_h1 zb_h2 zbv interleaved lpp pipedream fsdp_whole; do
    means=$(for level in 0 5 10 20 40; do jitter schedules/$schedule.lua --jitter $level% | cut -d' ' -f3; done)
    expect "$schedule: more noise, longer" "$means" "$(sort -g <<<"$means")"
done
# Messages have noise too: with slow links, noise of jobs alone would hardly show.
far="schedules/1f1b.lua -D workers=2 -D batches=1 --cluster schedules/clusters/latency.lua -D latency=1000"
judge "messages" "worst > 1.05 * makespan" $far --jitter 10%

# At equal makespans, noise costs less where ranks wait less for each other; schedules/slow-rank.md has the numbers.
mean() { jitter schedules/"$1".lua -D workers=8 -D batches=32 --jitter 10% | cut -d' ' -f3; }
for pair in "zb_h2 zb_h1" "latency_1f1b 1f1b" "1f1b gpipe" "interleaved breadth_first"; do
    read -r less more <<<"$pair"
    expect "$less suffers less than $more" "$(mean "$less")" "$(printf '%s\n' "$(mean "$less")" "$(mean "$more")" | sort -g | head -n 1)"
done

# A spread of 0 to 2 is uniform, as 100 % is; one from 1 on is no noise; and its scale does not count. Of {0, 0, 4} the
# mean is 1 with a variance of 5/3, since half of the jobs take no time, and the others from 0 to 4.
cat >"$room/spread.lua" <<'L'
local p = params { of = "0 2" }
local times = {}
for number in p.of:gmatch("%S+") do times[#times + 1] = tonumber(number) end
return cluster { spread = function(s, op) return times end }
L
drawn="schedules/serial.lua -D batches=12 -D stages=4 --runs 4000 --cluster $room/spread.lua --jitter measured"
rounded() { awk '{ printf "%.9g %.9g %.9g\n", $3, $4, $5 }'; }
expect "uniform" "$(jitter schedules/serial.lua -D batches=12 -D stages=4 --runs 4000 --jitter 100% | rounded)" \
    "$(jitter $drawn | rounded)"
expect "the scale does not count" "$(jitter $drawn | rounded)" "$(jitter $drawn -D of="0 3 6" | rounded)"
m=$(figure makespan schedules/serial.lua -D batches=12 -D stages=4)
expect "no spread" "null 4000 $m $m $m" "$(jitter $drawn -D of="5 5 5")"
expect "a tail's mean and deviation" True "$(python3 -c "
import math, sys
level, runs, mean, p95, worst = sys.argv[1].split()
deviation = math.sqrt(12 * 4 * (1 + 4) * 5 / 3)
print(abs(float(mean) - $m) < 4 * deviation / math.sqrt(4000) and abs(float(p95) - $m - 1.645 * deviation) < 0.1 * deviation)" \
    "$(jitter $drawn -D of="0 0 4")")"

# A seed always gives the same numbers, another seed others. compare reports what show does, in its own units.
once="schedules/zbv.lua --jitter 10%"
expect "the same seed gives the same figures" "$(json $once)" "$(json $once)"
expect "the default seed and runs give these figures too" "$(json $once)" "$(json $once --seed 1 --runs 200)"
[ "$(jitter $once)" != "$(jitter $once --seed 2)" ]
expect "another seed, other numbers" 0 $?
"$PIANOLA" compare schedules/{1f1b,zbv}.lua --jitter 10% --json >"$room/json"
scaled() { awk -v by="$1" '{ printf "%s %s %.12g %.12g %.12g\n", $1, $2, $3 / by, $4 / by, $5 / by }'; }
expect "compare, in units of a rank's share" "$(jitter schedules/1f1b.lua --jitter 10% | scaled 1)
$(jitter $once | scaled 2)" \
    "$(python3 -c 'import json, sys
for s in json.load(open(sys.argv[1]))["schedules"]:
    j = s["jitter"]
    print("%s %s %.12g %.12g %.12g" % (j["level"], j["runs"], j["mean"], j["p95"], j["worst"]))' "$room/json")"
expect "columns" "schedule stages makespan mean p95 bubble closed exposed live memory least sent bound gap held" \
    "$("$PIANOLA" compare schedules/1f1b.lua --jitter 10% | sed -nE '4s/ +/ /gp')"
expect "sorted by the 95th percentile" "zbv zb_h1 1f1b gpipe" \
    "$("$PIANOLA" compare schedules/{gpipe,1f1b,zbv,zb_h1}.lua --jitter 10% --sort p95 | sed 1,4d | cut -d' ' -f1 | paste -sd' ')"
expect "show's line" "jitter       mean 33, 95 % of runs within 33, worst 33 units; 7 runs, times up to 0 % longer or shorter" \
    "$("$PIANOLA" show schedules/1f1b.lua --jitter 0% --runs 7 | grep ^jitter)"
expect "no jitter, no line" 0 "$("$PIANOLA" show schedules/1f1b.lua | grep -c ^jitter)"

# trouble WANTED ARGS...
trouble() { expect "${*:2}" "pianola: error: $1" "$("$PIANOLA" "${@:2}" 2>&1)"; }
S=schedules/1f1b.lua
trouble "--jitter 10: expected at least 0% and at most 100%, such as 10%, or measured" compare $S --jitter 10
trouble "--jitter 101%: expected at least 0% and at most 100%, such as 10%, or measured" show $S --jitter 101%
trouble "--jitter nan%: expected at least 0% and at most 100%, such as 10%, or measured" show $S --jitter nan%
trouble "--jitter measured: no cluster says how times of jobs vary; \`pianola diff --fit\` writes one that does, for --cluster" \
    show $S --jitter measured
trouble "--jitter measured: only show and compare take it; give a level, such as 10%" optimal $S --jitter measured
trouble "--runs 0: expected a whole number of at least 1" show $S --jitter 1% --runs 0
trouble "--jitter: --format tsv has no figures; formats with figures are grid, json or html" show $S --jitter 1% --format tsv
trouble "--jitter and --measured exclude each other: a measurement has its own noise" show $S --jitter 1% --measured run.tsv
trouble "--sort p95: this column exists only with --jitter" compare $S --sort p95
trouble "--train and --jitter exclude each other: --train prints a table of losses instead" compare $S --train --jitter 1%
trouble "\`check\` takes no --jitter; see \`pianola help check\`" check $S --jitter 1%
finish
