#!/usr/bin/env bash
# Models whose stages form a graph: a stage that reads several stages gets their sum, and a stage with several readers
# gets the sum of their gradients. They are proved, and train as one rank does, under schedules not written for them.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

weights() { "$PIANOLA" run "$@" --steps 3 --json 2>&1 | sed -nE 's/^  "weights": "(.*)",?$/\1/p;/error:/p'; }
as_one_rank() { # NAME ARGS...
    expect "$1: as one rank" "losses differ by 0 at most (relative), weights equal bit for bit" \
        "$("$PIANOLA" run "${@:2}" --steps 3 --compare 2>&1 | sed -n 's/^one rank .*steps: //p;/error:/p')"
}

# Compares one function as a chain with a residual block and as three stages.
chain=$(weights schedules/serial.lua --model tests/training/graphs/chain.lua -D stages=1)
expect "there are weights" 16 "${#chain}"
expect "a residual block as stages" "$chain" "$(weights schedules/graph.lua --model tests/training/graphs/stages.lua -D workers=3 -D batches=8)"
expect "and on one rank" "$chain" "$(weights schedules/serial.lua --model tests/training/graphs/stages.lua -D stages=3)"

for depth in 1 2 3; do
    legs="--model schedules/models/legs.lua -D depth=$depth"
    unet="--model schedules/models/unet.lua -D depth=$depth"
    for split in false true; do
        # shellcheck disable=SC2086
        {
            as_one_rank "legs, depth $depth, split $split" schedules/graph.lua $legs -D workers=$((2 * depth + 1)) -D split=$split
            as_one_rank "unet, depth $depth, split $split" schedules/graph.lua $unet -D workers=$((2 * depth)) -D split=$split
        }
    done
done
# Attention as stages of their own, on other ranks than the layers around them. Sums of gradients are in reverse order,
# so results match up to rounding.
for set in "workers=2 layers=2" "workers=2 layers=4 batches=8" "workers=3 layers=3 folds=1" "workers=4 batches=16"; do
    read -ra more <<<"$set"
    far=$("$PIANOLA" run schedules/helixpipe.lua "${more[@]/#/-D}" --model schedules/models/gpt_stages.lua -D width=32 \
        -D context=16 -D rows=2 --steps 5 --compare --json 2>/dev/null | sed -nE 's/^  "one_rank_largest_difference": (.*),$/\1/p')
    expect "helixpipe, $set: losses within 1e-5 of one rank's ($far)" yes \
        "$(awk -v d="$far" 'BEGIN { print d != "" && d <= 1e-5 ? "yes" : "no" }')"
done
# Such stages have no weights to send, which equals a w without homes for them.
sed 's/return layer(s) % P, rank(s, b) end/return not is_attention(s) and layer(s) % P or nil, rank(s, b) end/' schedules/helixpipe.lua >"$work/helixpipe.lua"
for file in schedules/helixpipe.lua "$work/helixpipe.lua"; do
    "$PIANOLA" show "$file" --model schedules/models/gpt_stages.lua -D layers=3 --format streams >"$work/$(dirname "$file" | tr / _)"
done
expect "helixpipe without homes of attention" "" "$(cmp "$work/schedules" "$work/$(tr / _ <<<"$work")" 2>&1)"
expect "its stages without weights" "bare 2 6 10" "$(grep '^bare' "$work/schedules")"
expect "nothing of weights is sent" 0 "$(grep -cE '^(FETCH|SERVE|SEND_G|ALL_REDUCE) ' "$work/schedules")"
for schedule in ddp fsdp lpp fslpp; do
    as_one_rank "unet under $schedule" schedules/$schedule.lua --model schedules/models/unet.lua -D stages=4
done
as_one_rank "unet, lanes per rank" schedules/graph.lua --model schedules/models/unet.lua --lanes rank
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
expect "proved from its text" "$work/streams.txt: proved: graph on 4 ranks, at any speed of ranks and links" "$("$PIANOLA" verify "$work/streams.txt" 2>&1)"
expect "and refuted when a term is dropped" 1 \
    "$(sed '/^rank 3 lane compute/,/^rank 3 lane/s/ x=act(0,0)//' "$work/streams.txt" | "$PIANOLA" verify - >/dev/null 2>&1; echo $?)"
finish
