#!/usr/bin/env bash
# No verdict depends on the shell, launcher, make or processor that started a test. A suite sees the same environment
# however tests/run or the script itself was started, and some quick suites pass in each.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT

# Variables set by users, launchers, clusters and make, and by a machine whose owner chose OpenBLAS's kernels.
hostile=(COLUMNS=20 LINES=3 NO_COLOR=1 CLICOLOR_FORCE=1 FORCE_COLOR=1 TERM=xterm-256color LANG=de_DE.UTF-8 LANGUAGE=de
    LC_ALL=tr_TR.UTF-8 LC_NUMERIC=de_DE.UTF-8 TZ=Pacific/Chatham RANK=3 WORLD_SIZE=8 LOCAL_RANK=3 MASTER_ADDR=10.9.9.9
    MASTER_PORT=1 SLURM_PROCID=2 SLURM_NTASKS=4 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_btl=none PMI_RANK=1
    PMIX_RANK=1 OMP_NUM_THREADS=3 MKL_NUM_THREADS=3 OPENBLAS_NUM_THREADS=64 GOTO_NUM_THREADS=64 OPENBLAS_VERBOSE=2
    LIBXSMM_TARGET=snb LIBXSMM_VERBOSE=2 PIANOLA_CUDA=/nowhere.so PIANOLA_SECRET=short STANDIN_DEVICES=7 NCCL_DEBUG=INFO
    CUDA_LAUNCH_BLOCKING=1 MAKEFLAGS=n MAKELEVEL=2 GREP_COLORS=mt=1 POSIXLY_CORRECT=1 CDPATH=/tmp XDG_CONFIG_HOME=/nowhere
    MALLOC_PERTURB_=85 PYTHONOPTIMIZE=2 LUA_PATH=/nowhere BASH_ENV=/nowhere GIT_DIR=/nowhere MANWIDTH=30)
hostile() { (umask 077 && OPENBLAS_CORETYPE=Prescott env "${hostile[@]}" taskset -c "$first" "$@" 2>/dev/null); }
first=$(taskset -pc $$ | sed 's/.*[ :]\([0-9]*\).*/\1/') # among the processors this process may use

# seen: prints the variables' names and values, and the modes of new files, except for what differs from run to run.
cat >"$room/seen.sh" <<'END'
cd "$(dirname "$0")" && seen=$(env | grep -vE '^(_|SHLVL|OLDPWD|[AT]SAN_OPTIONS|OPENBLAS_CORETYPE)=' | sort) && umask && echo "$seen"
exit 1
END
{ echo "cd ${PWD@Q}; . tests/support/lib.sh"; cat "$room/seen.sh"; } >"$room/alone.sh"
seen() { sed -n 's/^    | //p'; }
expect "a suite's environment, started in another way" "" "$(diff <(tests/run "$room/seen.sh" | seen) <(hostile tests/run "$room/seen.sh" | seen))"
expect "a script's environment, started by itself in another way" "" "$(diff <(bash "$room/alone.sh") <(hostile bash "$room/alone.sh"))"
expect "a suite's environment" "0022 LC_ALL=C.UTF-8 TERM=dumb TZ=UTC" \
    "$(tests/run "$room/seen.sh" | seen | grep -xE '0[0-9]+|(LC_ALL|TERM|TZ)=.*' | paste -sd' ')"

# Every script sets its environment, itself or through lib.sh.
expect "scripts that do not set their environment" "" "$(grep -LE '^\. .*support/(lib|environment)\.sh"?$' tests/*/*/test.sh tests/run)"

printf '%s\n' 'yes | head -n 1 >/dev/null' 'echo "${PIPESTATUS[0]}"' 'exit 1' >"$room/stops.sh"
expect "a reader that closes the pipe ends the writer" 141 "$(trap '' PIPE; tests/run "$room/stops.sh" | seen)"

for suite in tests/formats/text_input/test.sh build/asan/tests/unit/test_{blas_host,launch,product,tcp_meet}; do
    expect "$suite" ok "$(hostile tests/run "$suite" | sed -n '1s/ .*//p')"
done
finish
