#!/usr/bin/env bash
# Checks files from other systems, and terminals. A byte order mark and \r\n in any text do not change line numbers and
# carets. A locale that is not UTF-8 gets ASCII. pred and --recompute work together.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
S=schedules/1f1b.lua A=generated/1f1b

# foreign FILE NAME: prints it as a Windows editor would save it.
foreign() { { printf '\xef\xbb\xbf'; sed 's/$/\r/' "$1"; } >"$room/$2"; }
# same WHAT A B: compares the output of two commands, apart from the file's folder.
same() { expect "$1" "$(eval "$2" 2>&1)" "$(eval "$3" 2>&1 | sed "s|$room|.|g")"; }

mkdir "$room/plain"
cp $S "$room/plain/1f1b.lua"
foreign $S 1f1b.lua
foreign schedules/models/gpt.lua gpt.lua
foreign schedules/clusters/latency.lua latency.lua
foreign $A/streams.txt streams.txt
foreign $A/timeline.tsv timeline.tsv
"$PIANOLA" show $S --format torch-csv >"$room/plain/1f1b.csv"
foreign "$room/plain/1f1b.csv" 1f1b.csv

same "a schedule, a model and a cluster" \
    "'$PIANOLA' show --json $S --model schedules/models/gpt.lua --cluster schedules/clusters/latency.lua" \
    "'$PIANOLA' show --json '$room/1f1b.lua' --model '$room/gpt.lua' --cluster '$room/latency.lua'"
same "streams" "'$PIANOLA' verify $A/streams.txt | sed 's|$A|.|'" "'$PIANOLA' verify '$room/streams.txt'"
expect "streams, a timeline" "identical identical" "$(for f in streams.txt timeline.tsv; do
    "$PIANOLA" diff $A/$f "$room/$f" >"$room/out" 2>&1 && echo identical || head -n 3 "$room/out"; done | paste -sd' ')"
same "a CSV of PyTorch's" "'$PIANOLA' show '$room/plain/1f1b.csv' --format streams" \
    "'$PIANOLA' show '$room/1f1b.csv' --format streams"

# Errors point to the same place.
printf 'local x = 1\nreturn schedule { wrokers = 4 }\n' >"$room/wrong.txt"
foreign "$room/wrong.txt" wrong.lua
expect "a script's line and caret" "./wrong.lua:2: error: schedule has no field 'wrokers'; did you mean 'workers'?
    2 | return schedule { wrokers = 4 }
      |                   ^" "$("$PIANOLA" check "$room/wrong.lua" 2>&1 | sed "s|$room|.|")"
printf 'x y\n' >"$room/first.txt"
foreign "$room/first.txt" first.lua
expect "a caret in the first line" "      |   ^" "$("$PIANOLA" check "$room/first.lua" 2>&1 | sed -n 3p)"
sed '3s/ lane / line /' $A/streams.txt >"$room/wrong.txt"
foreign "$room/wrong.txt" streams.txt
expect "a program's line and caret" "$("$PIANOLA" verify "$room/wrong.txt" 2>&1 | sed "s|$room/wrong.txt||")" \
    "$("$PIANOLA" verify "$room/streams.txt" 2>&1 | sed "s|$room/streams.txt||")"

# The locale decides about drawings and error messages: the first of LC_ALL, LC_CTYPE and LANG that is set.
drawn() { env -u LC_ALL -u LC_CTYPE -u LANG "$@" "$PIANOLA" show $S --width 120 2>&1 | LC_ALL=C grep -c '[^ -~]' | sed 's/[1-9][0-9]*/beyond/;s/^0/ASCII/'; }
expect "no locale" ASCII "$(drawn)"
expect "LC_ALL=C" ASCII "$(drawn LC_ALL=C LANG=en_US.UTF-8)"
expect "LC_ALL empty, LC_CTYPE POSIX" ASCII "$(drawn LC_ALL= LC_CTYPE=POSIX LANG=en_US.UTF-8)"
expect "LANG=de_DE.ISO-8859-1" ASCII "$(drawn LANG=de_DE.ISO-8859-1)"
expect "LANG=en_US.UTF-8" beyond "$(drawn LANG=en_US.UTF-8)"
expect "LC_CTYPE=C.utf8" beyond "$(drawn LC_CTYPE=C.utf8 LANG=C)"
expect "a locale without UTF-8 draws as --ascii does" "$("$PIANOLA" show --ascii $S)" "$(LC_ALL=C "$PIANOLA" show $S)"

# pred with the script's recompute, with --recompute, and without: the default dependencies written out.
cat >"$room/pred.lua" <<'LUA'
local p = params { again = false }
return schedule {
  workers = 2, stages = 2, batches = 3, w = function(s, b, d) return s, s end, n = backward_first, recompute = p.again,
  pred = function(s, b, d)
    if d == "F" then return s > 0 and { { s - 1, b, "F" } } or {} end
    if d == "R" then assert(p.again, "asked about an R that the script does not know") return {} end
    local list = { { s, b, "F" } }
    if s < 1 then list[2] = { s + 1, b, "B" } end
    return list
  end,
}
LUA
plain() { figure makespan schedules/gpipe.lua -D workers=2 -D batches=3 "$@"; }
expect "pred" "$(plain)" "$(figure makespan "$room/pred.lua")"
expect "pred, --recompute" "$(plain --recompute)" "$(figure makespan "$room/pred.lua" --recompute)"
expect "pred, recompute" "$(plain --recompute)" "$(figure makespan "$room/pred.lua" -D again=true)"
expect "pred, both" "$(plain --recompute)" "$(figure makespan "$room/pred.lua" -D again=true --recompute)"
expect "pred with recompute is proved" 0 "$("$PIANOLA" check "$room/pred.lua" --recompute >/dev/null 2>&1; echo $?)"
# A Git LFS pointer, which a clone has instead of a large file, is not text, weights or a tokenizer.
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n' >"$room/pointer"
pointer() { expect "a pointer as $1" "pianola: error: $room/$2: is a Git LFS pointer, not the file: fetch the file with \`git lfs pull\`, or download it" \
    "$("$PIANOLA" "${@:3}" 2>&1 >"$room/stdout" | grep error)"; }
for name in model.safetensors model.gguf model.safetensors.index.json tokenizer.json tokenizer.gguf book.txt schedule.lua; do cp "$room/pointer" "$room/$name"; done
llama=(--model schedules/models/llama.lua -D layers=2 --steps 1)
pointer "data" book.txt run $S "${llama[@]}" --data "$room/book.txt"
for name in model.safetensors model.gguf model.safetensors.index.json; do
    pointer "weights, $name" $name run $S "${llama[@]}" --weights "$room/$name"
done
pointer "a tokenizer" tokenizer.json tokenize README.md --tokenizer "$room/tokenizer.json" -o "$room/tokens"
pointer "a tokenizer in GGUF" tokenizer.gguf tokenize README.md --tokenizer "$room/tokenizer.gguf" -o "$room/tokens"
pointer "a schedule" schedule.lua check "$room/schedule.lua"
mkdir "$room/shards"
echo '{"weight_map": {"a": "part.safetensors"}}' >"$room/shards/model.safetensors.index.json"
cp "$room/pointer" "$room/shards/part.safetensors"
pointer "a part of weights" shards/part.safetensors run $S "${llama[@]}" --weights "$room/shards/model.safetensors.index.json"
finish
