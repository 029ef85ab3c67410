#!/usr/bin/env bash
# Checks schedules/pianola.d.lua, which describes for editors what scripts can use, against what the compiler offers.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
meta=schedules/pianola.d.lua

# Prints both sides as lines `name` and `table.field`. Lua's own functions come with Lua.
own='_VERSION assert error getmetatable ipairs next pairs pcall print rawequal rawget rawlen rawset select setmetatable
tonumber tostring type xpcall'
"$PIANOLA" help scripts >"$room/help"
expect "help scripts" 0 $?
awk '/^Fields of/ { table = $3; sub(/:/, ".", table) } /:$/ && !/^Fields/ { table = "" }
    /^  / { for (i = 1; i <= NF; i++) if (table != "" || $i !~ /\./) print table $i }' "$room/help" |
    grep -vxF "$(tr ' ' '\n' <<<"$own")" | LC_ALL=C sort >"$room/registered"
awk '/^---@class pianola\./ { table = $2; sub(/^pianola\./, "", table); sub(/:$/, "", table) }
    /^---@field / { sub(/\?$/, "", $2); print table "." $2 }
    /^function / { sub(/\(.*/, "", $2); print $2 }' $meta | LC_ALL=C sort >"$room/described"
expect "names that only one side has (< the compiler, > $meta)" "" "$(diff "$room/registered" "$room/described")"
expect "the lists are not empty" yes "$([ "$(wc -l <"$room/registered")" -ge 60 ] && echo yes)"
expect "the file's first line" "---@meta pianola" "$(head -n 1 $meta)"

# Every described table has a class, and every class describes a table.
expect "types that are not described" "" \
    "$(grep -o 'pianola\.[a-z]*' $meta | sort -u | grep -v '\.d$' | while read -r type; do
        grep -q "^---@\(class\|alias\) $type\b" $meta || echo "$type"
    done)"

# Exactly the fields marked optional (?) may be left out.
says() { "$PIANOLA" check "$room/s.lua" ${1:+--model "$1"} 2>&1 | head -n 1 | grep -o "$table needs the field '[a-z]*'"; }
fields_of() { awk -v table="$1" '/^---@class/ { on = $2 == "pianola." table } on && /^---@field/ { print $2 }' $meta; }
echo 'return schedule { workers = 1, stages = 1, batches = 1, w = function() return 0, 0 end }' >"$room/s.lua"
for table in tokens integers embedding linear attention sgd adamw; do
    needed=$(fields_of "$table" | grep -v '?')
    for without in $needed none; do
        expect "$table has required fields" yes "$([ -n "$needed" ] && echo yes)"
        echo "local part = $table { $(for f in $needed; do [ "$f" = "$without" ] || echo "$f = 1,"; done) } return model {}" >"$room/m.lua"
        expect "$table without $without" "$([ "$without" = none ] || echo "$table needs the field '$without'")" "$(says "$room/m.lua")"
    done
done
table=schedule
for without in $(fields_of schedule | grep -v '?'); do
    echo "return schedule { $(for f in workers stages batches; do [ "$f" = "$without" ] || echo "$f = 1,"; done) }" >"$room/s.lua"
    expect "schedule without $without" "schedule needs the field '$without'" "$(says)"
done

# The file is valid Lua, though it never runs.
cp $meta "$room/meta.lua"
expect "it is valid Lua: it fails only at run time" "'params' is built in" "$("$PIANOLA" check "$room/meta.lua" 2>&1 | grep -o "'params' is built in")"
expect "given as a schedule" "2 pianola: error: $meta tells editors what scripts can use; it is not a script" \
    "$(got=$("$PIANOLA" check $meta 2>&1) || echo "$? $got")"
expect "show --list leaves it out" "" "$("$PIANOLA" show --list | grep '\.d\.lua')"
expect "compare reports it among the files of schedules/*.lua" "  pianola.d  $meta tells editors what scripts can use; it is not a script" \
    "$("$PIANOLA" compare schedules/1f1b.lua $meta schedules/gpipe.lua 2>&1 | grep pianola.d)"
finish
