#!/usr/bin/env bash
# Ranks under the real Slurm. Its daemons run here for two nodes, on an address that only this machine has. The commands
# are copied from runtime/launch.md, word for word. They train to the bits of the in-process run, also after scancel, a
# killed task and a requeue.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd srun; do
    command -v $program >/dev/null && continue
    echo "Slurm: not tried, $program is not here; make deps for make test installs it"
    expect "skipped" "" ""
    finish
done

# ---- the daemons ----

room=$(mktemp -d)
daemons=()
# Prints the processes that know this slurm.conf: the daemons and their children.
left() {
    env -u SLURM_CONF grep -lzs "^SLURM_CONF=$room/slurm.conf" /proc/[0-9]*/environ |
        env -u SLURM_CONF sed -n 's|/proc/\([0-9]*\)/.*|\1|p'
}
gone() { # SECONDS: waits until all daemons have ended
    local p i
    for ((i = 0; i < $1 * 10; i++)); do
        for p in "${daemons[@]}"; do
            [ ! -d "/proc/$p" ] || [[ $(sed 's/.*) //' "/proc/$p/stat") == Z* ]] || break
            [ "$p" != "${daemons[-1]}" ] || return 0
        done
        sleep 0.1
    done
} 2>/dev/null
down() {
    kill "${daemons[@]}"
    gone 5
    # shellcheck disable=SC2046
    kill -9 $(left) "${daemons[@]}"
    wait
    rm -rf "$room"
} 2>/dev/null
trap down EXIT
host=127.$((1 + $$ / 250 % 250)).$(($$ % 250)) port=$((10000 + $$ % 2000 * 4)) # each run has its own, to avoid clashes
export SLURM_CONF=$room/slurm.conf
mkdir "$room/state"
head -c 1024 /dev/urandom >"$room/munge.key" && chmod 600 "$room/munge.key"
cat >"$SLURM_CONF" <<CONF
ClusterName=pianola
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$room/munge.socket,cred_expire=5
SlurmctldPidFile=$room/slurmctld.pid
SlurmctldLogFile=$room/slurmctld.log
StateSaveLocation=$room/state
SlurmdPidFile=$room/slurmd-%n.pid
SlurmdLogFile=$room/slurmd-%n.log
SlurmdSpoolDir=$room/slurmd-%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
NodeName=$host.[1-2] NodeHostname=$(hostname) Port=[$((port + 1))-$((port + 2))] CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=10 OverSubscribe=FORCE:8
CONF
munged --foreground --force --socket="$room/munge.socket" --key-file="$room/munge.key" --pid-file="$room/munge.pid" \
    --seed-file="$room/munge.seed" --log-file="$room/munge.log" --num-threads=2 2>"$room/munged.err" &
daemons+=($!)
slurmctld -D 2>"$room/slurmctld.err" &
daemons+=($!)
for node in 1 2; do
    slurmd -D -N $host.$node 2>"$room/slurmd-$node.err" &
    daemons+=($!)
done
idle() { timeout 5 sinfo -ho %D -t idle 2>&1; }
for ((i = 0; i < 100; i++)); do
    [ "$(idle)" != 2 ] || break
    sleep 0.1
done
expect "nodes that are up" 2 "$(idle)"
[ $failed = 0 ] || { tail -n 20 "$room"/*.err "$room"/*.log; finish; }

# ---- the commands of runtime/launch.md ----

# commands WORD: prints the commands of runtime/launch.md that begin with WORD, without comments.
commands() { grep "^    $1 " runtime/launch.md | sed -E 's/^ +//;s/ +#.*//'; }
. tests/support/small_job.sh
wanted_100=$("$PIANOLA" run "${small[@]}" --steps 100 2>/dev/null | weights)
lists=("n[001-003,7]" "n7,n[1-2]" "rack[1-2]node[01-4]" "a-b.c,d" "n[098-102]")
hosts=("${lists[@]/*/}")
for i in "${!lists[@]}"; do
    hosts[i]=$(scontrol show hostnames "${lists[i]}" | head -n 1)
done
shown_srun=$(commands srun) shown_sbatch=$(commands sbatch)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cd "$room/job" || exit 2

expect "runtime/launch.md has commands for srun, and one for sbatch" "3 1" "$(wc -l <<<"$shown_srun") $(wc -l <<<"$shown_sbatch")"
while read -r command; do
    if [[ $command == *--mpi=pmix* ]] && ! srun --mpi=list 2>&1 | grep -qw pmix; then
        echo "$command: not tried, this Slurm has no PMIx"
        continue
    fi
    case $command in *--steps\ 300*) w=$wanted ;; *) w=$wanted_100 ;; esac
    timeout 100 sh -c "$command" >printed 2>said </dev/null
    expect "$command" "0 $w" "$? $(weights printed)"
    over=TCP
    [[ $command != *--mpi=pmix* ]] || over=MPI
    expect "$command: over" "4 processes over $over" "$(grep -o '4 processes over [A-Z]*' said)"
done <<<"$shown_srun"

# ---- where ranks meet ----

