#!/usr/bin/env bash
# Checks `pianola tune` against loops of `show` over the same candidates, which share nothing with its search: the ten
# best, candidates without enough memory, the same result on any number of cores, the script that it writes, and errors.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

integers=(--model schedules/models/integers.lua)
gpt=(--model schedules/models/gpt.lua -D layers=2)
links=(--cluster schedules/clusters/latency.lua -D flops=1e9 -D latency=1e-6 -D bandwidth=1e9)
S=schedules

tune() { timeout 300 "$PIANOLA" tune "$@" 2>&1; }
# best KEY ARGS...: prints that figure of each of the best, one per line.
best() { tune --json "${@:2}" | sed -nE "s/^    \{.*\"$1\": \"?([^,\"}]*)\"?[,}].*/\1/p;/error:/p"; }
# Prints the largest of the ranks' figures.
worst() { sed -nE "s/^      \"$1\": ([^,]*),?$/\1/p" | sort -n | tail -n 1; }

# ---- exhaustive search: every candidate by hand ----

# all WORKERS ROWS MODEL_AND_CLUSTER...: prints "makespan peak options" for each candidate that compiles, for the
# schedules in $names and steps of ROWS rows. The ranges repeat the scripts' own `tune` fields.
all() {
    local n=$1 rows=$2 name tensor r own again extra report
    shift 2
    for name in $names; do
        for ((tensor = 1; tensor <= n; tensor++)); do
            ((n % tensor == 0)) || continue
            for ((r = 1; r <= rows; r++)); do
                ((rows % r == 0 && rows / r <= 16 * n)) || continue
                own=$((n / tensor))
                [ $name = dp_tp_pp ] && own=$n
                while read -r extra; do
                    for again in "" --recompute; do
                        # shellcheck disable=SC2086 # options are several words
                        report=$("$PIANOLA" show --json $S/$name.lua "$@" -D rows=$r -D batches=$((rows / r)) -D workers=$own \
                            $([ $tensor -gt 1 ] || [ $name = dp_tp_pp ] && echo -D tensor=$tensor) $extra $again 2>/dev/null) || continue
                        echo "$(sed -nE 's/^  "makespan": (.*),$/\1/p' <<<"$report") $(worst peak_bytes <<<"$report") $name $extra"
                    done
                done < <(extras $name $own)
            done
        done
    done
}
# Prints the values that the schedule's own field allows for n workers.
extras() {
    local v z
    case $1 in
    1f1b | zbv | zb_h1) echo ;;
    breadth_first) printf -- '-D chunks=%d\n' 2 4 8 ;;
    1f1b_ddp) for ((v = 1; v <= $2; v++)); do ((v <= $2 && $2 % v == 0)) && for z in 0 1 2; do echo "-D replicas=$v -D zero=$z"; done; done ;;
    1f1b_fsdp) for ((v = 1; v <= $2; v++)); do (($2 % v == 0)) && echo "-D replicas=$v"; done ;;
    dp_tp_pp) for ((v = 1; v <= $2; v++)); do (($2 % v == 0)) && for z in 0 1 2; do
        echo "-D data=$v -D split=false -D zero=$z"
        echo "-D data=$v -D split=true -D zero=$z"
    done; done ;;
    esac
}
sorted() { sort -g -k1,1 -k2,2n; }

