#!/usr/bin/env bash
# Checks the floors of the house: which file may include which, and who allocates. tests/house/tidy has the other rules.
# Usage: tests/house/floors/floors.sh [ROOT]. Exits 1 when a rule is broken. A folder of compiler/ or runtime/ includes
# its own headers and those in the folders that the README's tables there list for it. The second table of
# compiler/README.md has the wings, which no folder of the first may include. runtime/ includes nothing of compiler/;
# all of its folders may include its top. compiler/ includes only ops.h, model.h, attention.h, parameters.h, kinds.h and
# rt_program.h of runtime/. Exceptions: base/, which stands below the instructions, includes none of them; cli/, which
# replays what was compiled, and the wings may include any of runtime/. Only base/base.c allocates, and script/, which
# gives Lua its memory. Only script/ knows Lua, only .cu files CUDA, only comm_nccl*.cu NCCL, and only comm_mpi.c MPI.
set -u
. "$(dirname "$0")/../../support/environment.sh"
cd "${1:-$(dirname "$0")/../../..}" || exit 2

# Prints the tables' rows as "house/room:room room:", one for each folder; a wing's as "house/room:room room:wing".
rows() {
    awk -v house=$1 '/^\| wing \|/ { wing = "wing" } !/^\|/ { wing = "" }
        match($0, /^\| `[a-z\/]+` \|/) { split($0, cell, "`"); n = split($0, part, "|")
            if (part[n - 1] ~ /^[a-z\/ ]*$/) print house "/" cell[2] ":" part[n - 1] ":" wing }' $1/README.md
}
table=$(rows compiler; rows runtime)

lines() {
    awk -v table="$table" '
    function broken(why) { printf "%s:%d: includes %s: %s\n", FILENAME, FNR, name, why; bad = 1 }
    function exists(file) { return system("test -f " file) == 0 }
    BEGIN {
        n = split(table, row, "\n")
        for (i = 1; i <= n; i++) {
            split(row[i], part, ":")
            lower[part[1]] = " " part[2] " "
            if (part[3] != "") wing[part[1]] = 1
        }
    }
    # name: "x.h" in the same room; "room/x.h"; or, from the compiler, "../../runtime/x.h".
    function check(   house, room, into) {
        house = room = FILENAME
        sub(/\/.*/, "", house)
        sub(/\/[^\/]*$/, "", room)
        if (room == "runtime") { # a header at the top of runtime/
            if (name !~ /^[a-z_]+\.h$/ || !exists("runtime/" name)) broken("the top of runtime/ includes no other folder")
        } else if (!(room in lower))
            broken("no such folder in the tables of " house "/README.md")
        else if (name ~ /^\.\.\/\.\.\/runtime\//) {
            if (room == "compiler/base") broken("this floor stands below the instructions")
            else if (house != "compiler" || room != "compiler/cli" && !(room in wing) && name !~ /\/(ops|model|attention|parameters|kinds|rt_program)\.h$/)
                broken(house "/ includes only ops.h, model.h, attention.h, parameters.h, kinds.h and rt_program.h of runtime/ by a path with ..")
        } else if (name ~ /^[a-z]+(\/[a-z]+)?\/[a-z_0-9]+\.(cu|cuh|h)$/) {
            into = name
            sub(/\/[^\/]*$/, "", into)
            if ((house "/" into) in wing && !(room in wing))
                broken("the core includes no wing")
            else if (!index(lower[room], " " into " ") || !exists(house "/" name))
                broken("the table of " house "/README.md does not let " room "/ include it")
        } else if (name ~ /\// || !(exists(room "/" name) || house == "runtime" && exists("runtime/" name) ||
                                    room == "compiler/script" && name == "prelude.h" || room == "compiler/draw" && name == "page.h" ||
                                    room == "compiler/cli" && name == "unit_text.h"))
            broken("no such header in this folder")
    }
    /(^|[^A-Za-z0-9_])(malloc|calloc|realloc|strdup)\(/ && FILENAME ~ /^compiler/ {
        if (FILENAME ~ /^compiler\/(base\/base\.c$|script\/)/) next
        printf "%s:%d: only base.c allocates in compiler/\n", FILENAME, FNR
        bad = 1
    }
    !/^[ \t]*#[ \t]*include/ { next }
    {
        name = $0
        quoted = sub(/^[^"]*"/, "", name)
        if (!quoted) sub(/^[^<]*</, "", name)
        sub(/[">].*$/, "", name)
        if (quoted) check()
        if (name ~ /^(lua5\.4\/)?(lua|lualib|lauxlib|luaconf)\.hp*$/ && FILENAME !~ /^compiler\/script\//)
            broken("only script/ knows Lua")
        if (!quoted && name ~ /(^|\/)nccl/ && FILENAME !~ /\/comm_nccl[a-z_]*\.cuh?$/) broken("only comm_nccl*.cu know NCCL")
        if (!quoted && name ~ /(^|\/)mpi\.h$/ && FILENAME !~ /\/comm_mpi\.c$/) broken("only comm_mpi.c knows MPI")
        if (!quoted && name ~ /(^|\/)(cuda|cublas|nv)[^\/]*$/ && FILENAME !~ /^runtime\/.*\.cuh?$/)
            broken("only .cu files know CUDA")
    }
    END { exit bad }' "$@"
}

code=$(find compiler runtime -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort)
lines $code
