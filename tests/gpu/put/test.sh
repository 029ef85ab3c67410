#!/usr/bin/env bash
# Checks messages by one-sided copies (runtime/comm/comm_put.cu) on tests/gpu/standin/, between ranks that are processes
# and map one another's memory: with one GPU each or one for all, on GPUs that lack something, and when ranks die, stop,
# or cannot reach one another. The matrix (tests/training/matrix, transports put and threads) compares schedules with
# the host.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
suffix=.gpu
. tests/support/ranks.sh
export STANDIN_START=launch # asserts that nothing is allocated or created after the first graph
integers=(--model schedules/models/integers.lua)
# trained FLAGS...: prints the weights, or the error.
trained() { timeout 200 "$PIANOLA" run "$@" --json 2>&1 | sed -nE 's/^  "weights": "(.*)",?$/\1/p;/^standin|error:/p' | head -n 1; }
wanted=$(trained schedules/1f1b.lua "${integers[@]}" --steps 4)

# ---- processes ----

# put NAME N FLAGS...: runs to the end
put() {
    tcp "$1" "$2" --messages put "${@:3}"
    ended 120
}
result() { echo "$codes $(weights)$(grep -h '^standin' "$room"/err*)"; }
codes_of() { printf "$2%.0s " $(seq "$1"); }

compiled 1f1b 1f1b "${integers[@]}"
compiled ddp ddp "${integers[@]}"
put 1f1b 4 --steps 4
expect "1f1b" "0 0 0 0 $wanted" "$(result)"
expect "ranks report how messages are sent" yes "$(says 'messages by put, one graph for the step$')"
STANDIN_DEVICES=1 put 1f1b 4 --steps 4
expect "1f1b on one GPU" "0 0 0 0 $wanted" "$(result)"
STANDIN_DEVICES=1 put ddp 8 --steps 4
expect "DDP on one GPU" "$(codes_of 8 0)$wanted" "$(result)"
STANDIN_FLUSH=0 put 1f1b 4 --steps 4
expect "a GPU that cannot flush remote writes" "0 0 0 0 $wanted" "$(result)"
for name in 1f1b ddp; do
    n=$(find "$room/$name" -name 'rank*.cu' | wc -l)
    STANDIN_PEER_WORDS=0 put $name "$n" --steps 4
    expect "$name, words of other devices cannot be written" "$(codes_of "$n" 0)$wanted" "$(result)"
done
put 1f1b 4 --steps 2 --checkpoint "$saved"
put 1f1b 4 --steps 4 --checkpoint "$saved" --resume
expect "resumed" "0 0 0 0 $wanted" "$(result)"

# ---- impossible setups ----

compiled serial serial "${integers[@]}"
tcp serial 1 --messages post
ended 20
expect "an unknown kind of messages" \
    "2 pianola: rank 0 of serial: error: --messages post: expected nccl or put" "$codes $(said error:)"
STANDIN_DEVICES=1 tcp 1f1b 4
ended 20
expect "a shared GPU with NCCL" "2 2 2 2 yes" "$codes $(says 'each needs its own, .*; to try things out, --messages put lets ranks share one$')"
STANDIN_PEERS=0 put 1f1b 4
expect "no peer access" "2 2 2 2 pianola: error: rank 0 cannot reach the GPU memory of rank 1: peer access is not supported \
between these two devices; use --messages nccl" "$codes $(said error:)"
STANDIN_IPC=0 put 1f1b 4
expect "no memory shared between processes" \
    "2 2 2 2 pianola: error: rank 0: its GPU cannot share memory with other processes: operation not supported; use --messages nccl" "$codes $(said error:)"
if unshare --uts true 2>/dev/null; then
    compiled two gpipe -D workers=2 "${integers[@]}"
    mkdir "$room/two/elsewhere" && mv "$room/two"/rank1.{so,gpu} "$room/two/elsewhere"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nexec unshare --uts sh -c '\''hostname elsewhere; exec "$0" "$@"'\'' "%s" "$@"\n' "$room/two/elsewhere/rank1.gpu" >"$room/two/rank1.gpu"
    chmod +x "$room/two/rank1.gpu"
    put two 2 --steps 4
    expect "two hosts" "2 2 pianola: error: rank 0 is on $(hostname) and rank 1 on elsewhere: --messages put is for ranks of \
one host; use --messages nccl" "$codes $(said error:)"
fi

# ---- a GPU that does not switch away from a process that waits ----

sharing='ranks 0, 1, 2 and 3 share GPU 0000:00:00\.0 \(stand-in for a GPU\)'
advice='CUDA does not promise that .* another: start its Multi-Process Service .*, give each rank a GPU of its own, or .* --device cuda$'
before=$SECONDS
STANDIN_SWITCHES=0 STANDIN_DEVICES=1 put 1f1b 4 --steps 4
took=$((SECONDS - before))
expect "a GPU that never switches: exit codes" "2 2 2 2" "$codes"
expect "a GPU that never switches: which instruction would wait, for which rank, and what to do" yes \
    "$(says "^pianola: error: $sharing, .* within 10 s, rank 0 .*, so its SEND_F act\(0,0\) to rank 1 would wait for ever\. $advice")"
expect "a GPU that never switches: within 20 s, not $took" yes "$([ $took -lt 20 ] && echo yes)"
STANDIN_SWITCHES=0 put 1f1b 4 --steps 4
expect "one GPU each, and GPUs that never switch" "0 0 0 0 $wanted" "$(result)"
# A rank that stops later may have been held up by the GPU.
for devices in 1 4; do
    STANDIN_DEVICES=$devices tcp 1f1b 4 --messages put --steps 1000000 --deadline 2
    begun && sleep 0.5
    kill -STOP "${pid[2]}"
    stopped=${pid[2]} && pid=("${pid[@]:0:2}" "${pid[3]}")
    ended 20
    kill -9 "$stopped"
    expect "$devices GPUs, an endless step: the error says that ranks share one" "$([ $devices = 1 ] && echo yes)" \
        "$(says "^pianola: rank 1 waits at .* rank 2: step [0-9]+ has taken 2 s \(--deadline\); $sharing\. $advice" 1)"
    expect "$devices GPUs, an endless step: the error says that it has taken 2 s" yes "$(says '^pianola: rank 1 waits .*: step [0-9]+ has taken 2 s \(--deadline\)' 1)"
done

# ---- ranks that die or stop ----

place='waits at [0-9]+ (RECV|SEND)_[FB] (act|grad)\([0-9],[0-9]\) (from|to) rank [0-9]'
for signal in KILL STOP; do
    tcp 1f1b 4 --messages put --steps 1000000 --deadline 4
    begun && sleep 0.5
    kill -$signal "${pid[2]}"
    [ $signal = KILL ] || { stopped=${pid[2]} && pid=("${pid[@]:0:2}" "${pid[3]}"); }
    ended 20
    [ $signal = KILL ] || kill -9 "$stopped"
    expect "SIG$signal: exit codes" "$([ $signal = KILL ] && echo 1 1 137 1 || echo 1 1 1)" "$codes"
    expect "SIG$signal: a neighbour reports where it waits" yes "$(said "^pianola: rank [13] $place: " | grep -q . && echo yes)"
    why=$([ $signal = KILL ] && echo 'rank 2( closed its connection|: Connection reset by peer)$' || echo '^pianola: rank 1 waits at .* rank 2: step ')
    expect "SIG$signal: it names rank 2" yes "$(said "$why" | grep -q . && echo yes)"
done
finish
