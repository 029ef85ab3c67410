#!/usr/bin/env bash
# Faults in a run with ranks as processes, short of sudden death (tests/processes/kill/test.sh): signals, ranks that
# stop, disks that fill up, folders and data that change, checkpoints that do not fit. Each run ends in time, names the
# fault, and leaves checkpoints from which it can resume.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
trap 'umount "$room/disk" "$room/disk" 2>/dev/null; cleaned' EXIT
integers=(--model schedules/models/integers.lua -D width=64 -D rows=16)
compiled 1f1b 1f1b "${integers[@]}"
compiled gpipe gpipe -D workers=2 "${integers[@]}"
compiled serial serial "${integers[@]}"
compiled narrow gpipe -D workers=2 --model schedules/models/integers.lua -D width=32 -D rows=8
compiled gpt 1f1b --model schedules/models/gpt.lua -D workers=2 -D layers=2 -D width=16 -D context=16 -D rows=1
often=(--checkpoint "$saved" --every 5 --deadline 20)
endless=("${often[@]}" --steps 1000000)

# goes_on WHAT: checks that the run resumes at the newest checkpoint and reaches the weights of an undisturbed run.
goes_on() {
    local from steps wanted
    from=$(newest) steps=$(($(newest) + 7))
    wanted=$("$PIANOLA" run schedules/1f1b.lua "${integers[@]}" --steps "$steps" 2>/dev/null | sed -n 's/^weights *\([0-9a-f]*\).*/\1/p')
    tcp serial 1 "${often[@]}" --resume --steps "$steps"
    ended 30
    expect "$1: resumes from step $from" "0 $from $wanted" "$codes $(sed -n 's/^resumed *from step //p' "$room/out0") $(weights)"
}

# ---- signals ----

# stopped WHAT CODES SIGNAL: checks that the ranks ended in order, with a checkpoint of the last step.
stopped() {
    local step
    ended 20
    step=$(sed -n "s/^pianola: $3 came: stopped after step \([0-9]*\), with a checkpoint$/\1/p" "$room/err0")
    expect "$1: exit codes" "$2" "$codes"
    expect "$1: a checkpoint of the last step" "$(newest)" "$step"
    goes_on "$1"
    rm -rf "$saved"
}
for signal in INT TERM; do
    code=$([ $signal = INT ] && echo 130 || echo 143)
    for who in 0 2 all; do
        tcp 1f1b 4 "${endless[@]}"
        reached 5
        # shellcheck disable=SC2046
        kill -$signal $([ $who = all ] && echo "${pid[@]}" || echo "${pid[who]}")
        stopped "SIG$signal to rank $who over TCP" "$code $code $code $code" SIG$signal
    done
    mpi 1f1b 4 "${endless[@]}"
    reached 5
    kill -$signal "$(rank_pid 1)"
    stopped "SIG$signal to rank 1 over MPI" $code SIG$signal
    mpi 1f1b 4 "${endless[@]}"
    reached 5
    # On either signal, mpirun sends its ranks SIGTERM, a second later SIGKILL, and ends with 1.
    kill -$signal "${pid[0]}"
    stopped "SIG$signal to mpirun" 1 SIGTERM
done
tcp gpipe 2 --steps 1000000 --deadline 20
begun
kill -INT "${pid[1]}"
ended 20
expect "without --checkpoint" "130 130 yes" "$codes $(says '^pianola: SIGINT came: stopped after step [0-9]+; there is no --checkpoint$')"

