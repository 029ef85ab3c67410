#!/usr/bin/env bash
# Checks pianola export-weights on good checkpoints and on hostile, truncated or altered ones. A refusal exits with 2
# and one line that names the file and the reason; an existing output stays.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'umount "$room/disk" 2>/dev/null; rm -rf "$room"' EXIT
tool=$(dirname "$PIANOLA")/checkpoints
good=$room/good ck=$room/ck out=$room/out
one=$ck/step-00000040/stage-0001.safetensors
"$tool" write "$good" 39 1 && "$tool" write "$good" 40 2 || exit 2

# exports WHAT STEP WANTED ARGS...: expects exit 0, this stdout, and all parameters of the step in $out.
exports() { # WHAT STEP WANTED ARGS...
    local got
    got=$("$PIANOLA" export-weights "${@:4}" 2>"$room/err")
    expect "$1: exit code and stdout" "0 $3" "$? $got"
    "$tool" check "$out" "$2"
    expect "$1: the parameters" 0 $?
}
exports "the newest checkpoint" 40 "$out: step 40, 6 tensors, 1768 bytes" "$good" -o "$out"
cp "$out" "$room/cut in 2"
exports "another step" 39 "$out: step 39, 6 tensors, 1768 bytes" "$good/" --step 39 --output "$out"
exports "figures" 40 "{\"schema\": 1, \"file\": \"$out\", \"step\": 40, \"tensors\": 6, \"bytes\": 1768}" "$good" --json -o "$out"
for stages in 1 3; do
    "$tool" write "$room/cut" 40 $stages
    exports "cut in $stages" 40 "$out: step 40, 6 tensors, 1768 bytes" "$room/cut" -o "$out"
    expect "cut in $stages: the same bytes" "" "$(cmp "$out" "$room/cut in 2" 2>&1)"
done
command=$(realpath "$PIANOLA")
expect "without -o" "weights.safetensors: step 40, 6 tensors, 1768 bytes" \
    "$(mkdir "$room/here" && cd "$room/here" && "$command" export-weights ../good && cmp weights.safetensors "$out")"
"$tool" write "$ck" 40 2 && "$tool" write "$ck" 50 2 && rm "$ck"/step-00000050/manifest.json
exports "with an incomplete newer checkpoint" 40 "$out: step 40, 6 tensors, 1768 bytes" "$ck" -o "$out"
expect "an incomplete newer checkpoint is named" "pianola: skipped a newer checkpoint: \
$ck/step-00000050/manifest.json: No such file or directory" "$(cat "$room/err")"

# ---- refusals ----

refuses() { # WHAT MESSAGE ARGS...
    local got files
    cp "$room/cut in 2" "$out"
    files=$(ls "$room" "$ck")
    got=$("$PIANOLA" export-weights "${@:3}" 2>&1 </dev/null)
    expect "$1" "2 pianola: error: $2" "$? $(sed 's/byte [0-9]* of the header/the header/' <<<"$got")"
    expect "$1: the output stays as it was" "" "$(cmp "$out" "$room/cut in 2" 2>&1)"
    expect "$1: no file is left" "$files" "$(ls "$room" "$ck")"
}
fresh() { rm -rf "$ck" && cp -R "$good" "$ck"; }
# damaged WHAT MESSAGE: refuses the checkpoint as it is. sealed: after giving it a manifest with the right checksums.
damaged() { refuses "$1" "$2" "$ck" -o "$out" --step 40; }
sealed() {
    "$tool" seal "$ck" 40 2
    damaged "$@"
}

fresh
printf x | dd of="$one" bs=1 seek=700 conv=notrunc status=none
damaged "a changed byte" "$one: does not match the checksum in the manifest"
fresh
sed -i 's/"seed": "0/"seed": "1/' "$ck/step-00000040/manifest.json"
damaged "a changed manifest" "$ck/step-00000040/manifest.json: does not match its own checksum"
fresh
sed -i -E 's/("hash": ")./\1g/' "$ck/step-00000040/manifest.json"
damaged "a wrong checksum in the manifest" "$ck/step-00000040/manifest.json: does not match its own checksum"
fresh
rm "$one"
damaged "no file of a stage" "$one: No such file or directory"
mkdir "$one"
damaged "a folder for a stage" "$one: is not a regular file"
rmdir "$one" && mkfifo "$one"
damaged "a pipe for a stage" "$one: is not a regular file"
fresh
size=$(stat -c %s "$one")
for at in 0 1 7 8 9 100 $((size / 2)) $((size - 1)); do
    fresh
    truncate -s "$at" "$one"
    damaged "cut off at byte $at" "$one: does not match the checksum in the manifest"
    "$tool" seal "$ck" 40 2
    got=$("$PIANOLA" export-weights "$ck" -o "$out" --step 40 2>&1)
    expect "cut off at byte $at and sealed: $got" "2 yes" \
        "$? $([[ $got == "pianola: error: $one: "* ]] && echo yes)"
done
for at in 0 31 32 100; do
    fresh
    truncate -s "$at" "$ck/step-00000040/manifest.json"
    got=$("$PIANOLA" export-weights "$ck" -o "$out" 2>&1)
    expect "a manifest cut off at byte $at: the previous checkpoint" "0 yes" \
        "$? $(grep -q 'step-00000040/manifest.json: .*step 39, ' <<<"$(tr -d '\n' <<<"$got")" && echo yes)"
done

