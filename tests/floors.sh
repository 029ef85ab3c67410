#!/usr/bin/env bash
# The floors of the house: which file may include which, who allocates, how long a file may be, and that names differ.
# Usage: tests/floors.sh [ROOT]. Prints each file's lines against the budget; exit 1 when a rule is broken.
#
#   runtime/   includes nothing of compiler/; CUDA is for .cu files, NCCL for comm_nccl.cu, MPI for comm_mpi.c
#   compiler/  base.h map.h | ir.h | pass.h | passes, scripts, emitters | compile.h options.h compare.c completion.c diff.c files.c
#              folder.c help.c main.c man.c measured.c options.c pipeline.c run.c weights.c
#              A file includes the headers of lower floors, and private headers of its own name (script_job.c: script.h)
#              besides those in the list below. Of runtime/ it includes ops.h only; run.c, which replays what was
#              compiled, and weights.c, which merges checkpoints, may include the others. Only base.c allocates, and
#              script*.c, which gives Lua its memory. Only script*.c knows Lua.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
budget=600
shared='fetch.c:lower.h layout.c:cost.h svg.c:page.h emit_svg.c:svg.h diff_svg.c:svg.h' # FILE:HEADER, private headers of another name that a file may include

lines() {
    awk -v shared=" $shared " '
    function broken(why) { printf "%s:%d: includes %s: %s\n", FILENAME, FNR, name, why; bad = 1 }
    function floor_of(file) { # of a file of compiler/, by its name
        if (file ~ /^(base\.[ch]|diag\.c|map\.h)$/) return 1
        if (file ~ /^(ir\.[ch]|message\.c)$/) return 2
        if (file == "pass.h") return 3
        return file ~ /^(compile\.h|options\.h|(compare|completion|diff|files|folder|help|main|man|measured|options|pipeline|run|weights)\.c)$/ ? 5 : 4
    }
    function check_compiler(   stem) {
        if (name ~ /^\.\.\/runtime\//) {
            if (name != "../runtime/ops.h" && file !~ /^(run|weights)\.c$/)
                broken("compiler/ includes only ops.h of runtime/")
            else if (floor_of(file) < 2) broken("this floor stands below the instructions")
        } else if (name ~ /\//) broken("no such room")
        else if (floor_of(name) > floor_of(file)) broken("that floor is above this one")
        else if (floor_of(name) == 4) {
            stem = name
            sub(/\.h$/, "", stem)
            if (stem == "prelude") stem = "script"
            if (floor_of(file) == 4 && index(file, stem) != 1 && !index(shared, " " file ":" name " "))
                broken("a private header, for " stem "*.c")
        }
    }
    /(^|[^A-Za-z0-9_])(malloc|calloc|realloc|strdup)\(/ && FILENAME ~ /^compiler/ {
        if (FILENAME ~ /\/(base|script[a-z_]*)\.c$/) next
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
        if (name ~ /^(lua5\.4\/)?(lua|lualib|lauxlib|luaconf)\.hp*$/ && FILENAME !~ /^compiler\/script[^\/]*$/)
            broken("only script*.c knows Lua")
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
