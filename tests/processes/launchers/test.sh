#!/usr/bin/env bash
# Ranks started by PyTorch's torchrun, and by Kubernetes with JobSet: the command of runtime/launch.md and
# runtime/jobset.yaml, word for word. torchrun is a stand-in, unless TORCHRUN names the real one (make test-torch).
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$room"' EXIT
top=$PWD
mkdir "$room/bin" # only torchrun's own folder
ln -s "${TORCHRUN:-$top/tests/processes/launchers/torchrun}" "$room/bin/torchrun"
PATH=$room/bin:$PATH
. tests/support/small_job.sh

# ---- torchrun ----

command=$(grep '^    torchrun ' runtime/launch.md | sed -E 's/^ +//;s/ +#.*//')
expect "runtime/launch.md has a command for torchrun" 1 "$(wc -l <<<"$command")"
cd "$room/job" || exit 2
task() { # K: becomes rank K, as a process of this test
    local p
    for p in $(grep -lsx "rank$1" /proc/[0-9]*/comm); do
        [ "$(readlink "${p%/comm}/cwd")" != "$PWD" ] || sed -n 's|^Pid:\t||p' "${p%comm}status"
    done
}
timeout 100 sh -c "$command" >printed 2>said </dev/null
expect "$command" "0 $wanted" "$? $(weights printed)"
expect "$command: over" 1 "$(grep -c '4 processes over TCP' said)"
rm -rf saved
timeout 100 sh -c "$command" >printed 2>said </dev/null &
agent=$!
for ((i = 0; i < 1200; i++)); do
    [ ! -s saved/step-00000100/manifest.json ] || break
    sleep 0.05
done
# shellcheck disable=SC2046
kill -9 $(task 2)
wait $agent
expect "a killed rank: all restart, and reach the same bits" "0 1 $wanted" \
    "$? $(grep -cE '^resumed +from step [12]00$' printed) $(weights printed)"
grep -q '^pianola: rank [013] .*rank 2' said
expect "a killed rank: the others name it" 0 $?
rm -rf saved
cd "$top" || exit 2

# ---- JobSet ----

jobset() { python3 tests/processes/launchers/jobset.py "$1" tests/processes/launchers/jobset.fields "${2:-runtime/jobset.yaml}" 2>&1; }
expect "runtime/jobset.yaml" "" "$(jobset check)"
wrong() { # SED WANTED: the example with one change
    sed "$1" runtime/jobset.yaml >"$room/wrong.yaml"
    expect "jobset.yaml, $1" "$2" "$(jobset check "$room/wrong.yaml")"
}
pod='.spec.replicatedJobs[0].template.spec.template.spec'
wrong 's/replicatedJobs/replicatedJob/' ".spec.replicatedJob: no such field"
wrong 's/maxRestarts: 3/maxRestarts: "3"/' ".spec.failurePolicy.maxRestarts: '3' is no integer"
wrong 's/value: "4"/value: 4/' "$pod.containers[0].env[0].value: 4 is no string"
wrong 's/restartPolicy: Never/restartPolicie: Never/' "$pod.restartPolicie: no such field"
wrong 's/mountPath/path/' "$pod.containers[0].volumeMounts[0].path: no such field
$pod.containers[0].volumeMounts[0].mountPath: missing"
wrong 's/maxRestarts: 3/restartStrategy: Again/' ".spec.failurePolicy.restartStrategy: 'Again' is none of Recreate, BlockingRecreate, InPlaceRestart"
wrong 's/completions: 4/completions: 8/' "completions, parallelism and WORLD_SIZE differ"
wrong 's/^  name: pianola/  name: another/' "MASTER_ADDR is pianola-ranks-0-0.pianola, but the first pod another-ranks-0-0.another"

# Runs the container's command four times, in a network of its own with the names a cluster would provide. At first rank
# 0 has no name.
if ! unshare -mn ip link set lo up 2>/dev/null; then
    echo "the JobSet's command: not tried, no namespaces can be made here"
    finish
fi
jobset container | sed "s| /out/| $room/job/out/|;s| /data/| $room/job/|g" >"$room/container"
cp /etc/hosts "$room/hosts"
# shellcheck disable=SC2016
timeout 100 unshare -mn bash -c '
    ip link set lo up && mount --bind "$0/hosts" /etc/hosts || exit 2
    for index in 0 1 2 3; do
        JOB_COMPLETION_INDEX=$index sh "$0/container" >"$0/printed$index" 2>"$0/said$index" </dev/null &
        pods+=($!)
    done
    for pod in "${pods[@]}"; do wait $pod; codes+=$?; done
    echo $codes' "$room" >"$room/codes" &
pods=$!
sleep 1
expect "the pods wait for the first one's name" "" "$(cat "$room"/said?)"
echo "127.0.0.1 $(sed -n 's/^export MASTER_ADDR=//p' "$room/container")" >>"$room/hosts"
wait $pods
expect "the JobSet's pods" "0000 $wanted" "$(cat "$room/codes") $(weights "$room/printed0")"
finish