# judge WHAT WORKERS ROWS ARGS...: the ten best makespans are the ten smallest of all candidates, each with the least
# memory at that makespan. Equal figures count once.
judge() {
    local what=$1 workers=$2 rows=$3
    shift 3
    all "$workers" "$rows" "$@" | sorted >"$room/all"
    # shellcheck disable=SC2046,SC2086
    tune --json $(printf "$S/%s.lua " $names) "$@" --workers "$workers" --rows "$rows" >"$room/tuned"
    sed -nE 's/.*"makespan": ([^,]*), .*"peak_bytes": ([^,]*),.*/\1 \2/p' "$room/tuned" | head -n 10 >"$room/ten"
    expect "$what: the best" "$(awk 'NR == 1 { print $1, $2 }' "$room/all")" "$(head -n 1 "$room/ten")"
    expect "$what: all of the best are candidates" "" "$(awk 'NR == FNR { has[$1 " " $2] = 1; next } !($0 in has)' "$room/all" "$room/ten")"
    # Candidates with equal makespan and peak may differ, so the tuned list may repeat a pair.
    expect "$what: no better candidate is left out" "" "$(awk 'NR == FNR { tuned[$1 " " $2] = 1; last = $1; next } $1 < last && !(($1 " " $2) in tuned)' "$room/ten" "$room/all")"
    expect "$what: ten results, or all candidates" yes "$([ "$(wc -l <"$room/ten")" = 10 ] || [ "$(sort -u "$room/all" | cut -d' ' -f1,2 | sort -u | wc -l)" = "$(wc -l <"$room/ten")" ] && echo yes)"
    expect "$what: no bound is above its makespan" "" "$(sed -nE 's/.*"makespan": ([^,]*), "lower_bound": ([^,]*),.*/\1 \2/p' "$room/tuned" | awk '$2 > $1')"
}

names="1f1b 1f1b_ddp breadth_first zbv"
judge "integers, 2 ranks" 2 8 "${integers[@]}" -D width=64 "${links[@]}"
names="1f1b_ddp 1f1b_fsdp zb_h1 breadth_first"
judge "integers, 4 ranks" 4 8 "${integers[@]}" -D width=128 "${links[@]}"
names="1f1b dp_tp_pp zbv"
judge "gpt, 4 ranks" 4 8 "${gpt[@]}" -D context=16 -D width=32 "${links[@]}"
names="1f1b 1f1b_ddp zbv"
judge "gpt, 8 ranks" 8 4 "${gpt[@]}" -D layers=8 -D context=16 -D width=32 "${links[@]}"

# ---- memory ----

few=("$S/1f1b.lua" "$S/1f1b_ddp.lua" "$S/1f1b_fsdp.lua" "$S/gpipe.lua")
some=("${few[@]}" "${gpt[@]}" -D context=32 "${links[@]}" --workers 4 --rows 16)
free=$(best makespan "${some[@]}" | head -n 1)
expect "without a limit" yes "$([ -n "$free" ] && echo yes)"
before=
for limit in 1500000 2000000 3000000 5000000 9000000 20000000; do
    tune --json "${some[@]}" --memory $limit >"$room/limited"
    expect "--memory $limit: no peak exceeds it" "" \
        "$(sed -nE 's/.*"peak_bytes": ([0-9]*).*/\1/p' "$room/limited" | awk -v limit=$limit '$1 > limit')"
    now=$(sed -nE 's/.*"makespan": ([^,]*), .*/\1/p' "$room/limited" | head -n 1)
    expect "--memory $limit: not slower than with less" "" \
        "$(awk -v before="${before:-inf}" -v now="${now:-none}" 'BEGIN { if (before != "inf" && (now == "none" || now > before * (1 + 1e-12))) print before, now }')"
    before=${now:-$before}
done
expect "a high limit gives the result without a limit" "$free" "$before"
nothing=$(tune "${some[@]}" --memory 50000)
need=$(sed -nE 's/.* takes is ([0-9]+) bytes of a rank: .*/\1/p' <<<"$nothing")
expect "nothing fits" "pianola: error: no candidate fits into 50000 bytes; the least that any of them takes is $need bytes of a rank" \
    "$(cut -d: -f1-3 <<<"$nothing")"
options=$(sed 's/.*pianola show //' <<<"$nothing")
# shellcheck disable=SC2086
expect "the named command line compiles" 0 "$("$PIANOLA" show $options >/dev/null 2>&1; echo $?)"
expect "a candidate fits into the named memory" "" "$(tune "${some[@]}" --memory "${need:-0}" | grep error)"

# ---- the best of each schedule ----