# hostile WHAT MESSAGE HEADER BYTES [LENGTH]: a file with this header and data, under a manifest with the right
# checksums.
t='"dtype":"F32","shape":[2],"data_offsets":[0,8]'
meta='"__metadata__":{"format":"pianola 1","step":"40"}'
hostile() { # WHAT MESSAGE HEADER BYTES [LENGTH]
    "$tool" file "$one" "${@:3}"
    sealed "$1" "$one: $2"
}
fresh
hostile "a header longer than the file" "says its header has 5000 bytes, but the file is shorter" "{$meta}" 0 5000
hostile "a header beyond 100 MB" "says its header has 100000001 bytes, but at most 100000000 are allowed" "{$meta}" 0 100000001
hostile "a header of 2^64 - 1 bytes" "says its header has 18446744073709551615 bytes, but at most 100000000 are allowed" \
    "{$meta}" 0 18446744073709551615
hostile "overlapping tensors" "tensor b overlaps a" \
    "{$meta,\"a\":{$t},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}" 12
hostile "a hole" "4 bytes before tensor b belong to no tensor" \
    "{$meta,\"a\":{$t},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}" 20
hostile "bytes at the end" "3 bytes after the last tensor belong to no tensor" "{$meta,\"a\":{$t}}" 11
hostile "too few bytes" "the header: tensor a: data_offsets [0,8] are not within the 7 bytes of data" \
    "{$meta,\"a\":{$t}}" 7
hostile "another dtype" "the header: tensor a: dtype BF16; only F32 is read here" \
    "{$meta,\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]}}" 8
hostile "another shape" "the header: tensor a: its shape takes 12 bytes, its data_offsets 8" \
    "{$meta,\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}" 8
hostile "a shape beyond any file" "the header: tensor a: its shape is beyond any file" \
    "{$meta,\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}" 8
hostile "a tensor twice" "tensor a appears twice" \
    "{$meta,\"a\":{$t},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}" 16
hostile "a key twice" "the header: tensor a: dtype is unknown, or given twice" "{$meta,\"a\":{\"dtype\":\"F32\",$t}}" 8
hostile "metadata twice" "the header: __metadata__ appears twice" "{$meta,$meta,\"a\":{$t}}" 8
hostile "no JSON" "the header: expected {" "pianola" 0
hostile "another step's file" "is not of format pianola 1 and step 40" "{${meta/40/39},\"a\":{$t}}" 8
hostile "another format" "is not of format pianola 1 and step 40" "{\"a\":{$t}}" 8
# One tensor in two stages: each file is valid, but not both together.
fresh
cp "${one/0001/0000}" "$one"
"$tool" seal "$ck" 40 2
rm -f "$out"
got=$("$PIANOLA" export-weights "$ck" -o "$out" 2>&1)
expect "a tensor in two stages" "2 yes" "$? $(grep -q '^pianola: error: .*has layer\.0\.[a-z]*, which .* also has' <<<"$got" && echo yes)"
expect "a tensor in two stages: no file is written" "" "$(ls "$out" 2>/dev/null)"

# ---- arguments, and places that cannot be written ----

fresh
refuses "no such folder" "$room/none: No such file or directory" "$room/none" -o "$out"
refuses "a folder without checkpoints" "$room/here: holds no checkpoint" "$room/here" -o "$out"
refuses "a file" "$out: Not a directory" "$out" -o "$out"
refuses "no such step" "$ck/step-00000041/manifest.json: No such file or directory" "$ck" --step 41 -o "$out"
refuses "one checkpoint" "$ck/step-00000040: is a single checkpoint; give the folder that holds it, and --step" \
    "$ck/step-00000040" -o "$out"
refuses "stdout" "-o -: weights are written completely or not at all, which stdout cannot guarantee; name a file" "$ck" -o -
mkfifo "$room/pipe"
refuses "an output that is a pipe" "$room/pipe: is not a regular file" "$ck" -o "$room/pipe"
refuses "an output that is a folder" "$room/here: is not a regular file" "$ck" -o "$room/here"
refuses "an output in no folder" "$room/none/out.tmp: No such file or directory" "$ck" -o "$room/none/out"
refuses "a checkpoint's own file as output" "$one: is inside a checkpoint's folder; write it elsewhere" "$ck" -o "$one"
refuses "no folder" "\`export-weights\` needs a folder of checkpoints; see \`pianola help export-weights\`"
refuses "two folders" "\`export-weights\` takes one folder, but got 'b' too" "$ck" b
refuses "a step that is no number" "--step x: expected a whole number of at least 0" "$ck" --step x
refuses "an option of other commands" \
    "\`export-weights\` takes no --data; see \`pianola help export-weights\`" "$ck" --data x
if [ "$(id -u)" != 0 ]; then
    mkdir "$room/locked" && chmod 500 "$room/locked"
    refuses "a locked folder" "$room/locked/out.tmp: Permission denied" "$ck" -o "$room/locked/out"
fi

# A full disk: a file system of 8 kB where one can be made, and a file size limit, which any user can set.
"$tool" write "$ck" 41 1
mkdir "$room/disk"
if mount -t tmpfs -o size=8k none "$room/disk" 2>/dev/null; then
    head -c 4096 /dev/zero >"$room/disk/full" && head -c 4096 /dev/zero >>"$room/disk/full"
    refuses "a full disk" "$room/disk/out: No space left on device" "$ck" -o "$room/disk/out"
    expect "a full disk: no file is left" full "$(ls "$room/disk")"
    umount "$room/disk"
else
    echo "a full disk: not tried, no file system can be mounted here"
fi
trap '' XFSZ
got=$(ulimit -f 1 && "$PIANOLA" export-weights "$ck" -o "$room/large" 2>&1)
expect "a limit on the size of files" "2 pianola: error: $room/large: File too large" "$? $got"
expect "a limit on the size of files: no file is left" "" "$(ls "$room" | grep large)"
finish
