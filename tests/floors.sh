#!/usr/bin/env bash
# The floors of the house: which file may include which, who allocates, how long a file may be, and that names differ.
# Usage: tests/floors.sh [ROOT]. Prints each file's lines against the budget; exit 1 when a rule is broken.
#
#   runtime/   includes nothing of compiler/; CUDA is for .cu files, NCCL for comm_nccl.cu, MPI for comm_mpi.c
#   compiler/  a folder includes what the table in compiler/README.md lists for it. Of runtime/ it includes ops.h only;
#              cli/, which replays what was compiled and merges checkpoints, may include the others. Only base/base.c
#              allocates, and script/, which gives Lua its memory. Only script/ knows Lua.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
budget=600

# The table's rows as ":room: room room:", one for each folder.
table=$(sed -nE 's/^\| `([a-z]+)` \|.*\|([a-z ]*)\|$/:\1:\2 /p' compiler/README.md)

lines() {
    awk -v table="$table" '
    function broken(why) { printf "%s:%d: includes %s: %s\n", FILENAME, FNR, name, why; bad = 1 }
    BEGIN {
        n = split(table, row, "\n")
        for (i = 1; i <= n; i++) {
            split(row[i], part, ":")
            lower[part[2]] = part[3] " "
        }
    }
    function check_compiler(   at, room, into) {
        split(FILENAME, at, "/")
        room = at[2]
        if (!(room in lower)) { broken("no such room in the table of compiler/README.md"); return }
        if (name ~ /^\.\.\/\.\.\/runtime\//) {
            if (room != "cli" && (name != "../../runtime/ops.h" || room == "base"))
                broken(room == "base" ? "this floor stands below the instructions" : "compiler/ includes only ops.h of runtime/")
        } else if (name ~ /^[a-z]+\/[a-z_0-9]+\.h$/) {
            into = name
            sub(/\/.*/, "", into)
            if (!index(" " lower[room], " " into " ")) broken("the table of compiler/README.md does not let " room "/ include it")
        } else if (name ~ /\// || (system("test -f compiler/" room "/" name) && !(room == "script" && name == "prelude.h") && !(room == "draw" && name == "page.h")))
            broken("no such header in this room")
    }
    /(^|[^A-Za-z0-9_])(malloc|calloc|realloc|strdup)\(/ && FILENAME ~ /^compiler/ {
        if (FILENAME ~ /^compiler\/(base\/base\.c$|script\/)/) next
        printf "%s:%d: only base.c allocates in compiler/\n", FILENAME, FNR
        bad = 1
    }
    !/^[ \t]*#[ \t]*include/ { next }
    {
        file = FILENAME
        sub(/^.*\//, "", file)
        name = $0
        quoted = sub(/^[^"]*"/, "", name)
        if (!quoted) sub(/^[^<]*</, "", name)
        sub(/[">].*$/, "", name)
        room = FILENAME
        sub(/\/.*$/, "", room)

        if (quoted && room == "compiler") check_compiler()
        if (quoted && room == "runtime" && (name ~ /\// || system("test -f runtime/" name)))
            broken("runtime/ includes only its own headers")
        if (name ~ /^(lua5\.4\/)?(lua|lualib|lauxlib|luaconf)\.hp*$/ && FILENAME !~ /^compiler\/script\//)
            broken("only script/ knows Lua")
        if (name ~ /(^|\/)nccl/ && FILENAME != "runtime/comm_nccl.cu") broken("only comm_nccl.cu knows NCCL")
        if (name ~ /(^|\/)mpi\.h$/ && FILENAME != "runtime/comm_mpi.c") broken("only comm_mpi.c knows MPI")
        if (name ~ /(^|\/)(cuda|cublas|nv)[^\/]*$/ && FILENAME !~ /^runtime\/[^\/]*\.cuh?$/)
            broken("only .cu files know CUDA")
    }
    END { exit bad }' "$@"
}

sizes() {
    wc -l "$@" | awk -v budget=$budget '
    $2 == "total" { next }
    { printf "%5d of %d  %s\n", $1, budget, $2 }
    $1 > budget { long = long sprintf("%s: %d lines, and the budget is %d: split it by meaning\n", $2, $1, budget) }
    END { printf "%s", long; exit long != "" }'
}

# Members of the library go by file name alone, and so do people.
names() {
    printf '%s\n' "$@" | awk '
    { name = $0; sub(/^.*\//, "", name) }
    name in seen { printf "%s: the same name as %s\n", $0, seen[name]; bad = 1 }
    { seen[name] = $0 }
    END { exit bad }'
}

status=0
code=$(find compiler runtime -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort)
sizes $code $(find schedules tests -name '*.[ch]' -o -name '*.lua' -o -name '*.sh' | LC_ALL=C sort) || status=1
lines $code || status=1
names $code || status=1
exit $status
