# For test scripts: . tests/support/lib.sh. Runs the real command and compares figures from its JSON.
PIANOLA=${PIANOLA:-build/pianola}
. tests/support/environment.sh
passed=0 failed=0
BLAS="openblas$([ "$(uname -m)" != x86_64 ] || echo " libxsmm")" # for pkg-config, as in the Makefile
GLOBIGNORE=schedules/pianola.d.lua:pianola.d.lua # this file describes scripts to editors; all others are schedules
shopt -u dotglob # setting GLOBIGNORE also set dotglob

# figure FIELD ARGS...: prints a figure of the whole schedule. ranks FIELD ARGS...: prints one per rank, with commas.
json() { "$PIANOLA" show --json "$@" 2>&1; }
figure() { json "${@:2}" | sed -nE "s/^  \"$1\": \"?([^,\"]*)\"?,?$/\1/p;/error:/p"; }
ranks() { json "${@:2}" | sed -nE "s/^      \"$1\": ([^,]*),?$/\1/p;/error:/p" | paste -sd,; }

# field NAME: prints that field of a run's or a program's JSON.
field() { sed -nE "s/^  \"$1\": \"?([^,\"]*)\"?,?$/\1/p"; }

# several_updates SCHEDULE: succeeds if stages are updated within a step, so that training differs from one rank's;
# tests/training/asynchronous checks such schedules.
several_updates() { "$PIANOLA" show "$1" --format streams | grep -q '^updates '; }

has_teams() { "$PIANOLA" show "$1" --format streams | grep -q '^team '; }

# expect WHAT WANTED GOT
expect() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: expected $2, got $3"
    fi
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
    exit
}