# answer_at SECONDS COMMAND...: checks where the ranks look for rank 0, which never comes.
answer_at() { timeout "$@" 2>&1 | sed -nE 's/.*(MASTER_ADDR|rank 0 to answer at) ([^ :,]+).*/\2/p' | head -n 1; }
for i in "${!lists[@]}"; do
    expect "the first host of ${lists[i]}" "${hosts[i]}" "$(SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_JOB_ID=1 SLURM_STEP_ID=0 \
        SLURM_STEP_NODELIST=${lists[i]} answer_at 20 out/rank --deadline 0.2)"
done
expect "a node list of Slurm's" "$host.[1-2]" "$(timeout 20 srun -N 2 printenv SLURM_STEP_NODELIST | sort -u)"
# shellcheck disable=SC2016
without_rank_0='[ $SLURM_PROCID = 0 ] || exec out/rank --deadline 0.2'
expect "two nodes: where they look for rank 0" $host.1 "$(answer_at 20 srun -N 2 -n 2 sh -c "$without_rank_0")"
expect "the second node: where they look for rank 0" $host.2 "$(answer_at 20 srun -w $host.2 -n 2 sh -c "$without_rank_0")"
expect "a step on the second node of two: where they look for rank 0" $host.2 \
    "$(answer_at 20 salloc -Q -N 2 srun -N 1 -r 1 -n 2 sh -c "$without_rank_0")"
expect "four ranks on two nodes" "$wanted" "$(timeout 60 srun -N 2 -n 4 out/rank --steps 300 --data book.txt 2>said | weights)"

printf '%s\n' $host.2 $host.1 $host.1 $host.1 >hostfile
expect "an arbitrary distribution" 4 "$(SLURM_HOSTFILE=hostfile timeout 20 srun -N 2 -n 4 -m arbitrary out/rank 2>&1 |
    grep -c 'error: Slurm started rank . of 4, but SLURM_DISTRIBUTION is arbitrary, so rank 0 may be on any host: set MASTER_ADDR')"
timeout 60 sbatch -Q -W -n 4 -o batch.out --wrap out/rank
expect "a batch script that starts no step" 1 "$(grep -c 'Slurm started rank 0 of 4, but SLURM_STEP_NODELIST is not set, as in the batch script itself: start ranks with srun' batch.out)"
step='srun --overlap -N 1 -n 4 out/rank --steps 300 --data book.txt'
timeout 60 sbatch -Q -W -N 1 -n 4 -o both.out --wrap "$step & $step & wait"
expect "two steps of a job at once" "$wanted $wanted" "$(weights both.out | paste -sd' ')"

# ---- jobs that end early ----

# submitted: submits the job of runtime/launch.md, sets $job and $out, and waits until its first checkpoint is complete.
submitted() {
    rm -rf saved
    resubmitted
    for ((i = 0; i < 1200; i++)); do
        [ ! -s saved/step-00000100/manifest.json ] || return 0
        sleep 0.05
    done
}
resubmitted() {
    job=$(sh -c "$shown_sbatch" | sed -n 's/^Submitted batch job //p')
    out=slurm-$job.out
}
# ended: waits for the end of the job and prints its state and exit code.
ended() {
    for ((i = 0; i < 600; i++)); do
        [ -n "$(squeue -h -j "$job" 2>/dev/null)" ] || break
        sleep 0.1
    done
    scontrol show job -o "$job" | sed -E 's/.* JobState=([A-Z_]*).* ExitCode=([0-9:]*).*/\1 \2/'
}
task() { # K: prints the process id of the job's rank K
    grep -lsx "rank$1" /proc/[0-9]*/comm | sed 's/comm$/environ/' | xargs -r grep -lzsx "SLURM_JOB_ID=$job" |
        sed -n 's|/proc/\([0-9]*\)/.*|\1|p'
}
stopped() { grep -cE '^pianola: SIGTERM came: stopped after step [12][0-9]{2}, with a checkpoint$' "$out"; }
resumed() { grep -cE '^resumed +from step [12][0-9]{2}$' "$out"; }
goes_on() { # AFTER: checks that the same command resumes to the bits of an undisturbed run
    resubmitted
    expect "after $1, the same job again" "COMPLETED 0:0" "$(ended)"
    expect "after $1, it resumes" "1 $wanted" "$(resumed) $(weights "$out")"
}

submitted
scancel "$job"
expect "scancel: the job" "CANCELLED 0:15" "$(ended)"
expect "scancel: a checkpoint, then 143" "1 1" "$(stopped) $(grep -c 'tasks 0-3: Exited with exit code 143' "$out")"
goes_on scancel

submitted
# shellcheck disable=SC2046
kill -9 $(task 2)
expect "a killed task: the job" "FAILED 137:0" "$(ended)"
expect "a killed task: the others name it, and exit with 1" "yes 1" \
    "$(grep -qE 'rank [013] waits at .*: rank 2(:| closed)' "$out" && echo yes) $(grep -c 'tasks 0-1,3: Exited with exit code 1$' "$out")"
goes_on "a killed task"

submitted
scontrol requeue "$job"
expect "requeue: the job" "COMPLETED 0:0" "$(ended)"
expect "requeue: a checkpoint, and a resumed run" "1 1 $wanted" "$(stopped) $(resumed) $(weights "$out" | tail -n 1)"

kill "${daemons[@]}"
gone 10
for ((i = 0; i < 100; i++)); do # a step's daemon outlives its job for a moment
    [ -n "$(left)" ] || break
    sleep 0.1
done
expect "no process is left running" "" "$(left)"
finish
