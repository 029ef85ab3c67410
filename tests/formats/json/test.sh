#!/usr/bin/env bash
# Checks the --json output of commands, and every error, against compiler/formats/schema.json. tests/language/bad has
# more errors; tests/models/generate checks generate and tokenize with the files it makes.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
gpt="--model schedules/models/gpt.lua" nodes="--cluster schedules/clusters/nodes.lua" small="-D workers=2 -D batches=3"

# prints NAME STATUS COMMAND...: expects STATUS; at the end of the test, checks the JSON against NAME in the schema.
printed=()
prints() {
    local json=$room/${#printed[@]}.json status
    timeout 100 "$PIANOLA" "${@:3}" --json >"$json" 2>"$room/errors"
    status=$?
    expect "${*:3}: exit status" "$2" "$status"
    printed+=("$1" "$json")
}

# A rank's own program also prints its errors as JSON.
"$PIANOLA" compile schedules/gpipe.lua --model schedules/models/integers.lua -o "$room/ranks" &&
    make -s -C "$room/ranks" PKG_CONFIG_PATH="$(dirname "$(realpath "$PIANOLA")")" rank0
rank_prints() { # STATUS ARGS...
    local json=$room/${#printed[@]}.json
    RANK=0 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 timeout 60 "$room/ranks/rank" "${@:2}" --json >"$json" 2>"$room/errors"
    expect "rank ${*:2}: exit status" "$1" $?
    printed+=(error "$json")
}
rank_prints 2 --steps x
rank_prints 1 --deadline 1 --flight "$room"

expect "the schema is a valid JSON schema" "" "$(/usr/bin/python3 -c '
import json
from jsonschema import Draft202012Validator
Draft202012Validator.check_schema(json.load(open("compiler/formats/schema.json")))' 2>&1)"
"$PIANOLA" verify generated/1f1b/streams.txt --json | sed 's/"proved"/"new": 1, &/' >"$room/more"
expect "a field that the schema does not name is wrong" 1 "$(/usr/bin/python3 tests/formats/json/valid.py verify "$room/more" | grep -c "'new' was unexpected")"
"$PIANOLA" verify generated/1f1b/streams.txt --json | sed 's/"proved": true, //' >"$room/less"
expect "a missing field is wrong" 1 "$(/usr/bin/python3 tests/formats/json/valid.py verify "$room/less" | grep -c "'proved' is a required property")"

# shellcheck disable=SC2086
{
    for schedule in 1f1b fsdp zbv pipedream tp 1f1b_offload weipipe asp dp_tp_pp seq1f1b; do
        prints report 0 show schedules/$schedule.lua
        prints report 0 show schedules/$schedule.lua $gpt $nodes --jitter 5% --runs 10
    done
    prints report 0 show schedules/fsdp.lua $gpt $nodes --recompute
    prints check 0 check schedules/1f1b.lua
    prints check 0 check schedules/1f1b.lua $gpt
    prints verify 0 verify generated/1f1b/streams.txt
    sed 's/ wait(SEND_F 0 4 to 1)//' generated/1f1b/streams.txt >"$room/race.txt"
    prints verify 1 verify "$room/race.txt"
    prints compare 0 compare schedules/gpipe.lua schedules/1f1b.lua schedules/pipedream.lua --jitter 10%
    prints compare 0 compare schedules/gpipe.lua schedules/fsdp.lua schedules/apart.lua $gpt $nodes
    prints run 0 run schedules/1f1b.lua --model schedules/models/integers.lua --steps 3 --compare
    prints run 0 run schedules/1f1b.lua $gpt --steps 12 --timeline "$room/measured.tsv" --checkpoint "$room/kept" --every 6
    prints run 0 run schedules/1f1b.lua $gpt --steps 14 --checkpoint "$room/kept" --resume -D clip=1 --new-data
    prints run 0 run schedules/1f1b.lua $gpt --steps 0
    prints run 0 run schedules/1f1b.lua $gpt --steps 2 --data README.md --val README.md
    prints error 2 run schedules/1f1b.lua $gpt --steps 12 --checkpoint "$room/kept"
    prints error 1 run schedules/1f1b.lua $gpt --steps 12 --deadline 0.000001 --flight "$room"
    expect "where a rank waited" 1 "$(grep -c '"message": "rank [0-3] \(waits\|is\) .*(--deadline)"' "${printed[-1]}")"
    printf 'a "quoted" \\ name\377\t' >"$room/name"
    odd=$room/$(cat "$room/name") # a name that needs escapes and is not UTF-8
    touch "$odd"
    prints error 2 run schedules/1f1b.lua $gpt --steps 12 --checkpoint "$odd"
    expect "escaped" 1 "$(grep -cF 'a \"quoted\" \\ name\ufffd\u0009: is no folder' "${printed[-1]}")"
    prints export-weights 0 export-weights "$room/kept" -o "$room/weights.safetensors"
    prints report 0 show schedules/1f1b.lua $gpt --measured "$room/measured.tsv"
    prints diff 0 diff schedules/1f1b.lua schedules/1f1b.lua
    prints diff 1 diff schedules/1f1b.lua schedules/zb_h1.lua
    prints diff 1 diff schedules/pipedream.lua schedules/pipedream_2bw.lua
    prints diff 1 diff schedules/1f1b.lua schedules/weipipe.lua
    prints diff 1 diff generated/1f1b generated/gpipe
    prints diff 1 diff schedules/1f1b.lua $gpt "$room/measured.tsv"
    prints optimal 0 optimal schedules/zbv.lua $small -o "$room/best.lua"
    prints optimal 0 optimal schedules/zbv.lua $small --jitter 10% --runs 20
    prints optimal 0 optimal schedules/zb_h1.lua $small --objective span -o "$room/span.lua"
    prints optimal 0 optimal schedules/zb_h1.lua $small --objective period
    prints frontier 0 frontier schedules/1f1b.lua $small -o "$room/points"
    prints frontier 0 frontier schedules/gpipe.lua $small $gpt --bytes
    prints check-bound 0 check-bound "$room/points/cap_1.bound"
    prints check-bound 1 check-bound "$room/points/cap_1.bound" schedules/gpipe.lua $small
    prints tune 0 tune $gpt $nodes --workers 4 --rows 16
    prints tune 0 tune schedules/1f1b.lua $gpt $nodes --workers 4 --rows 16 --jitter 10%
    prints partition 0 partition --profile tests/search/partition/vgg16.txt --workers 4 --bandwidth 1e9
    prints profile 0 profile $gpt
    prints check-unit 0 check-unit schedules/models/gated_mlp.lua
}

# Errors of a script, its sequence, the command line, a file, and a rank that trains.
prints error 2 check schedules/1f1b.lua --stepz 3
prints error 2 show "$room/nothing.lua"
prints error 2 verify README.md
prints error 2 run schedules/1f1b.lua
expect "all of this JSON fits the schema" "" "$(/usr/bin/python3 tests/formats/json/valid.py "${printed[@]}" 2>&1 | head -n 20)"

expect "compiler/formats/json.md, word for word" "" "$(python3 tests/language/tutorial/replay.py compiler/formats/json.md "$PIANOLA" 2>&1)"
"$PIANOLA" check tests/language/bad/cap_deadlock.lua --json >"$room/json" 2>/dev/null
expect "a deadlock: its cycle, with a line for each job" "0B0 waits for 1B0|1B0 waits for 1F0|1F0 waits for room on rank 0, whose cap of 1 is full until 0B0" \
    "$(/usr/bin/python3 -c 'import json, sys; print("|".join(json.load(open(sys.argv[1]))["error"]["because"]))' "$room/json")"
printf 'return schedule {\n  workers = 2, stages = 2, batchez = 2,\n}\n' >"$room/slip.lua"
"$PIANOLA" check "$room/slip.lua" --json >"$room/json" 2>/dev/null
expect "a misspelling: its place, and the suggestion" "2 28 batches" "$(/usr/bin/python3 -c '
import json, sys
e = json.load(open(sys.argv[1]))["error"]
print(e["line"], e["column"], e.get("suggestion"))' "$room/json")"
finish