# While ranks still meet, there is nothing to wind down: the first signal ends them.
handles() { # succeeds once the rank itself, no longer the shell that started it, handles SIGTERM
    grep -qsa 'rank[01]' "/proc/$1/cmdline" && ((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status") >> 14 & 1))
}
for signal in INT TERM; do
    for who in 0 1; do
        forget
        meetings=$((meetings + 1))
        RANK=$who WORLD_SIZE=2 MASTER_ADDR=127.$((1 + $$ / 250 % 250)).$(($$ % 250)).$meetings MASTER_PORT=29500 \
            "$room/gpipe/rank$who" --flight "$room" "${endless[@]}" 2>"$room/err0" &
        pid=($!)
        until_true "rank $who handles signals" handles ${pid[0]}
        kill -$signal ${pid[0]}
        ended 5
        expect "SIG$signal to rank $who, which is alone" "$([ $signal = INT ] && echo 130 || echo 143) yes no" \
            "$codes $(says "^pianola: rank $who waits for .*: SIG$signal has come, before anything began\$") $([ -e "$room/flight-rank$who.txt" ] && echo yes || echo no)"
    done
done

# A stuck rank reports where it is stuck; a second signal ends it at once.
tcp 1f1b 4 "${endless[@]}"
reached 5
kill -STOP "${pid[2]}"
sleep 0.2
kill -TERM "${pid[3]}"
sleep 1
expect "a signal to a stuck rank: it reports where, and keeps waiting" "yes yes" "$(runs "${pid[3]}" && echo yes) \
$(says '^pianola: rank 3 (waits at [0-9]+ RECV_F act\(2,[0-9]\) from rank 2|waits for all ranks|writes a checkpoint).*: SIGTERM has come$' 3)"
kill -TERM "${pid[3]}"
sleep 0.2
expect "a second signal: it ends at once" no "$(runs "${pid[3]}" && echo yes || echo no)"
kill -9 "${pid[2]}" && ended 20
expect "a second signal: exit codes" "1 1 137 143" "$codes"
goes_on "a second signal"
rm -rf "$saved"

# ---- ranks that stop: the others end by the deadline, and report where they waited ----

at='waits at [0-9]+ (RECV|SEND)_[FB] (act|grad)\([0-9],[0-9]\) (from|to) rank [0-9]'
# The names, from their program's table, of the messages that the others wait for.
for over in tcp mpi; do
    # Stops the rank inside a step, not inside a checkpoint.
    $over 1f1b 4 --checkpoint "$saved" --steps 1000000 --every 1000000 --deadline 3
    begun && sleep 0.2
    [ $over = tcp ] && stuck=${pid[2]} || stuck=$(rank_pid 2)
    kill -STOP "$stuck"
    if [ $over = tcp ]; then # a stopped rank does not end by itself
        pid=("${pid[@]:0:2}" "${pid[3]}")
        ended 10
        expect "a stopped rank over TCP: exit codes of the others" "1 1 1" "$codes"
        kill -9 "$stuck"
        for k in 0 1 3; do
            expect "a stopped rank over TCP: rank $k says where it waits" yes \
                "$(says "^pianola: rank $k ($at|waits for all ranks to end the step): step [0-9]+ has taken 3 s \(--deadline\)$" $k)"
        done
    else
        ended 10
        expect "a stopped rank over MPI: exit code" 1 "$codes"
        sleep 0.2
        expect "a stopped rank over MPI: mpirun has ended it" no "$(runs "$stuck" && echo yes || echo no)"
    fi
    expect "a stopped rank over $over: its neighbour names it" yes \
        "$(said "^pianola: rank [13] $at: " | grep -q ' rank 2: ' && echo yes)"
    for k in 0 1 3; do
        [ -f "$room/flight-rank$k.txt" ] || continue
        expect "a stopped rank over $over: the flight record of rank $k begins with its message" "$(said "^pianola: rank $k .*--deadline")" \
            "pianola: $(head -n 1 "$room/flight-rank$k.txt" | sed 's/ of 1f1b / /')"
    done
done
record=$(cat "$room"/flight-rank[13].txt)
for line in '^rank [13] of 1f1b waits at [0-9]+ [A-Z_]+ [a-z]+\([0-9],[0-9]\) (from|to) rank [0-9]: ' \
    '^step [0-9]+, [0-9.]+ s after it began\.' '^lane compute: [0-9]+ of [0-9]+ done$' \
    '^lane recv [0-9]: [0-9] of 8 done$' '^  +next  [0-9]+ [A-Z_]+ .*' \
    '^ +[0-9.]+ +[0-9.]+  [0-9]+ (RECV|SEND)_[FB] (act|grad)\([0-9],[0-9]\) (from|to) rank [0-9]$'; do
    expect "a flight record has a line $line" yes "$(grep -qE "$line" <<<"$record" && echo yes)"
done
rm -rf "$saved"

stuck 500 "${integers[@]}" --checkpoint "$saved"
expect "a thread that stops is in a job" 1 "$(grep -cE '^pianola: rank [0-9] is at [0-9]+ [FB] ' "$room/err0")"
expect "a thread that stops: how to resume" yes \
    "$(says "^pianola: rank 0: to continue from the newest checkpoint in $saved, start the run again with --resume\$")"
rm -rf "$saved"
"$PIANOLA" run schedules/1f1b.lua "${integers[@]}" --steps 3 --deadline 20 >"$room/out0" 2>"$room/err0"
expect "threads that arrive in time" "0 $("$PIANOLA" run schedules/1f1b.lua "${integers[@]}" --steps 3 --json 2>/dev/null | sed -nE 's/^  "weights": "(.*)",?$/\1/p')" "$? $(weights)"

# At the end of a run under mpirun, too, a rank that stops must not hold up the others forever.
echo '#include <signal.h>
int MPI_Finalize(void) { return raise(SIGSTOP); }' | cc -shared -fPIC -x c - -o "$room/stop.so"
mpirun --oversubscribe -n 1 "$room/gpipe/rank0" --deadline 2 --steps 3 --flight "$room" : \
    -n 1 env LD_PRELOAD="$room/stop.so" "$room/gpipe/rank1" --steps 3 --flight "$room" >"$room/out0" 2>"$room/err0" &
pid=($!)
ended 20
expect "stopped at its very end" "1 yes" "$codes $(says '^pianola: rank 0 waits for all ranks to end: 2 s have passed \(--deadline\)$')"

tcp gpipe 2 --steps 1000000 --flight /none/there --deadline 20
begun
kill -9 "${pid[1]}"
ended 10
expect "no folder for the flight record" "1 137 yes" \
    "$codes $(says '^pianola: rank 0: no flight record: /none/there/flight-rank0.txt: No such file or directory$')"

# ---- disks and folders ----

# refused WHAT MESSAGE: checks that all ranks exit with 2 and this message.
refused() {
    ended 20
    expect "$1" "yes $2" "$(grep -qE '^2( 2)*$' <<<"$codes" && echo yes) $(said '^pianola: .*error: ' | sed 's/^pianola: error: //')"
}
resume='--resume continues from the newest complete checkpoint'
mkdir "$room/disk"
if mount -t tmpfs -o size=1300k none "$room/disk" 2>/dev/null; then
    saved=$room/disk/saved
    tcp 1f1b 4 --checkpoint "$saved" --every 5 --keep 1000 --steps 1000000
    ended 20
    full='No space left on device'
    expect "a full disk" "2 2 2 2 yes" "$codes $(says "^pianola: error: $saved/step-[0-9]+(/[a-z]+[-0-9]*\.(safetensors|json))?(\.tmp)?: $full; $resume$")"
    step=$(newest)
    expect "a full disk: whole checkpoints, and one half written" "yes no" "$([ "$step" -gt 10 ] && echo yes) \
$([ -e "$saved/$(ls "$saved" | tail -n 1)/manifest.json" ] && echo yes || echo no)"
    mount -o remount,size=8m "$room/disk"
    tcp 1f1b 4 --checkpoint "$saved" --every 5 --steps $((step + 1)) --resume
    ended 20
    expect "a full disk: resumes from the previous checkpoint" "0 0 0 0 $step" "$codes $(sed -n 's/^resumed *from step //p' "$room/out0")"
    tcp 1f1b 4 --checkpoint "$saved" --every 5 --steps 1000000 --resume
    reached $((step + 15))
    # Remounts through a bind mount of the disk onto itself: a mount with a file open for writing cannot be remounted.
    # While a checkpoint is being written this fails as well, so it is tried again.
    mount --bind "$room/disk" "$room/disk"
    for ((i = 0; i < 200; i++)); do
        mount -o remount,bind,ro "$room/disk" 2>/dev/null && break
        sleep 0.02
    done
    ended 20
    expect "a disk that turns read-only" "2 2 2 2 yes" "$codes $(says "^pianola: error: $saved/step-.*: Read-only file system; $resume$")"
    tcp 1f1b 4 --checkpoint "$saved" --steps 1000000 --resume
    refused "a read-only disk" "$saved/.lock: Read-only file system"
    umount "$room/disk"
    step=$(newest)
    tcp 1f1b 4 --checkpoint "$saved" --steps $((step + 1)) --resume
    ended 20
    expect "the disk is writable again" "0 0 0 0 $step" "$codes $(sed -n 's/^resumed *from step //p' "$room/out0")"
    umount "$room/disk"
    saved=$room/saved
else
    echo "a full disk: not tried, no file system can be mounted here"
fi
touch "$saved"
tcp gpipe 2 "${endless[@]}"
refused "a file in the folder's place" "$saved: is no folder"
rm "$saved"
tcp gpipe 2 --checkpoint "$room/none/saved"
refused "a checkpoint folder in a missing folder" \
    "$room/none/saved: No such file or directory: make its parent folder first"
tcp gpipe 2 "${endless[@]}"
reached 5
mv "$saved" "$room/moved" # the ranks make a new one, unless they are writing just now
sleep 1
kill -INT "${pid[0]}" 2>/dev/null
ended 20
expect "the folder moved away: $codes" yes "$([ "$codes" = "130 130" ] || says "^pianola: error: $saved.*: No such file or directory(: make its parent folder first)?; $resume$")\
$([ "$codes" != "130 130" ] || says "^pianola: warning: $saved: was moved or removed: continuing in a new folder$")"
rm -rf "$saved"
mv "$room/moved" "$saved"
goes_on "the folder moved away"
rm -rf "$saved"
mkdir "$room/home"
saved=$room/home/saved
tcp gpipe 2 --checkpoint "$saved" --every 5 --steps 1000000
reached 5
mv "$room/home" "$room/elsewhere"
ended 20
expect "the folder above moved away" "2 2 yes" "$codes $(says "^pianola: error: $saved(/.*)?: No such file or directory(: make its parent folder first)?; $resume$")"
saved=$room/elsewhere/saved
often=(--checkpoint "$saved" --every 5 --deadline 20)
goes_on "the folder above moved away"
saved=$room/saved
often=(--checkpoint "$saved" --every 5 --deadline 20) endless=("${often[@]}" --steps 1000000)

# differ WHAT MESSAGE FLAGS...: runs two ranks and gives rank 1 these flags.
differ() {
    forget
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.$((1 + $$ / 250 % 250)).$(($$ % 250)).254 MASTER_PORT=29501 \
        "$room/gpipe/rank0" --flight "$room" --steps 9 >"$room/out0" 2>"$room/err0" "${of_rank_0[@]}" &
    pid=($!)
    RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.$((1 + $$ / 250 % 250)).$(($$ % 250)).254 MASTER_PORT=29501 \
        "$room/gpipe/rank1" --flight "$room" >"$room/out1" 2>"$room/err1" "${@:3}" &
    pid+=($!)
    refused "$1" "$2"
}
alike="give all ranks the same flags"
of_rank_0=()
differ "another number of steps" "rank 1 has --steps 8, but rank 0 has 9; $alike" --steps 8
differ "another seed" "rank 1 has --seed 2, but rank 0 has 1; $alike" --steps 9 --seed 2
differ "a checkpoint of one rank" "rank 1 has --checkpoint 1, but rank 0 has 0; $alike" --steps 9 --checkpoint "$saved"
differ "another transport" "rank 1 has --messages put, but rank 0 has nccl; $alike" --steps 9 --messages put
of_rank_0=(--checkpoint "$saved")
differ "other steps between checkpoints" "rank 1 has --every 7, but rank 0 has 100; $alike" --steps 9 --checkpoint "$saved" --every 7
differ "one that resumes" "rank 1 has --resume 1, but rank 0 has 0; $alike" --steps 9 --checkpoint "$saved" --resume
differ "another folder" "$saved: rank 0 does not see what rank 1 writes there: all ranks need the same folder" \
    --steps 9 --checkpoint "$room/other"
expect "the folders are empty" "" "$(ls "$saved" "$room/other" | grep -v :)"
rm -rf "$saved" "$room/other"

# ---- one run at a time in a folder ----

# The clash and its end, over any transport and with any flags of the other run. holder: describes the run that has the
# folder.
for over in tcp mpi; do
    tcp gpipe 2 "${endless[@]}"
    first=("${pid[@]}")
    reached 5
    begin=$(date -u +%Y-%m-%d)
    holder="gpipe of compile [0-9a-f]{16}: rank 0 is process ${first[0]} on $(hostname), since ($begin|$(date -u +%Y-%m-%d)) [0-9:]{8} UTC"
    for more in "" --resume; do
        # shellcheck disable=SC2086
        $over gpipe 2 "${often[@]}" --steps 9 $more
        ended 20
        expect "a second run over $over $more" "yes yes" "$(grep -qE '^2( 2)*$' <<<"$codes" && echo yes) \
$(says "^pianola: error: $saved: another run is writing its checkpoints there \($holder\); let it end, or name another folder$")"
    done
    step=$(newest)
    reached $((step + 10))
    "$PIANOLA" export-weights "$saved" -o "$room/weights.safetensors" >/dev/null 2>&1
    expect "the first run goes on, and its weights are exported" "0 yes" "$? $(runs "${first[0]}" && runs "${first[1]}" && echo yes)"
    # A killed rank releases the folder, but another of its ranks still runs.
    kill -STOP "${first[1]}"
    kill -9 "${first[0]}"
    pid=("${first[0]}")
    ended 10
    $over gpipe 2 "${often[@]}" --steps 9 --resume
    ended 20
    expect "a rank of the killed run still runs, over $over" "yes yes" "$(grep -qE '^2( 2)*$' <<<"$codes" && echo yes) \
$(says "^pianola: error: $saved: rank 1 of another run still runs \($holder\); let it end, or name another folder$")"
    kill -9 "${first[1]}"
    pid=("${first[1]}")
    ended 10
    goes_on "a killed run leaves no lock, over $over"
    rm -rf "$saved"
done
# On a file system without locks, as on some networks.
cat <<'NOLOCKS' | cc -D_GNU_SOURCE -shared -fPIC -x c - -o "$room/nolocks.so"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
int fcntl(int fd, int what, ...) {
    va_list all;
    va_start(all, what);
    long with = va_arg(all, long);
    va_end(all);
    if (what == F_SETLK)
        return errno = ENOLCK, -1;
    return ((int (*)(int, int, long))dlsym(RTLD_NEXT, "fcntl"))(fd, what, with);
}
NOLOCKS
LD_PRELOAD=$room/nolocks.so tcp gpipe 2 "${often[@]}" --steps 10
ended 20
expect "no locks: reported once, and the run goes on" "0 0 10 pianola: warning: $saved: no locks here (No locks available): another run could write there at the same time" \
    "$codes $(newest) $(cat "$room"/err? | grep 'no locks')"
rm -rf "$saved"

# ---- resuming ----

for over in tcp mpi; do
    $over gpipe 2 "${often[@]}" --steps 10 --resume
    ended 30
    expect "--resume without checkpoints, over $over" "yes yes" \
        "$(grep -q '^0' <<<"$codes" && echo yes) $(says "^pianola: $saved holds no complete checkpoint yet: starting at step 0$")"
    at_10=$(weights)
    $over gpipe 2 "${often[@]}" --steps 15
    refused "a new run over old checkpoints, over $over" "$saved: already holds checkpoints: continue with --resume, or name another folder"
    $over gpipe 2 "${often[@]}" --steps 15 --resume --seed 2
    refused "another seed, over $over" "$saved: belongs to a run with --seed 1, not 2"
    $over narrow 2 "${often[@]}" --steps 15 --resume
    refused "another model, over $over" \
        "$saved/step-00000010/stage-0000.safetensors: layer.0.weight is 64 x 64, but this model's is 32 x 32"
    $over gpt 2 "${often[@]}" --steps 15 --resume
    refused "a model of another kind, over $over" "$saved/step-00000010: has no layer.0.token; it belongs to another model or optimizer"
    $over gpipe 2 "${often[@]}" --steps 7 --resume
    ended 30
    expect "fewer steps than already done, over $over" "10 $at_10 yes" "$(sed -n 's/^resumed *from step //p' "$room/out0") $(weights) \
$(grep -q 'after 10 steps$' "$room/out0" && echo yes)"
    expect "none of these runs changed the checkpoints, over $over" "10" "$(newest)"
    printf x | dd of="$saved/step-00000010/stage-0001.safetensors" bs=1 seek=900 conv=notrunc status=none
    $over gpipe 2 "${often[@]}" --steps 10 --resume
    ended 30
    one="$saved/step-00000010/stage-0001.safetensors: does not match the checksum in the manifest"
    expect "the newest is damaged, over $over" "yes 5 $at_10" \
        "$(says "^pianola: $one; continuing from step 5$") $(sed -n 's/^resumed *from step //p' "$room/out0") $(weights)"
    for f in "$saved"/*/stage-0001.safetensors; do
        printf x | dd of="$f" bs=1 seek=900 conv=notrunc status=none
    done
    $over gpipe 2 "${often[@]}" --steps 15 --resume
    refused "all are damaged, over $over" "$one"
    rm "$saved"/*/manifest.json
    $over gpipe 2 "${often[@]}" --steps 10 --resume
    ended 30
    expect "none was finished, over $over" "yes $at_10" \
        "$(says "^pianola: $saved holds no complete checkpoint yet: starting at step 0$") $(weights)"
    rm -rf "$saved"
done

# ---- data ----

text=$room/text
for change in 'changed while it was used:printf x | dd of="$text" bs=1 seek=100 conv=notrunc status=none' \
    'changed while it was used:echo more >>"$text"' 'was replaced:cp "$text" "$text.new" && mv "$text.new" "$text"' \
    'is gone:rm "$text"' '(shrank|shrank while it was read):truncate -s 100 "$text"'; do
    for over in tcp mpi; do
        cp /usr/share/common-licenses/GPL-3 "$text"
        $over gpt 2 "${endless[@]}" --data "$text"
        reached 5
        eval "${change#*:}"
        step=$(newest)
        ended 20
        expect "data: ${change#*:}, over $over" "yes yes" "$(grep -q '\<2\>' <<<"$codes" && echo yes) \
$([ -n "$(said "^pianola: (rank [01] of 1f1b: )?error: $text: ${change%%:*}$")" ] && echo yes)"
        # A checkpoint that had begun may have been completed.
        expect "data: ${change#*:}, over $over: no checkpoint of it" yes "$([ "$(newest)" -le $((step + 5)) ] && echo yes)"
        rm -rf "$saved"
    done
done
cp /usr/share/common-licenses/GPL-3 "$text"
tcp gpt 2 "${often[@]}" --steps 5 --data "$text"
ended 20
for over in tcp mpi; do
    $over gpt 2 "${often[@]}" --steps 10 --resume --data /usr/share/common-licenses/GPL-2
    ended 20
    expect "other data, over $over" "yes yes" "$(grep -q '^2' <<<"$codes" && echo yes) \
$(says "^pianola: error: $saved: belongs to a run on other data: [0-9]+ bytes with hash [0-9a-f]+, not [0-9]+ with [0-9a-f]+; --new-data continues with this data, from its beginning$")"
    $over gpt 2 "${often[@]}" --steps 10 --resume
    ended 20
    expect "no data, over $over" "yes yes" "$(grep -q '^2' <<<"$codes" && echo yes) \
$(says "^pianola: error: $saved: belongs to a run on other data: .*, not 0 with 0000000000000000; --new-data continues with this data, from its beginning$")"
done

# ---- flags ----

flag() { # MESSAGE FLAGS...
    expect "flags ${*:2}" "2 pianola: rank 0 of serial: error: $1" "$("$room/serial/rank0" "${@:2}" 2>&1 | sed 's/^/2 /')"
}
flag "unknown flag --bogus; see --help" --bogus
flag "unknown flag -x; see --help" -x
flag "--steps needs a value; see --help" --steps
flag "'more' is not a flag; see --help" more
whole="expected a whole number of at least"
flag "--every 0: $whole 1" --every 0
flag "--every x: $whole 1" --every x
flag "--keep 0: $whole 1" --keep 0
flag "--steps 5x: $whole 1" --steps 5x
flag "--steps 99999999999999999999: $whole 1" --steps 99999999999999999999
flag "--seed -1: $whole 0" --seed -1
for s in x 0 -1 nan inf; do
    flag "--deadline $s: expected a number of seconds above 0" --deadline $s
done
flag "--resume needs --checkpoint DIR, the folder to continue from" --resume
"$room/serial/rank0" --bogus 2>/dev/null
expect "an unknown flag: exit code" 2 $?
finish
