#!/usr/bin/env bash
# Checkpoints of sharded stages have the files of whole ones. So a run can resume under another schedule, with other
# shards or none, to the bits of a run that never stopped.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
data=(--data /usr/share/common-licenses/GPL-3)

# leg HOW NAME RANKS STEPS: resumes over tcp or mpi, up to step STEPS.
leg() {
    $1 "$2" "$3" "${data[@]}" --steps "$4" --checkpoint "$saved" --every 100 --resume --deadline 60
    ended 90
}
# unbroken SCHEDULE STEPS ARGS...: prints the weights of an uninterrupted run in one process.
unbroken() {
    "$PIANOLA" run "schedules/$1.lua" "${@:3}" "${data[@]}" --steps "$2" 2>/dev/null |
        sed -n 's/^weights *\([0-9a-f]*\).*/\1/p'
}

# Three ranks, which all add gradients in the same order. Three does not divide the stages' weights, and AdamW has
# moments.
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
    expect "$schedule: exit codes" "" "$(said 'error:')"
    expect "$schedule resumes" "$([ $steps = 2 ] || echo "resumed   from step $((steps - 2))")" \
        "$(sed -n '/^resumed/p' "$room/out0")"
done
expect "ddp, fsdp, zero1, zero2 and ddp again, two steps each: the weights of ten steps of one schedule" \
    "$ten" "$(weights)"

# Two replicas of each stage, in two shards of two pieces, and a pipeline without either.
rm -r "$saved"
data=()
integers=(--model schedules/models/integers.lua)
compiled hsdp hsdp "${integers[@]}" -D workers=4 -D group=2 -D zero=1
compiled pipeline 1f1b "${integers[@]}"
leg tcp hsdp 4 2
leg mpi pipeline 4 3
leg tcp hsdp 4 4
expect "hsdp, 1f1b and hsdp again: the weights of four steps of one schedule" \
    "$(unbroken 1f1b 4 "${integers[@]}")" "$(weights)"
# The data position counts sequences. With twice the microbatches, or under another schedule, a run resumes where it
# stopped. With other data or another sequence length, it resumes only on request, from the data's beginning.
rm -r "$saved"
still=(--model schedules/models/llama.lua -D layers=2 -D width=16 -D heads=2 -D kv_heads=1 -D inner=16 -D vocab=256 -D rows=2 -D lr=1e-30)
compiled four 1f1b "${still[@]}" -D context=16 -D workers=2 -D batches=4
compiled eight zbv "${still[@]}" -D context=16 -D workers=2 -D batches=8
compiled longer 1f1b "${still[@]}" -D context=32 -D workers=2 -D batches=4
data=(--data /usr/share/common-licenses/GPL-3)
lost() { sed -n "$1p" "$room/losses" | cut -f3; }
# on NAME STEPS FLAGS...: resumes with it; writes losses to a file of that name
on() { rm -f "$room/losses"; tcp "$1" 2 --steps "$2" --losses "$room/losses" "${@:3}"; ended 60; }
on eight 12 "${data[@]}"
wanted=$(lost 7)
on four 10 "${data[@]}" --checkpoint "$saved"
on eight 12 "${data[@]}" --checkpoint "$saved" --resume
expect "80 sequences in steps of 8, then steps of 16: it resumes at the sixth of these" "$wanted" "$(lost 2)"
expect "the manifest has the data position" '"sequences": 112, "context": 16,' "$(grep -E 'sequences|context' "$saved"/step-00000012/manifest.json | xargs -d'\n' echo | tr -s ' ' | sed 's/^ //')"
on four 14 "${data[@]}" --checkpoint "$saved" --resume
on four 17 "${data[@]}" --checkpoint "$saved" --resume
on eight 18 "${data[@]}" --checkpoint "$saved" --resume
expect "other microbatches, and back" \
    168 "$(sed -nE 's/.*"sequences": (.*),/\1/p' "$saved"/step-00000018/manifest.json)"