# The best of each schedule is the first result of a search over that schedule alone; without --all, the list has
# nothing else. GPipe's best equals 1F1B's, so both share a line.
tune --json "${some[@]}" >"$room/families"
for schedule in "${few[@]:0:3}"; do
    name=$(basename "$schedule" .lua)
    expect "the best of $name" "$(best makespan "$schedule" "${some[@]:4}" | head -n 1)" \
        "$(sed -nE "s/.*\"schedule\": \"$name\", \"best_of_schedule\": true,.*\"makespan\": ([^,]*), .*/\1/p" "$room/families")"
done
rows() { sed -nE 's/^    pianola show schedules\/([a-z0-9_]*)\.lua.*/\1/p'; }
tune "${some[@]}" >"$room/brief"
expect "each schedule once" "1f1b 1f1b_ddp 1f1b_fsdp" "$(rows <"$room/brief" | sort | paste -sd' ')"
expect "the output says how to see the others" "the best of each schedule; --all prints 8 more variants of them, which are among the 10 best" \
    "$(grep -- --all "$room/brief")"
tune "${some[@]}" --all >"$room/whole"
expect "--all: the same list as JSON's" "$(sed -nE 's/.*"schedule": "([^"]*)", "best_of_schedule.*/\1/p' "$room/families")" "$(rows <"$room/whole")"
expect "--all: no hint of more variants" 0 "$(grep -c -- --all "$room/whole")"

# ---- the same bytes on any machine ----

for format in "" --json; do
    for repeat in 1 2; do
        tune "${some[@]}" $format >"$room/two$repeat"
        taskset -c 0 "$PIANOLA" tune "${some[@]}" $format >"$room/one"
        expect "1 core and all of them $format" "" "$(diff "$room/one" "$room/two$repeat" | head -n 5)"
    done
done

# ---- every printed command line works ----

tune "${some[@]}" --json | sed -nE 's/.*"makespan": ([^,]*), .*"options": "([^"]*)".*/\1 \2/p' >"$room/lines"
expect "ten command lines, and one of a schedule that is not among the ten" 11 "$(wc -l <"$room/lines")"
while read -r makespan line; do
    # shellcheck disable=SC2086
    expect "$line" "$makespan" "$(figure makespan $line)"
done <"$room/lines"

# ---- the winner as a script ----

part() { sed -nE "s/.*\"improved\": \{\"before\": ([^,]*), \"after\": ([^,]*),.*/\\$1/p" "$2"; } # 1 before, 2 after
first() { sed -nE 's/.*"makespan": ([^,]*), .*/\1/p' "$1" | head -n 1; }
step_of() { [ -n "$(part 2 "$1")" ] && part 2 "$1" || first "$1"; } # the first result's makespan with the order in the file
# written NAME ARGS...: tunes, and compares the script with the search and with the compiler.
written() {
    local name=$1
    shift
    rm -f "$room/$name.lua"
    tune --json "$@" -o "$room/$name.lua" >"$room/$name.json"
    expect "$name: exit" 0 $?
    line=$(sed -nE 's/^-- pianola show //p' "$room/$name.lua")
    # shellcheck disable=SC2086
    expect "$name: its makespan" "$(step_of "$room/$name.json")" "$(figure makespan $line)"
    # shellcheck disable=SC2086
    "$PIANOLA" check $line >/dev/null
    expect "$name: check" 0 $?
    expect "$name: the command line sets no parameter of the script" "" \
        "$(grep -oE -- '-D (workers|batches|replicas|zero|tensor|data|chunks|split)=' <<<"$line")"
}
train() { # on all ranks, as on one
    # shellcheck disable=SC2086
    timeout 120 "$PIANOLA" run $line --steps 2 --compare >"$room/run" 2>&1
    expect "$1: run --compare" 0 $?
}
written ddp "$S/1f1b_ddp.lua" "${integers[@]}" "${links[@]}" --workers 4 --rows 16
train ddp
written teams "$S/1f1b.lua" "${integers[@]}" "${links[@]}" --workers 4 --rows 16 -D tensor=2
expect "a team becomes a field" 1 "$(grep -c '^  tensor = 2,$' "$room/teams.lua")"
train teams
written again "$S/breadth_first.lua" "${integers[@]}" "${links[@]}" --workers 2 --rows 8 --recompute
written sequence "$S/dualpipev.lua" "${gpt[@]}" -D context=16 "${links[@]}" --workers 2 --rows 8 --recompute -D tensor=1
# A script whose defaults are not plain values is refused, and nothing is written.
sed 's/^local p = params .*/local defaults = { workers = 4, batches = 8 }\nlocal p = params(defaults)/' $S/zb_h1.lua >"$room/odd.lua"
expect "defaults that are not plain" "pianola: error: -o: the script has no plain default for workers that tune could replace; give it with the options above" \
    "$(tune "$room/odd.lua" "${integers[@]}" "${links[@]}" --workers 2 --rows 4 -o "$room/none.lua" | grep error)"
expect "defaults that are not plain: nothing is written" no "$([ -e "$room/none.lua" ] && echo yes || echo no)"
# Comments, strings and functions with the same words are not defaults.
cat >"$room/words.lua" <<'LUA'
-- params { workers = 1 }
local text = "params { workers = 2 }" --[[ params { batches = 3 } ]]
local p = params { --[==[ workers = 7, ]==] workers = math.max(4, 2), note = "a, } b",
  batches = 8 }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end, n = backward_first,
  tune = { note = { "x, y", "it's" } },
}
LUA
written tricky "$room/words.lua" "${integers[@]}" "${links[@]}" --workers 2 --rows 4

# ---- local search over orders of the first ----

slow=("$S/1f1b.lua" --model schedules/models/gpt.lua --cluster schedules/clusters/nodes.lua --workers 4 --rows 64 -D batches=8 -D tensor=1)
tune --json "${slow[@]}" -o "$room/better.lua" >"$room/better.json"
line=$(sed -nE 's/^-- pianola show //p' "$room/better.lua")
expect "before: the makespan of the first result" "$(first "$room/better.json")" "$(part 1 "$room/better.json")"
# shellcheck disable=SC2086
expect "after: the written script's makespan" "$(part 2 "$room/better.json")" "$(figure makespan $line)"
expect "long links: running forwards ahead saves a third" yes \
    "$(awk -v a="$(part 1 "$room/better.json")" -v b="$(part 2 "$room/better.json")" 'BEGIN { print (a > 0 && b > 0 && b < a * 2 / 3 ? "yes" : a " " b) }')"
train "a better order"
expect "the line about the local search" 1 "$(tune "${slow[@]}" | grep -cE '^local search over 8000 orders of the first.s jobs: [0-9.]+ instead of [0-9.]+ µs')"
taskset -c 0 "$PIANOLA" tune --json "${slow[@]}" >"$room/one.json"
expect "1 core and all of them" "" "$(diff "$room/one.json" "$room/better.json" | head -n 5)"
expect "updates of a team's members stay as they are" 1 \
    "$(tune "$S/1f1b.lua" "${integers[@]}" "${links[@]}" --workers 4 --rows 16 -D tensor=2 | grep -c '^local search over orders of the first: not tried: ')"

# ---- with noise ----

# noise ARGS...: prints mean and p95, as `show` has them.
noise() { "$PIANOLA" show "$@" --jitter 10% --runs 100 --json | sed -nE 's/.*"mean": ([^,]*), "p95": ([^,]*),.*/\1 \2/p'; }
tune --json "${slow[@]}" --jitter 10% --runs 100 -o "$room/noisy.lua" >"$room/noisy.json"
line=$(sed -nE 's/^-- pianola show //p' "$room/noisy.lua")
# shellcheck disable=SC2086
expect "p95 of the better order equals show's" "$(part 2 "$room/noisy.json")" "$(noise $line | cut -d' ' -f2)"
sed -nE 's/.*"mean": ([^,]*), "p95": ([^,]*),.*"options": "([^"]*)".*/\1 \2 \3/p' "$room/noisy.json" >"$room/lines"
expect "every result has a mean and a p95" yes "$([ "$(wc -l <"$room/lines")" -ge 2 ] && echo yes)"
while read -r mean p95 line; do
    # shellcheck disable=SC2086
    expect "$line: mean and p95" "$mean $p95" "$(noise $line)"
done <"$room/lines"
expect "ranked by p95" "$(cut -d' ' -f2 "$room/lines" | sort -g)" "$(cut -d' ' -f2 "$room/lines")"

# ---- errors ----

says() { expect "tune ${*:2}" "2 pianola: error: $1" "$(got=$("$PIANOLA" tune "${@:2}" 2>&1 >/dev/null | head -n 1); "$PIANOLA" tune "${@:2}" >/dev/null 2>&1; echo "$? $got")"; }
says "\`tune\` needs --model FILE.lua and --cluster FILE.lua; see \`pianola help tune\`" --workers 4
says "\`tune\` needs --workers N" "${integers[@]}" "${links[@]}"
says "--workers 0: expected a whole number of at least 1" "${integers[@]}" "${links[@]}" --workers 0
says "-D workers: \`tune\` takes the ranks from --workers" "${integers[@]}" "${links[@]}" --workers 4 -D workers=4
says "schedules/clusters/latency.lua: has no flops, so layers take FLOP and links seconds; add flops, the FLOP per second of a rank" \
    "${integers[@]}" --cluster schedules/clusters/latency.lua --workers 4
says "-D chnks=2: none of the scripts has this parameter" "$S/1f1b.lua" "${integers[@]}" "${links[@]}" --workers 4 -D chnks=2
says "--rows 7: microbatches of 2 rows do not add up to that" "$S/1f1b.lua" "${integers[@]}" "${links[@]}" --workers 4 -D rows=2 --rows 7
says "--memory lots: expected bytes, such as 1e9" "${integers[@]}" "${links[@]}" --workers 4 --memory lots
says "$room/absent.lua: No such file or directory" "$room/absent.lua" "${integers[@]}" "${links[@]}" --workers 2
says "$S/asp.lua: it updates weights within the step, so it trains to another result" $S/asp.lua "${integers[@]}" "${links[@]}" --workers 2
says "none of 11 candidates compiles:" $S/chimera.lua "${integers[@]}" "${links[@]}" --workers 3 -D tensor=1 --rows 96 --recompute
sed 's/^  order = /  tune = { chnks = { 2 } }, order = /;s/^  n = /  tune = { chnks = { 2 } }, n = /' $S/1f1b.lua >"$room/wrong.lua"
expect "tune names no parameter" yes "$("$PIANOLA" check "$room/wrong.lua" 2>&1 | grep -q "tune names \"chnks\", which is not a parameter of this script" && echo yes)"
expect "a schedule that is not tried is named" \
    "  not tried: asp: it updates weights within the step, so it trains to another result" \
    "$(tune $S/1f1b.lua $S/asp.lua "${integers[@]}" "${links[@]}" --workers 2 --rows 2 | grep asp)"

