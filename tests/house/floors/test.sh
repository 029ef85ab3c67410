#!/usr/bin/env bash
# Proves that tests/house/floors/floors.sh fails on each broken rule: a small project that keeps all rules, then one bad
# line at a time.
set -u
cd "$(dirname "$0")/../../.."
. tests/support/environment.sh
house=$(mktemp -d)
trap 'rm -rf "$house"' EXIT
passed=0 failed=0

build_house() {
    rm -rf "${house:?}"/*
    mkdir -p "$house"/compiler/{base,ir,passes,verify,formats,script,cli,models,search/{optimal,tune,bound}} "$house"/runtime/{store,layers,device,comm} \
        "$house"/{schedules,tests/unit}
    grep '^| `\|^$\|^| wing ' compiler/README.md | grep -v 'draw`\|diff`' >"$house/compiler/README.md"
    grep '^| `' runtime/README.md | grep -v 'process`\|rank`' >"$house/runtime/README.md"
    cd "$house" || exit 2
    printf '#include "base/base.h"\n#include "../../runtime/ops.h"\n' >compiler/ir/program.h
    printf '#include "program.h"\n' >compiler/ir/program.c
    printf '#include "base.h"\n#include <stdio.h>\n' | tee compiler/base/base.c compiler/base/map.h >compiler/base/diag.c
    printf '#include "base/map.h"\n#include "ir/program.h"\n#include "lower.h"\n' >compiler/passes/fetch.c
    printf '#include "ir/program.h"\n' | tee compiler/passes/{lower,passes}.h compiler/verify/verify.h compiler/verify/races.c >compiler/passes/sched.c
    printf '#include "passes/passes.h"\n' | tee compiler/formats/formats.h >compiler/formats/text.c
    printf '#include "formats/formats.h"\n#include "prelude.h"\n#include <lua.h>\n' >compiler/script/script_job.c
    printf '#include "passes/passes.h"\n#include "verify/verify.h"\n#include "../../runtime/rt.h"\n' >compiler/cli/run.c
    printf '#include "cli/command.h"\n#include "../../runtime/rt.h"\n' >compiler/models/tokens.h
    printf '#include "search/optimal/search.h"\n' >compiler/search/tune/tune.c
    printf '#include "base/base.h"\n' | tee compiler/search/optimal/search.h >compiler/search/bound/bound.c
    printf '#include "ops.h"\n' >runtime/rt.h
    printf '#include "rt.h"\n' | tee runtime/device/replay.h runtime/layers/cuda.cuh >runtime/store/data.c
    printf '#include "rt.h"\n#include "device/replay.h"\n#include "layers/cuda.cuh"\n#include <nccl.h>\n#include <cuda_runtime.h>\n' >runtime/comm/comm_nccl.cu
    printf '#include "rt.h"\n#include <mpi.h>\n' >runtime/comm/comm_mpi.c
    printf '#include "cuda.cuh"\n#include <cublasLt.h>\n' >runtime/layers/linear.cu
    touch compiler/base/base.h compiler/cli/{command.h,main.c} runtime/ops.h runtime/store/checkpoint.h schedules/gpipe.lua tests/unit/test_base.c
    cd - >/dev/null || exit 2
}

# expect STATUS WHAT: floors.sh must end with that status on the project; for 1, its first complaint must name WHAT.
expect() {
    local got status=0
    got=$(tests/house/floors/floors.sh "$house" 2>&1) || status=$?
    if [ $status = "$1" ] && { [ "$1" = 0 ] || [[ $got == "$2:"* ]]; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'expected exit %d about %s, got exit %d and:\n%s\n' "$1" "$2" $status "$got"
    fi
}

# breaks FILE LINE: floors.sh must reject the project with LINE added to FILE.
breaks() {
    build_house
    echo "$2" >>"$house/$1"
    expect 1 "$1"
}

build_house
expect 0 ""
breaks runtime/store/data.c '#include "../compiler/base/base.h"'
breaks runtime/store/data.c '#include "base.h"'
breaks runtime/store/data.c '#include "../../compiler/base/base.h"'
breaks runtime/store/data.c '#include "device/replay.h"'
breaks runtime/store/data.c '#include "../device/replay.h"'
breaks runtime/store/data.c '#include "../../runtime/rt.h"'
breaks runtime/layers/linear.cu '#include "device/replay.h"'
breaks runtime/device/replay.h '#include "comm/world.h"'
breaks runtime/rt.h '#include "store/checkpoint.h"'
breaks compiler/passes/sched.c '#include "../../runtime/rt.h"'
breaks compiler/formats/text.c '  #  include "../../runtime/rt.h"'
breaks compiler/base/base.c '#include "ir/program.h"'
breaks compiler/base/diag.c '#include "../../runtime/ops.h"'
breaks compiler/base/map.h '#include "passes/passes.h"'
breaks compiler/ir/program.c '#include "passes/passes.h"'
breaks compiler/verify/races.c '#include "passes/lower.h"'
breaks compiler/verify/races.c '#include "formats/formats.h"'
breaks compiler/passes/sched.c '#include "verify/verify.h"'
breaks compiler/passes/sched.c '#include "formats/formats.h"'
breaks compiler/passes/sched.c '#include "prelude.h"'
breaks compiler/passes/sched.c '#include "map.h"'
breaks compiler/passes/sched.c '#include "../base/base.h"'
breaks compiler/passes/sched.c '#include "../tests/test_base.c"'
breaks compiler/formats/text.c '#include "verify/verify.h"'
breaks compiler/passes/sched.c '#include <lua.h>'
breaks compiler/cli/run.c '#include <lauxlib.h>'
breaks compiler/cli/run.c '#include "models/tokens.h"'
breaks compiler/search/bound/bound.c '#include "search/optimal/search.h"'
breaks compiler/search/bound/bound.c '#include "passes/passes.h"'
breaks compiler/search/tune/tune.c '#include "search.h"'
breaks compiler/models/tokens.h '#include <lua.h>'
breaks compiler/main.c '#include "base.h"'
breaks runtime/store/data.c '#include <lua5.4/lua.h>'
breaks runtime/store/data.c '#include <nccl.h>'
breaks runtime/store/data.c '#include <mpi.h>'
breaks runtime/store/data.c '#include <cuda_runtime.h>'
breaks compiler/passes/sched.c '#include <cuda_runtime.h>'
breaks compiler/passes/sched.c 'int *p = malloc(4);'
breaks compiler/base/diag.c 'int *p = malloc(4);'
# Listing a wing does not allow the core to include it.
build_house
sed -i -E '/^. `cli`/s/diff \|$/diff models |/' "$house/compiler/README.md"
echo '#include "models/tokens.h"' >>"$house/compiler/cli/run.c"
expect 1 compiler/cli/run.c
echo "$passed passed, $failed failed"
[ $failed = 0 ]
