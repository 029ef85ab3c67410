#!/usr/bin/env bash
# Ranks on two hosts: network namespaces on this machine with a link between them, two ranks in each, over TCP and over
# MPI's own TCP. The weights equal one process's. When the link goes down, all ranks end by the deadline and
# report where they waited. Then runs as many ranks as one machine may have, over both.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
trap 'unlinked; cleaned' EXIT
integers=(--model schedules/models/integers.lua)
one_process() { # SCHEDULE ARGS...: prints the weights with all ranks in one process
    "$PIANOLA" run "schedules/$1.lua" "${integers[@]}" "${@:2}" --steps 7 2>/dev/null | sed -n 's/^weights *\([0-9a-f]*\).*/\1/p'
}
wanted=$(one_process 1f1b) # the same for every schedule

# ---- on this machine: 2, 4 and 8 ranks ----

compiled 1f1b 1f1b "${integers[@]}"
compiled gpipe gpipe "${integers[@]}" -D workers=2
compiled fslpp fslpp "${integers[@]}"
compiled ddp ddp "${integers[@]}"
for over in tcp mpi; do
    for run in "gpipe 2" "1f1b 4" "fslpp 8" "ddp 8"; do
        # shellcheck disable=SC2086
        $over $run --steps 7 --deadline 60
        ended 60
        expect "$run over $over: weights" "$wanted" "$(weights)"
    done
done

# ---- two hosts ----

host=("pianola-a-$$" "pianola-b-$$") link=("pa$$" "pb$$") address=(192.0.2.1 192.0.2.2) # addresses reserved for documentation: RFC 5737
on_hosts() { ip netns pids "${host[0]}" && ip netns pids "${host[1]}"; } 2>/dev/null
unlinked() {
    local p
    for p in $(on_hosts); do
        kill -9 "$p"
    done
    ip netns del "${host[0]}" # and of its link
    ip netns del "${host[1]}"
} 2>/dev/null
linked() {
    local i
    ip netns add "${host[0]}" && ip netns add "${host[1]}" &&
        ip link add "${link[0]}" netns "${host[0]}" type veth peer name "${link[1]}" netns "${host[1]}" || return 1
    for i in 0 1; do
        ip -n "${host[i]}" address add "${address[i]}/24" dev "${link[i]}" && ip -n "${host[i]}" link set "${link[i]}" up &&
            ip -n "${host[i]}" link set lo up || return 1
    done
} 2>/dev/null
if ! linked; then
    echo "two hosts: not tried, no network namespaces can be made here"
    finish
fi

# tcp_hosts FLAGS...: starts ranks 0 and 1 on the first host, 2 and 3 on the other.
tcp_hosts() {
    local k
    forget
    pid=()
    for k in 0 1 2 3; do
        RANK=$k WORLD_SIZE=4 MASTER_ADDR=${address[0]} MASTER_PORT=29500 ip netns exec "${host[k / 2]}" \
            "$room/1f1b/rank$k" --flight "$room" "$@" >"$room/out$k" 2>"$room/err$k" &
        pid+=($!)
    done
}
# mpi_hosts FLAGS...: the same with mpirun on the first host, and on the other the daemon that it would start through
# ssh. Each host has its own name. Without keepalives, mpirun and its daemon need minutes to notice a lost link.
cat >"$room/agent" <<'AGENT'
#!/bin/sh
shift
exec ip netns exec "$OTHER_HOST" unshare --uts sh -c "hostname b.example; $*"
AGENT
export OTHER_HOST=${host[1]}
chmod +x "$room/agent"
mpi_hosts() {
    forget
    ip netns exec "${host[0]}" unshare --uts sh -c 'hostname a.example; exec "$@"' - mpirun --oversubscribe -n 4 \
        --host "${address[0]}:2,${address[1]}:2" --mca plm_rsh_agent "$room/agent" --mca btl tcp,self \
        --mca btl_tcp_if_include 192.0.2.0/24 --mca oob_tcp_if_include 192.0.2.0/24 \
        --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 2 \
        "$room/1f1b/rank" --flight "$room" "$@" >"$room/out0" 2>"$room/err0" &
    pid=($!)
}
is_rank() { [[ $(tr '\0' ' ' <"/proc/$1/cmdline") == */rank[0-9]\ * ]]; } 2>/dev/null
# gone SECONDS PROCESS...: succeeds if the processes end within SECONDS.
gone() {
    local until=$((${EPOCHREALTIME/./} + $1 * 1000000)) p
    for p in "${@:2}"; do
        while runs "$p"; do
            ((${EPOCHREALTIME/./} < until)) || return 1
            sleep 0.02
        done
    done
}
# Messages about MASTER_ADDR, if it is not an address of rank 0, or unknown to a rank. The ranks start in the second
# host.
alone() { # RANK ADDRESS
    RANK=$1 WORLD_SIZE=2 MASTER_ADDR=$2 MASTER_PORT=29500 ip netns exec "${host[1]}" \
        "$room/gpipe/rank$1" --flight "$room" --deadline 1 2>&1
}
expect "an address that is not rank 0's" "pianola: rank 0: warning: MASTER_ADDR ${address[0]} is not an address of this machine: listening at all addresses" \
    "$(alone 0 "${address[0]}" | head -n 1)"