# ---- reasons are sentences about schedules, not messages of the compiler's parser ----

# A rank at half the speed: the step is no shorter than the same work on 3.5 ranks, and much shorter than with four
# equal shares. The best has teams there, whose jobs no sequence can list.
unequal=(--model schedules/models/gpt.lua --cluster schedules/clusters/unequal.lua -D flops=1e12 --workers 4 --rows 16)
tune "${unequal[@]}" >"$room/unequal"
expect "no file and line, and no mention of sequences" "" "$(grep -E '\.lua:[0-9]|sequence\[' "$room/unequal")"
expect "teams: no local search" "local search over orders of the first: not tried: teams of ranks share its stages, and the search moves jobs of single ranks" \
    "$(grep '^local search' "$room/unequal")"
slower=$(best makespan $S/terapipe.lua $S/1f1b.lua "${unequal[@]}" | head -n 1)
equal=$(best makespan $S/terapipe.lua $S/1f1b.lua "${unequal[@]}" -D speed=1 | head -n 1)
expect "one rank at half speed: at least 8/7 of the time, at most 3/2" yes \
    "$(awk -v a="$equal" -v b="$slower" 'BEGIN { print (b >= a * 8 / 7 && b < a * 3 / 2 ? "yes" : b " " a) }')"
printf '%s\n' 'local p = params { workers = 4, batches = 8 }' 'return schedule {' \
    '  workers = p.workers, stages = p.workers batches = p.batches,' '}' >"$room/syntax.lua"
