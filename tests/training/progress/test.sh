#!/usr/bin/env bash
# Checks the progress line of training: one line that is overwritten in a terminal, plain lines without escape sequences
# elsewhere; for `run` and for ranks as processes. live.py is the terminal.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
model=(-D workers=1 -D batches=2 --model schedules/models/gpt.lua)
export PKG_CONFIG_PATH=$PWD/build:${PKG_CONFIG_PATH-}
"$PIANOLA" compile schedules/1f1b.lua "${model[@]}" -o "$room/ranks" && make -s -C "$room/ranks" || exit 2
at=(--rank 0 --world-size 1 --master-addr 127.$((1 + $$ / 250 % 250)).$(($$ % 250)).1 --master-port 29500)

for who in run rank; do
    case $who in
    run) what=("$PIANOLA" run schedules/1f1b.lua "${model[@]}") ;;
    rank) what=("$room/ranks/rank0" "${at[@]}") ;;
    esac
    what+=(--data /usr/share/common-licenses/GPL-3 --steps 40 --val README.md --val-every 20)
    expect "$who: in a terminal" "40 of 40 told, rewritten, and one line left, beside 3 of validation" "$(timeout 60 python3 tests/training/progress/live.py 40 "${what[@]}" 2>&1)"
    timeout 60 "${what[@]}" >"$room/out" 2>"$room/err"
    expect "$who: no terminal: lines" 1 "$(grep -c '^training: step 40/40  loss [0-9.]*  rate [0-9.e-]*  [0-9]* tokens/s  0 s left$' "$room/err")"
    expect "$who: no terminal: no escape sequences" 0 "$(cat "$room/out" "$room/err" | grep -c $'\r\|\033')"
    expect "$who: progress does not go to stdout" 0 "$(grep -c '^training: step' "$room/out")"
done
finish
