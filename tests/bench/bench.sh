#!/usr/bin/env bash
# How fast a schedule becomes a verified program: jobs per second at 10^4, 10^5 and 10^6 jobs.
set -eu
cd "$(dirname "$0")/../.."
for batches in 625 6250 62500; do # 8 stages, F and B
    jobs=$((2 * 8 * batches))
    begin=${EPOCHREALTIME/./}
    build/pianola check schedules/1f1b.lua -D workers=8 -D batches=$batches >/dev/null
    awk -v jobs=$jobs -v us=$((${EPOCHREALTIME/./} - begin)) \
        'BEGIN { printf "%8d jobs %8.2f s %10.0f jobs/s\n", jobs, us / 1e6, jobs / (us / 1e6) }'
done