expect "a syntax error ends the search" "$room/syntax.lua:3: error: '}' expected (to close '{' at line 2) near 'batches'
    3 |   workers = p.workers, stages = p.workers batches = p.batches," \
    "$(tune "$room/syntax.lua" $S/1f1b.lua "${integers[@]}" "${links[@]}" --workers 2 --rows 2 | head -n 2)"
# A script that fails with some of its parameters is refused with exactly these.
printf '%s\n' 'local p = params { workers = 4, batches = 8 }' 'local t = p.batches > 1 and { p.workers } or nil' 'return schedule {' \
    '  workers = p.workers, stages = p.workers, batches = p.batches,' '  w = function(s, b, d) return t[1] and s, s end, n = backward_first,' \
    '}' >"$room/some.lua"
expect "a script that fails for some parameters" "  refused 2: some fails at its line 5: attempt to index a nil value (upvalue 't'), in w() for 0F0" \
    "$(tune "$room/some.lua" "${integers[@]}" "${links[@]}" --workers 2 --rows 2 -D tensor=1 | grep refused.*some)"

expect "the heading gives the length of a row" "gpt on 2 ranks, 8 rows a step, 64 tokens a row" "$(tune $S/1f1b.lua "${gpt[@]}" "${links[@]}" --workers 2 --rows 8 | head -n 1)"
expect "rows that are not sequences have no tokens" "integers on 2 ranks, 8 rows a step" "$(tune $S/1f1b.lua "${integers[@]}" "${links[@]}" --workers 2 --rows 8 | head -n 1)"

