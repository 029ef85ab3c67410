#!/usr/bin/env bash
# Checkpoints of sharded stages: the files are those of whole ones, so a run goes on under another schedule, with other
# shards or none, to the bits of a run that never stopped.
cd "$(dirname "$0")/../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
data=(--data /usr/share/common-licenses/GPL-3)

# leg HOW NAME RANKS STEPS: goes on, over tcp or mpi, to so many steps.
leg() {
    $1 "$2" "$3" "${data[@]}" --steps "$4" --checkpoint "$saved" --every 100 --resume --deadline 60
    ended 90
}
# unbroken SCHEDULE STEPS ARGS...: the weights of a run in one process that never stops.
unbroken() {
    "$PIANOLA" run "schedules/$1.lua" "${@:3}" "${data[@]}" --steps "$2" 2>/dev/null |
        sed -n 's/^weights *\([0-9a-f]*\).*/\1/p'
}

# Three ranks, which all add gradients in the same order; three do not divide the stages' weights, and AdamW has moments.
three=(--model schedules/models/gpt.lua -D workers=3 -D batches=6 -D width=16 -D layers=2)
ten=$(unbroken ddp 10 "${three[@]}")
for schedule in ddp fsdp zero1 zero2; do
    compiled $schedule $schedule "${three[@]}"
    expect "$schedule: the weights of ddp" "$ten" "$(unbroken $schedule 10 "${three[@]}")"
done
steps=0
for schedule in ddp fsdp zero1 zero2 ddp; do
    steps=$((steps + 2))
    leg "$([ $((steps % 4)) = 0 ] && echo mpi || echo tcp)" $schedule 3 $steps
    expect "$schedule ends well" "" "$(said 'error:')"
    expect "$schedule goes on" "$([ $steps = 2 ] || echo "resumed   from step $((steps - 2))")" \
        "$(sed -n '/^resumed/p' "$room/out0")"
done
expect "ddp, fsdp, zero1, zero2 and ddp again, two steps each: the weights of ten of one" "$ten" "$(weights)"

# Two replicas of each stage, in two shards of two pieces; and a pipeline without any.
rm -r "$saved"
data=()
integers=(--model schedules/models/integers.lua)
compiled hsdp hsdp "${integers[@]}" -D workers=4 -D group=2 -D zero=1
compiled pipeline 1f1b "${integers[@]}"
leg tcp hsdp 4 2
leg mpi pipeline 4 3
leg tcp hsdp 4 4
expect "hsdp, 1f1b and hsdp again: the weights of four steps of one" "$(unbroken 1f1b 4 "${integers[@]}")" "$(weights)"
# The place in the data is a number of sequences: with twice the microbatches a run goes on where it stopped, under another
# schedule too; with other data, or sequences of another length, only where that is asked for, and from its beginning.
rm -r "$saved"
still=(--model schedules/models/llama.lua -D layers=2 -D width=16 -D heads=2 -D kv_heads=1 -D inner=16 -D vocab=256 -D rows=2 -D lr=1e-30)
compiled four 1f1b "${still[@]}" -D context=16 -D workers=2 -D batches=4
compiled eight zbv "${still[@]}" -D context=16 -D workers=2 -D batches=8
compiled longer 1f1b "${still[@]}" -D context=32 -D workers=2 -D batches=4
data=(--data /usr/share/common-licenses/GPL-3)
lost() { sed -n "$1p" "$room/losses" | cut -f3; }
# on NAME STEPS FLAGS...: goes on with it; losses to a file of that name
on() { rm -f "$room/losses"; tcp "$1" 2 --steps "$2" --losses "$room/losses" "${@:3}"; ended 60; }
on eight 12 "${data[@]}"
wanted=$(lost 7)
on four 10 "${data[@]}" --checkpoint "$saved"
on eight 12 "${data[@]}" --checkpoint "$saved" --resume
expect "80 sequences of 8, then steps of 16: the sixth of those" "$wanted" "$(lost 2)"
expect "the manifest has the place" '"sequences": 112, "context": 16,' "$(grep -E 'sequences|context' "$saved"/step-00000012/manifest.json | xargs -d'\n' echo | tr -s ' ' | sed 's/^ //')"
on four 14 "${data[@]}" --checkpoint "$saved" --resume
on four 17 "${data[@]}" --checkpoint "$saved" --resume
on eight 18 "${data[@]}" --checkpoint "$saved" --resume
expect "there and back" 168 "$(sed -nE 's/.*"sequences": (.*),/\1/p' "$saved"/step-00000018/manifest.json)"
on longer 20 "${data[@]}" --checkpoint "$saved" --resume
expect "longer sequences" "pianola: error: $saved: is of a run on sequences of 16 tokens, not 32: which of them it has read is not known; --new-data \
begins with the first of the data" "$(said error:)"
other=(--data /usr/share/common-licenses/GPL-2)
on four 1 "${other[@]}"
wanted=$(lost 2)
on four 20 "${other[@]}" --checkpoint "$saved" --resume
expect "other data" "1" "$(said error: | grep -c 'is of a run on other data: .*; --new-data goes on with this data, from its beginning')"
on four 20 "${other[@]}" --checkpoint "$saved" --resume --new-data
expect "other data, wanted: its beginning" "$wanted pianola: from step 19 on the data is another: it begins with its first sequence" "$(lost 2) $(said 'from step')"
expect "and its place" 16 "$(sed -nE 's/.*"sequences": (.*),/\1/p' "$saved"/step-00000020/manifest.json)"
# A manifest of a version that did not write it; its checksum is FNV-1a's.
python3 - "$saved/step-00000020/manifest.json" <<'PY'
import re, sys
text = re.sub(rb'  "(sequences|context)".*\n', b'', open(sys.argv[1], 'rb').read())
text, hash = text[:text.index(b'  "check"')], 14695981039346656037
for byte in text:
    hash = (hash ^ byte) * 1099511628211 % 2 ** 64
open(sys.argv[1], 'wb').write(text + b'  "check": "%016x"\n}\n' % hash)
PY
on four 21 "${other[@]}" --checkpoint "$saved" --resume
expect "an older manifest" "0 0 pianola: warning: $saved does not say how many sequences it has read: 160, if each of its steps read 8 as those of this run" \
    "$codes $(said warning:)"

# A learning rate whose schedule has ended is said.
rates() { "$PIANOLA" run schedules/serial.lua "${still[@]}" -D context=16 -D lr=0.01 -D schedule=cosine -D steps=4 --steps "$1" "${@:2}" 2>&1 | sed -n 's/pianola: warning: the/the/p'; }
expect "past the schedule's end" "the learning rate is 0 from step 5 to 6: its schedule ends with update 4; give it more (-D steps=6), or a rate to end at \
(-D final=0.1)" "$(rates 6)"
expect "not past it" "" "$(rates 4)$(rates 6 -D final=0.1)"
finish
