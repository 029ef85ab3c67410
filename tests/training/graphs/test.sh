#!/usr/bin/env bash
# Models whose stages form a graph: a stage that reads several stages gets their sum, and a stage with several readers
# gets the sum of their gradients. They are proved, and train to the bits of the same function as a chain. The matrix
# (tests/training/matrix/schedules.tsv, feature graphs) has their training under other schedules.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

weights() { "$PIANOLA" run "$@" --steps 3 --json 2>&1 | sed -nE 's/^  "weights": "(.*)",?$/\1/p;/error:/p'; }
# Compares one function as a chain with a residual block and as three stages.
chain=$(weights schedules/serial.lua --model tests/training/graphs/chain.lua -D stages=1)
expect "the chain has weights" 16 "${#chain}"
expect "a residual block as stages" "$chain" "$(weights schedules/graph.lua --model tests/training/graphs/stages.lua -D workers=3 -D batches=8)"
expect "a residual block as stages, on one rank" \
    "$chain" "$(weights schedules/serial.lua --model tests/training/graphs/stages.lua -D stages=3)"

# Stages of attention alone have no weights to send, which equals a w without homes for them.
sed 's/return layer(s) % P, rank(s, b) end/return not is_attention(s) and layer(s) % P or nil, rank(s, b) end/' schedules/helixpipe.lua >"$work/helixpipe.lua"
for file in schedules/helixpipe.lua "$work/helixpipe.lua"; do
    "$PIANOLA" show "$file" --model schedules/models/gpt_stages.lua -D layers=3 --format streams >"$work/$(dirname "$file" | tr / _)"
done
expect "helixpipe without homes of attention" "" "$(cmp "$work/schedules" "$work/$(tr / _ <<<"$work")" 2>&1)"
expect "helixpipe's stages without weights" "bare 2 6 10" "$(grep '^bare' "$work/schedules")"
expect "no weights or gradients are sent" 0 "$(grep -cE '^(FETCH|SERVE|SEND_G|ALL_REDUCE) ' "$work/schedules")"
# A script's own pred() must include what the model's stages read.
cat >"$work/pred.lua" <<'END'
return schedule {
  workers = 3, stages = 3, batches = 1, w = function(s) return s, s end,
  pred = function(s, b, d)
    if d == "F" then return s > 0 and { { s - 1, b, "F" } } or {} end
    return s < 2 and { { s, b, "F" }, { s + 1, b, "B" } } or { { s, b, "F" } }
  end,
}
END
expect "a pred that leaves out what a stage reads" "pred() of 0B0 does not list 2B0, whose grad it reads" \
    "$("$PIANOLA" check "$work/pred.lua" --model schedules/models/legs.lua 2>&1 | grep -o 'pred() of .* reads')"

# Ranks as processes, and programs read from the text form.
"$PIANOLA" show schedules/graph.lua --model schedules/models/unet.lua --format streams >"$work/streams.txt"
expect "the program is proved from its text" "$work/streams.txt: proved: graph on 4 ranks, at any speed of ranks and links" "$("$PIANOLA" verify "$work/streams.txt" 2>&1)"
expect "the program is refuted if a term is dropped" 1 \
    "$(sed '/^rank 3 lane compute/,/^rank 3 lane/s/ x=act(0,0)//' "$work/streams.txt" | "$PIANOLA" verify - >/dev/null 2>&1; echo $?)"
finish