on longer 20 "${data[@]}" --checkpoint "$saved" --resume
expect "longer sequences" "pianola: error: $saved: belongs to a run on sequences of 16 tokens, not 32, so it is unknown which ones it has read; --new-data \
begins with the data's first sequence" "$(said error:)"
other=(--data /usr/share/common-licenses/GPL-2)
on four 1 "${other[@]}"
wanted=$(lost 2)
on four 20 "${other[@]}" --checkpoint "$saved" --resume
expect "other data" "1" "$(said error: | grep -c 'belongs to a run on other data: .*; --new-data continues with this data, from its beginning')"
on four 20 "${other[@]}" --checkpoint "$saved" --resume --new-data
expect "other data with --new-data: from its beginning" "$wanted pianola: from step 19 on, the data is different: it begins with its first sequence" "$(lost 2) $(said 'from step')"
expect "other data: the position in the manifest" \
    16 "$(sed -nE 's/.*"sequences": (.*),/\1/p' "$saved"/step-00000020/manifest.json)"
# A manifest of an older version, which recorded no number of sequences. The checksum is FNV-1a.
python3 - "$saved/step-00000020/manifest.json" <<'PY'
import re, sys
text = re.sub(rb'  "(sequences|context)".*\n', b'', open(sys.argv[1], 'rb').read())
text, hash = text[:text.index(b'  "check"')], 14695981039346656037
for byte in text:
    hash = (hash ^ byte) * 1099511628211 % 2 ** 64
open(sys.argv[1], 'wb').write(text + b'  "check": "%016x"\n}\n' % hash)
PY
on four 21 "${other[@]}" --checkpoint "$saved" --resume
expect "an older manifest" "0 0 pianola: warning: $saved does not say how many sequences it has read: assuming 160, since each step of this run reads 8" \
    "$codes $(said warning:)"

