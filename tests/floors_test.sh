#!/usr/bin/env bash
# Proves that tests/floors.sh fails on each broken rule: a small house that keeps them all, then one bad line at a time.
set -u
cd "$(dirname "$0")/.."
house=$(mktemp -d)
trap 'rm -rf "$house"' EXIT
passed=0 failed=0

build_house() {
    rm -rf "${house:?}"/*
    mkdir "$house"/{compiler,runtime,schedules,tests}
    cd "$house" || exit 2
    printf '#include "base.h"\n#include "../runtime/ops.h"\n' >compiler/ir.h
    printf '#include "ir.h"\n' | tee compiler/pass.h compiler/message.c >compiler/ir.c
    printf '#include "base.h"\n#include <stdio.h>\n' | tee compiler/base.c compiler/map.h >compiler/diag.c
    printf '#include "pass.h"\n#include "map.h"\n#include "lower.h"\n' | tee compiler/fetch.c >compiler/lower_weights.c
    printf '#include "pass.h"\n#include "script.h"\n#include "prelude.h"\n#include <lua.h>\n' >compiler/script_job.c
    printf '#include "pass.h"\n' | tee compiler/compile.h compiler/lower.h compiler/script.h >compiler/sched.c
    printf '#include "pass.h"\n#include "../runtime/rt.h"\n#include "../runtime/replay.h"\n' >compiler/run.c
    printf '#include "compile.h"\n#include "lower.h"\n' >compiler/pipeline.c
    printf '#include "compile.h"\n#include "../runtime/checkpoint.h"\n' >compiler/weights.c
    printf '#include "ops.h"\n' | tee runtime/rt.h runtime/replay.h >runtime/data.c
    printf '#include "rt.h"\n#include <nccl.h>\n#include <cuda_runtime.h>\n' >runtime/comm_nccl.cu
    printf '#include "rt.h"\n#include <mpi.h>\n' >runtime/comm_mpi.c
    printf '#include "rt.h"\n#include <cublasLt.h>\n' >runtime/linear.cu
    touch compiler/base.h compiler/main.c runtime/ops.h runtime/checkpoint.h schedules/gpipe.lua tests/test_base.c
    cd - >/dev/null || exit 2
}

# expect STATUS WHAT: floors.sh on the house must end with that status; a 1 with a complaint about WHAT, first of all.
expect() {
    local got status=0
    got=$(tests/floors.sh "$house" 2>&1 | grep -v '^ *[0-9]* of '; exit "${PIPESTATUS[0]}") || status=$?
    if [ $status = "$1" ] && { [ "$1" = 0 ] || [[ $got == "$2:"* ]]; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'expected exit %d about %s, got exit %d and:\n%s\n' "$1" "$2" $status "$got"
    fi
}

# breaks FILE LINE: the house with LINE added to FILE must be refused.
breaks() {
    build_house
    echo "$2" >>"$house/$1"
    expect 1 "$1"
}

build_house
expect 0 ""
breaks runtime/data.c '#include "../compiler/base.h"'
breaks runtime/data.c '#include "base.h"'
breaks compiler/sched.c '#include "../runtime/rt.h"'
breaks compiler/main.c '  #  include "../runtime/rt.h"'
breaks compiler/main.c '#include "../runtime/checkpoint.h"'
breaks compiler/base.c '#include "ir.h"'
breaks compiler/diag.c '#include "../runtime/ops.h"'
breaks compiler/base.h '#include "pass.h"'
breaks compiler/map.h '#include "ir.h"'
breaks compiler/ir.c '#include "pass.h"'
breaks compiler/ir.h '#include "pass.h"'
breaks compiler/message.c '#include "lower.h"'
breaks compiler/pass.h '#include "lower.h"'
breaks compiler/sched.c '#include "lower.h"'
breaks compiler/sched.c '#include "prelude.h"'
breaks compiler/sched.c '#include "compile.h"'
breaks compiler/sched.c '#include "../tests/test_base.c"'
breaks compiler/sched.c '#include <lua.h>'
breaks compiler/run.c '#include <lauxlib.h>'
breaks runtime/data.c '#include <lua5.4/lua.h>'
breaks runtime/data.c '#include <nccl.h>'
breaks runtime/data.c '#include <mpi.h>'
breaks runtime/data.c '#include <cuda_runtime.h>'
breaks compiler/sched.c '#include <cuda_runtime.h>'
breaks compiler/sched.c 'int *p = malloc(4);'
breaks runtime/sched.c ''
build_house
seq 601 >"$house/compiler/sched.c"
expect 1 compiler/sched.c
seq 600 >"$house/compiler/sched.c"
expect 0 ""
echo "$passed passed, $failed failed"
[ $failed = 0 ]