# ---- interrupted ----

"$PIANOLA" tune "${gpt[@]}" "${links[@]}" --workers 8 --rows 32 >"$room/cut" 2>&1 &
child=$!
sleep 0.3
kill -INT $child
wait $child
code=$?
expect "an interrupt" yes "$([ $code = 130 ] || { [ $code = 2 ] && grep -q 'interrupted before anything' "$room/cut"; } && echo yes)"
expect "the best of the simulated candidates is printed" "$([ $code = 130 ] && echo 1 || echo 0)" "$(grep -c '^interrupted: these are the best of what was simulated by then$' "$room/cut")"
# Interrupts the local search, which takes minutes with this number of runs: the first result is printed, with the
# orders tried so far.
"$PIANOLA" tune "${slow[@]}" --jitter 10% --runs 20000 -o "$room/cut.lua" >"$room/cut" 2>&1 &
child=$!
for _ in {1..100}; do
    [ "$(pgrep -c -P $child)" -gt 0 ] && [ "$(ps -o etimes= -p $child)" -ge 8 ] && break
    sleep 0.2
done
kill -INT $child
wait $child
expect "an interrupt in the local search" "130 1" "$? $(grep -c '^interrupted' "$room/cut")"
expect "the first result is printed" 1 "$(grep -c '^ 1 ' "$room/cut")"
expect "not all orders were tried" 0 "$(grep -c 'over 8000 orders' "$room/cut")"
expect "and its script is written" 0 "$("$PIANOLA" check $(sed -nE 's/^-- pianola show //p' "$room/cut.lua") >/dev/null 2>&1; echo $?)"
finish