# All ranks in one process: exchanges checkpoints with processes, with teams, shards and periods, and on the CUDA
# stand-in.
rm -r "$saved"
one=(--model schedules/models/gpt.lua -D layers=4 -D width=16 -D heads=2 -D context=16 -D rows=2 -D batches=8 -D schedule=cosine "${data[@]}")
in_one() { PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so train "$@" --checkpoint "$saved" --every 2; }
for schedule in "1f1b -D workers=2" "fsdp -D workers=3" "zero1 -D workers=3" "tp_zbv" "pipedream" "1f1b -D workers=2 -D clip=0.5 -D post_validation=true"; do
    # shellcheck disable=SC2086
    for on in host cuda; do
        here=(schedules/${schedule%% *}.lua ${schedule#"${schedule%% *}"} "${one[@]}" --device $on)
        got=$(PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so train "${here[@]}" --steps 7 | field weights)
        in_one "${here[@]}" --steps 7 >/dev/null
        rm -r "$saved"/step-00000007 "$saved"/step-00000006
        expect "$schedule on $on: resumes" "4 ${got:-none}" "$(in_one "${here[@]}" --steps 7 --resume | sed -nE 's/^  "(resumed_from|weights)": "?([^,"]*).*/\2/p' | paste -sd' ')"
        rm -r "$saved"
    done
done
compiled two zbv "${one[@]:0:16}" -D workers=2
in_one schedules/1f1b.lua "${one[@]}" -D workers=2 --steps 3 --metrics "$room/in_one" >/dev/null
tcp two 2 "${data[@]}" --checkpoint "$saved" --every 2 --steps 6 --resume
ended 60
in_one schedules/fsdp.lua "${one[@]}" -D workers=3 --steps 8 --resume >/dev/null
in_one schedules/1f1b.lua "${one[@]}" -D workers=2 --steps 9 --resume --device cuda >/dev/null
tcp two 2 "${data[@]}" --checkpoint "$saved" --steps 9 --resume
ended 60
expect "one process, processes, shards, a GPU and processes: the steps of the first run's schedule" 3 "$(sed -nE 's/.*"steps": (.*),/\1/p' "$saved/step-00000009/manifest.json")"
expect "a new run over old checkpoints is refused" 1 "$(in_one schedules/1f1b.lua "${one[@]}" --steps 9 >/dev/null; grep -c 'already holds checkpoints: ' "$room/stderr")"
expect "a finished run does not resume" 1 "$(in_one schedules/1f1b.lua "${one[@]}" --steps 9 --resume >/dev/null; grep -c 'has already reached step 9' "$room/stderr")"

# The loss of a checkpoint on a file, under any schedule, and of the initial weights.
text=/usr/share/common-licenses/GPL-2
loss() { train "$@" --steps 0 --val $text | sed -nE 's/^  "validation_loss": ([0-9.]{6}).*/\1/p;s/^  "sequences": //p' | paste -sd' '; }
wanted=$(loss schedules/serial.lua "${one[@]}" --checkpoint "$saved" --resume)
for schedule in "1f1b -D workers=4" "fsdp -D workers=3" "seq1f1b -D workers=2" "1f1b -D workers=2 --device cuda" "serial -D batches=1 -D rows=7"; do
    # shellcheck disable=SC2086
    expect "the loss of a checkpoint, $schedule" "$wanted" "$(PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so \
        loss schedules/${schedule%% *}.lua "${one[@]}" ${schedule#"${schedule%% *}"} --checkpoint "$saved" --resume)"
done
train schedules/serial.lua "${one[@]}" --steps 1 --val $text --metrics "$room/before" >/dev/null
expect "the loss of the initial weights" "$(sed -nE 's/.*"step": 0, "validation_loss": (.{6}).*/\1/p' "$room/before")" "$(loss schedules/serial.lua "${one[@]}" | cut -c1-6)"
expect "the report's text, with the perplexity" 1 "$("$PIANOLA" run schedules/serial.lua "${one[@]}" --steps 0 --val $text --checkpoint "$saved" --resume 2>&1 |
    awk '/^loss/ { d = exp($2) - $4; print ($2 + 0 > 3 && d < 0.02 && d > -0.02 && /sequences of 16 tokens, of step 9; nothing was trained$/) }')"
expect "no checkpoint whose loss to print" " 1" "$(mkdir "$room/empty"; loss schedules/serial.lua "${one[@]}" --checkpoint "$room/empty" --resume | tr '\n' ' '; grep -c 'holds no checkpoint whose loss could be printed' "$room/stderr")"

# A signal ends a run after its step, with a checkpoint. It resumes to the weights of an undisturbed run.
integers=(schedules/1f1b.lua --model schedules/models/integers.lua)
for signal in INT TERM; do
    rm -rf "$room/stopped"
    env --default-signal=INT "$PIANOLA" run "${integers[@]}" --steps 10000000 --every 10000000 --checkpoint "$room/stopped" \
        >"$room/report" 2>"$room/stderr" &
    run=$!
    until grep -q 'in one process' "$room/stderr" || ! kill -0 $run; do sleep 0.1; done
    sleep 0.5
    kill -$signal $run
    wait $run
    code=$?
    expect "SIG$signal: the exit status" $((128 + $(kill -l $signal))) $code
    stopped=$(sed -nE "s/^pianola: SIG$signal came: stopped after step ([0-9]+), with a checkpoint$/\1/p" "$room/stderr")
    expect "SIG$signal: its report" 1 "$(grep -cE "^loss .* in ${stopped:-0} steps" "$room/report")"
    expect "SIG$signal: one checkpoint" "$(printf 'step-%08d' "${stopped:-0}")" "$(ls "$room/stopped")"
    expect "SIG$signal: it resumes" "$(train "${integers[@]}" --steps $((stopped + 5)) | field weights)" \
        "$(train "${integers[@]}" --steps $((stopped + 5)) --checkpoint "$room/stopped" --resume | field weights)"
done

# An error ends with the flags to resume.
in_one schedules/1f1b.lua "${one[@]}" -D workers=2 --steps 12 -D schedule=constant -D lr=1e30 --resume >/dev/null
expect "the command to resume with" 1 "$(grep -c "error: .*; to continue from the newest checkpoint: pianola run schedules/1f1b.lua .*--resume" "$room/stderr")"

# A learning rate schedule that has ended is reported.
rates() { "$PIANOLA" run schedules/serial.lua "${still[@]}" -D context=16 -D lr=0.01 -D schedule=cosine -D steps=4 --steps "$1" "${@:2}" 2>&1 | sed -n 's/pianola: warning: the/the/p'; }
expect "past the end of the learning rate schedule" "the learning rate is 0 from step 5 to 6: its schedule ends with update 4; give it more steps (-D steps=6), or a final rate \
(-D final=0.1)" "$(rates 6)"
expect "not past its end" "" "$(rates 4)$(rates 6 -D final=0.1)"
finish