expect "a name that rank 0 does not know" "pianola: rank 0: warning: MASTER_ADDR no such host is a name that this machine does not know" \
    "$(alone 0 "no such host" | head -n 1)"
expect "a name that rank 1 does not know" "pianola: rank 1 of gpipe: error: MASTER_ADDR no such host: Name or service not known: \
set it to an address of rank 0's machine, or to a name that all ranks' machines can resolve" "$(alone 1 "no such host")"

# Access: without a secret, any process may join as a rank. A rank with the wrong secret gets an error; the others wait
# for one with the right secret.
joins() { # RANK: as a rank of tcp_hosts
    RANK=$1 WORLD_SIZE=4 MASTER_ADDR=${address[0]} MASTER_PORT=29500 ip netns exec "${host[$1 / 2]}" \
        "$room/1f1b/rank$1" --flight "$room" --steps 7 --deadline 30 >"$room/out$1" 2>"$room/err$1" &
    pid[$1]=$!
}
anybody='anyone who can connect to port 29500 may join this run as a rank: set the same PIANOLA_SECRET for all ranks'
tcp_hosts --steps 7 --deadline 30
ended 60
expect "two hosts without a secret: rank 0 warns once" "pianola: rank 0: warning: $anybody" "$(cat "$room"/err? | grep "$anybody")"
export PIANOLA_SECRET="a secret of this test, $$"
forget
pid=()
joins 0
PIANOLA_SECRET=${PIANOLA_SECRET}0 joins 2
wait "${pid[2]}"
expect "another secret: the rank ends" 2 $?
differs="give all ranks the same PIANOLA_SECRET"
expect "another secret: the rank reports why" yes \
    "$(says "^pianola: rank 2 of 1f1b: error: rank 0 at ${address[0]}, port 29500, has another secret than this rank 2: $differs$" 2)"
expect "another secret: rank 0 reports why" yes \
    "$(says "^pianola: rank 0: warning: turned away a connection from ${address[1]}, port [0-9]+: it calls itself rank 2, but has a different secret: $differs$")"
joins 1
joins 2
joins 3
ended 60
expect "the right secret: exit codes, weights" "0 0 0 0 $wanted" "$codes $(weights)"
expect "the right secret: no warning" "" "$(cat "$room"/err? | grep "$anybody")"
unset PIANOLA_SECRET

place='waits at [0-9]+ (RECV|SEND)_[FB] (act|grad)\([0-9],[0-9]\) (from|to) rank'
end='waits for all ranks to end the step'
deadline=4
for over in tcp mpi; do
    ${over}_hosts --steps 7 --deadline 30
    ended 60
    expect "two hosts over $over: weights" "$wanted" "$(weights)"

    # Takes the link down.
    ${over}_hosts --steps 1000000 --deadline $deadline
    begun && sleep 0.5
    ranks=()
    for p in $(on_hosts); do
        ! is_rank "$p" || ranks+=("$p")
    done
    expect "two hosts over $over: ranks" 4 ${#ranks[@]}
    ip -n "${host[0]}" link set "${link[0]}" down
    gone $((deadline + 3)) "${ranks[@]}"
    expect "no link, over $over: all ranks end by the deadline" 0 $?
    ended 10
    expect "no link, over $over: exit codes" yes "$(grep -qE "$([ $over = tcp ] && echo '^1 1 1 1$' || echo '^[1-9][0-9]*$')" <<<"$codes" && echo yes)"
    # mpirun may not receive the output of the other host's ranks; their flight records stay there.
    for k in 0 1 2 3; do
        expect "no link, over $over: rank $k reports where it waits" yes \
            "$(head -n 1 "$room/flight-rank$k.txt" | grep -qE "^rank $k of 1f1b ($place [0-9]|$end): step [0-9]+ has taken $deadline s \(--deadline\)$" && echo yes)"
    done
    expect "no link, over $over: a rank waits for a rank on the other host" yes \
        "$(grep -qE "^rank (1 of 1f1b $place 2|2 of 1f1b $place 1): " "$room"/flight-rank[12].txt && echo yes)"
    # shellcheck disable=SC2046
    gone 5 $(on_hosts)
    expect "no link, over $over: nothing is left running" 0 $?
    ip -n "${host[0]}" link set "${link[0]}" up
done
finish
