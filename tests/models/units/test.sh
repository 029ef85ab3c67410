#!/usr/bin/env bash
# Units, layers with code of their own: they train to one rank's bits under any schedule, in one process and in many, and
# to the losses of the same model of our layers. Each broken one is refused, with its name and what it touched.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
export XDG_CACHE_HOME=$room/cache
gated=schedules/models/gated_mlp.lua small=tests/models/units/small.lua
run() { timeout 300 "$PIANOLA" run "$@" --json 2>/dev/null; }

# ---- schedules: each proves a model with units, unless it divides layers ----
proves() { timeout 100 "$PIANOLA" check "$1" --model $gated -D layers=30 2>&1 | tail -1 | grep -oE ': proved|a team of [0-9]+ ranks|works on whole microbatches'; }
expect "schedules that neither prove units nor say why not" "schedules/helixpipe.lua has more stages than the model has layers" \
    "$(for schedule in schedules/*.lua; do
        proves "$schedule" >/dev/null || echo "$schedule has more stages than the model has layers"
    done)"

# ---- schedules: the bits of one rank, or its sums but for their order ----
for schedule in 1f1b zb_h1 zbv interleaved gpipe dualpipev; do
    expect "$schedule: one rank's weights" true \
        "$(run "schedules/$schedule.lua" --model $gated -D layers=8 -D rows=1 --steps 3 --compare | field one_rank_same_weights)"
done
for schedule in fsdp 1f1b_fsdp ddp; do
    expect "$schedule: one rank's losses" near \
        "$(run "schedules/$schedule.lua" --model $gated -D layers=8 -D rows=1 --steps 3 --compare | field one_rank_largest_difference |
            awk '{ print ($1 < 1e-6 ? "near" : $1) }')"
done
expect "PipeDream trains" finite "$(run schedules/pipedream.lua --model $gated -D rows=1 --steps 3 | field loss_last |
    awk '{ print ($1 > 0 && $1 < 20 ? "finite" : $1) }')"
expect "with recomputation" true \
    "$(run schedules/1f1b.lua --recompute --model $gated -D rows=1 --steps 3 --compare | field one_rank_same_weights)"
expect "with clipping" true \
    "$(run schedules/1f1b.lua --model $gated -D rows=1 -D clip=1 --steps 3 --compare | field one_rank_same_weights)"

# ---- the same model of our layers ----
/usr/bin/python3 tests/models/units/weights.py "$room"
losses() { run schedules/1f1b.lua --model $gated --weights "$room/$1.safetensors" --steps 20 --losses "$room/$1.tsv" "${@:2}" >/dev/null; }
losses units && losses layers -D own=false
expect "20 losses, with units and with layers, within 1e-5" "20 near" "$(paste <(cut -f3 "$room/units.tsv") <(cut -f3 "$room/layers.tsv") |
    awk 'NR > 1 { n++; d = $1 / $2 - 1; if (d > 1e-5 || d < -1e-5) far = $0 } END { print n, far ? far : "near" }')"
expect "as many parameters" "133376 133376" "$(for own in true false; do
    "$PIANOLA" check schedules/1f1b.lua --model $gated -D own=$own | grep -o '[0-9]* parameters' | cut -d' ' -f1; done | paste -sd' ')"

# ---- checkpoints and files of weights: parameters under their names ----
trains() { run schedules/1f1b.lua --model $gated -D rows=1 --steps "$@" | field weights; }
whole=$(trains 4)
trains 2 --checkpoint "$room/checkpoint" --every 2 >/dev/null
expect "a resumed training has the bits of a whole one" "$whole" "$(trains 4 --checkpoint "$room/checkpoint" --resume)"
expect "also under another schedule" "$whole" "$(rm -rf "$room/checkpoint" && trains 2 --checkpoint "$room/checkpoint" --every 2 >/dev/null
    run schedules/serial.lua -D stages=1 --model $gated -D rows=1 --steps 4 --checkpoint "$room/checkpoint" --resume | field weights)"
"$PIANOLA" export-weights "$room/checkpoint" -o "$room/all.safetensors" >/dev/null
names() { /usr/bin/python3 -c 'import json, struct, sys
f = open(sys.argv[1], "rb"); print(*sorted(k for k in json.loads(f.read(struct.unpack("<Q", f.read(8))[0])) if sys.argv[2] in k))' "$@"; }
expect "names in a checkpoint" "layer.3.down layer.3.gate_up" \
    "$(names "$room/all.safetensors" layer.3.)"

# ---- a file of the unit's own, and other sizes ----
/usr/bin/python3 tests/models/units/weights.py "$room" own
cp tests/models/units/fine.c "$room/" && cp $small "$room/small.lua"
loss_of() { "$PIANOLA" run schedules/serial.lua -D stages=1 --model "$room/small.lua" "$@" --steps 0 --json 2>&1 | sed -nE 's/^  "loss": (.*)/\1/p;s/.*error: //p'; }
expect "values from its own file" other "$([ "$(loss_of)" = "$(loss_of -D data=own.safetensors)" ] || echo other)"
expect "all scales 1 and shifts 0 there" "$(loss_of)" "$(loss_of -D data=same.safetensors)"
expect "a parameter that its file lacks" "$room/lacks.safetensors: has no tensor shift, which unit 'fine' needs" "$(loss_of -D data=lacks.safetensors)"
expect "a parameter of another shape" "$room/shape.safetensors: tensor shift is 9, but unit 'fine' says 8" "$(loss_of -D data=shape.safetensors)"

# ---- names of somebody else's: each way, with frozen parameters and a tied table ----
/usr/bin/python3 tests/models/units/weights.py "$room" named
cp tests/models/units/named.lua "$room/"
named=(schedules/1f1b.lua -D workers=2 --model "$room/named.lua")
there_and_back() { # FILE ARGS...
    rm -rf "$room/there" "$room/back"
    run "${named[@]}" --weights "$room/$1.safetensors" --steps 1 --checkpoint "$room/there" --every 1 "${@:2}" >/dev/null
    "$PIANOLA" export-weights "$room/there" --names hf --model "$room/named.lua" "${@:2}" -o "$room/back" >/dev/null 2>"$room/said"
    /usr/bin/python3 tests/models/units/weights.py "$room/named.safetensors" "$room/back/model.safetensors"
}
expect "weights go in and come out under their names" "same same" "$(there_and_back named) $(there_and_back named -D frozen=false)"
expect "also from a file that has the tied table twice" same "$(there_and_back tied)"
expect "or only what is trained" same "$(there_and_back trained)"
expect "a folder without config.json, and why" "model.safetensors pianola: no config.json, since only the author of its units knows this model's" \
    "$(ls "$room/back") $(cat "$room/said")"
named_says() { "$PIANOLA" run "${named[@]}" --weights "$room/$1.safetensors" --steps 1 2>&1 | grep error: | sed "s,$room/,,g"; }
expect "a missing name" "pianola: error: missing.safetensors: has no tensor model.layers.0.norm.shift, which layer 1 needs" "$(named_says missing)"
expect "another shape" "pianola: error: short.safetensors: tensor model.layers.0.norm.shift is 7, but norm.shift of layer 1 is 8" "$(named_says short)"
expect "another dtype" "pianola: error: double.safetensors: tensor model.position.weight: dtype F64; only F32, F16 or BF16 is read here" "$(named_says double)"
expect "a name that the model does not have" "pianola: error: other.safetensors: tensor model.layers.2.norm.scale belongs to no layer of the model" "$(named_says other)"
expect "another head, where the table is tied" "pianola: error: untied.safetensors: tensor lm_head.weight is not the token table, but this model's output layer is: \
give a model whose output layer has its own weights, e.g. with -D tied=false" "$(named_says untied)"
expect "other values of what is frozen" "pianola: error: thawed.safetensors: tensor model.layers.1.norm.scale differs from the one in named.safetensors, where unit 'fine' of \
layer 3 has its frozen parameters; name this file there as 'data', or take it off 'frozen'" "$(named_says thawed)"

# ---- tokens and random numbers ----
noisy=tests/models/units/noisy.lua
expect "the same numbers under every schedule, and in a recomputed forward" "true true true" "$(for how in 1f1b "1f1b --recompute" zbv; do
    set -- $how
    run "schedules/$1.lua" "${@:2}" -D workers=2 --model $noisy --steps 4 --compare | field one_rank_same_weights; done | paste -sd' ')"
steps_of() { run schedules/1f1b.lua -D workers=2 --model $noisy --steps 4 "$@" | field loss_last; }
expect "another seed, other losses" other "$([ "$(steps_of)" = "$(steps_of --seed 2)" ] || echo other)"

# ---- inputs beside the tokens: each microbatch's rows reach the unit, on whatever rank it is ----
/usr/bin/python3 - "$room" <<'END'
import sys
sys.path.insert(0, 'tests/training/labels')
import numpy as np
from labels import save, write
room, draw = sys.argv[1], np.random.default_rng(3)
tokens = draw.integers(0, 16, 16 * 6 + 1)
positions, gain = (np.arange(97) % 6).astype(np.int64), np.ones(97, np.float32)
for name, changed in (('text', {}), ('turned', {'positions': 5 - positions}), ('scaled', {'gain': 2 * gain}), ('large', {'positions': positions + 1}),
                      ('short', {'positions': positions[1:]}), ('float', {'positions': gain}), ('wide', {'gain': np.ones((97, 2), np.float32)})):
    write(room, name, tokens, None)
    for kind, values in ({'positions': positions, 'gain': gain} | changed).items():
        np.save(f'{room}/{name}.bin.{kind}.npy', values)
all = {k: draw.standard_normal(shape).astype(np.float32) / 2 for k, shape in (('table.weight', (16, 8)), ('inner.weight', (8, 8)), ('head.weight', (16, 8)), ('places', (6, 8)))}
save(f'{room}/where.safetensors', all)
all['positions.weight'] = all.pop('places')
save(f'{room}/embedded.safetensors', all)
END
where=(--model tests/models/units/where.lua -D batches=8)
reads() { run schedules/$1.lua -D workers=2 "${where[@]}" --data "$room/$2.bin" --weights "$room/$3.safetensors" --steps 5 "${@:4}"; }
expect "positions by a unit and by the embedding: the same loss" near "$(awk -v a="$(reads 1f1b text where | field loss_last)" \
    -v b="$(reads 1f1b text embedded -D own=false | field loss_last)" 'BEGIN { d = a / b - 1; print (a > 0 && d < 1e-5 && d > -1e-5 ? "near" : a " " b) }')"
for changed in turned scaled; do
    expect "other inputs, another loss: $changed" other "$([ "$(reads 1f1b text where | field loss_last)" = "$(reads 1f1b $changed where | field loss_last)" ] || echo other)"
done
expect "where the unit's rank has no other use for the text" "$(reads 1f1b text where | field loss_last)" "$(reads 1f1b text where -D apart=true | field loss_last)"
expect "one rank's bits" "true true true true" "$(for how in 1f1b zb_h1 interleaved "1f1b --recompute"; do reads ${how%% *} text where --compare ${how#"${how%% *}"} |
    field one_rank_same_weights; done | paste -sd' ')"
expect "random inputs without --data" true "$(run schedules/1f1b.lua -D workers=2 "${where[@]}" --steps 3 --compare | field one_rank_same_weights)"
expect "its gradients agree" "x places" "$("$PIANOLA" check-unit tests/models/units/where.lua where | awk 'NR > 2 { print $1 $5 }' | paste -sd' ')"
inputs_say() { "$PIANOLA" run schedules/1f1b.lua -D workers=2 "${where[@]}" --data "$room/$1.bin" --steps 1 "${@:2}" 2>&1 | grep error: | sed "s,$room/,,g"; }
cp "$room/text.bin" "$room/bare.bin"
expect "no file" "pianola: error: bare.bin.positions.npy: No such file or directory" "$(cp "$room/text.bin.gain.npy" "$room/bare.bin.gain.npy"; inputs_say bare)"
expect "too large a number" "pianola: error: large.bin.positions.npy: row 5 has 6, but positions must be at least 0 and less than 6" "$(inputs_say large)"
expect "too few rows" "pianola: error: short.bin.positions.npy: has 96 rows of 1 integers, but short.bin has 97 tokens, each with 1 integers" "$(inputs_say short)"
expect "another type" "pianola: error: float.bin.positions.npy: has 97 rows of 1 floats, but float.bin has 97 tokens, each with 1 integers" "$(inputs_say float)"
expect "other columns" "pianola: error: wide.bin.gain.npy: has 97 rows of 2 floats, but wide.bin has 97 tokens, each with 1 floats" "$(inputs_say wide)"
expect "an input that the model lacks" "tests/models/units/where.lua:3: error: 'side' must be a list of \"tokens\", \"targets\", \"seed\" and names that the model's 'inputs' \
have, not \"masks\"" "$(inputs_say text -D side=masks)"
expect "no type" "tests/models/units/where.lua:10: error: 'type' of input 'positions' must be \"i32\" or \"f32\", not \"i64\"" "$(inputs_say text -D type=i64)"

# ---- frozen units: no gradient, no optimizer state, a rank's own copy ----
cp tests/models/units/fine.c $small "$room/"
frozen=(--model "$room/small.lua" -D frozen=true)
expect "frozen units train to one rank's bits" "true true true" "$(for schedule in 1f1b zb_h1 interleaved; do
    run schedules/$schedule.lua -D workers=2 "${frozen[@]}" --steps 4 --compare | field one_rank_same_weights; done | paste -sd' ')"
expect "they count no parameters" 376 "$("$PIANOLA" check schedules/serial.lua -D stages=1 "${frozen[@]}" | grep -o '[0-9]* parameters' | cut -d' ' -f1)"
expect "and have no place in a checkpoint" "" "$(run schedules/1f1b.lua -D workers=2 "${frozen[@]}" --steps 2 --checkpoint "$room/cold" --every 2 >/dev/null
    "$PIANOLA" export-weights "$room/cold" -o "$room/cold.safetensors" >/dev/null; names "$room/cold.safetensors" scale)"
expect "they stay as their file says" "$(loss_of -D data=own.safetensors)" "$(loss_of -D frozen=true)"
some=(--model "$room/small.lua" -D cold=scale)
expect "units that freeze some parameters: one rank's bits" "true true true" "$(for schedule in 1f1b zb_h1 interleaved; do
    run schedules/$schedule.lua -D workers=2 "${some[@]}" --steps 4 --compare | field one_rank_same_weights; done | paste -sd' ')"
expect "the others count, and are in checkpoints" "392 layer.1.shift layer.3.shift" \
    "$("$PIANOLA" check schedules/serial.lua -D stages=1 "${some[@]}" | grep -o '[0-9]* parameters' | cut -d' ' -f1) $(
        run schedules/1f1b.lua -D workers=2 "${some[@]}" --steps 2 --checkpoint "$room/some" --every 2 >/dev/null
        "$PIANOLA" export-weights "$room/some" -o "$room/some.safetensors" >/dev/null; names "$room/some.safetensors" .s)"
expect "and have gradients" "x shift" "$("$PIANOLA" check-unit "$room/small.lua" fine -D cold=scale | awk 'NR > 2 { print $1 }' | paste -sd' ')"
expect "a name that is no parameter's" "$room/small.lua:21: error: 'frozen' names weight, which 'parameters' does not have" \
    "$("$PIANOLA" check schedules/1f1b.lua -D workers=2 --model "$room/small.lua" -D cold=weight 2>&1 | head -1)"
alone() { echo "return model { input = tokens { vocab = 16, context = 4, rows = 3 }, optimizer = adamw { lr = 0.1 }, layers = { embedding { width = 8 },
    unit { source = 'fine.c', data = 'own.safetensors', parameters = { scale = { 8 }, shift = { 8 } }, stash = 384, extra = 384, work = 384, frozen = true },
    linear { width = 16 }, cross_entropy {} }, cut = { 2, 3, 4 } }" >"$room/alone.lua"; }
alone
expect "a stage of frozen units alone has no weights, gradients and optimizer state" "640 640 1280,0 0 0,576 576 1152,0 0 0" \
    "$("$PIANOLA" show schedules/1f1b.lua --model "$room/alone.lua" --json |
        sed -nE 's/.*"at_peak": \{ "weights": ([0-9]+), "gradients": ([0-9]+), "optimizer": ([0-9]+),.*/\1 \2 \3/p' | paste -sd,)"
expect "and trains" true "$(run schedules/zb_h1.lua --model "$room/alone.lua" --steps 3 --compare | field one_rank_same_weights)"
jobs_of() { "$PIANOLA" show "$@" --model "$room/alone.lua" --format tsv | awk -F'\t' -v OFS='' '$5 ~ /^[FIBW]$/ { print $6, $5, $7 }' | sort | paste -sd' '; }
expect "it has no W, and its I is a whole B" "0F0 0I0 0W0 1B0 1F0 2F0 2I0 2W0 3B0 3F0" "$(jobs_of schedules/zb_h1.lua -D batches=1)"
for kind in 'sequence = { { "0F0", "1F0", "2F0", "3F0", "3I0+3W0", "2I0", "1I0", "2W0+1W0", "0I0", "0W0" } }' \
    'split_backward = true, w = function(s) return 0, 0 end, pred = function(s, b, d)
        if d == "F" then return s > 0 and { { s - 1, b, d } } or {} end
        if d == "W" then return { { s, b, "I" } } end
        return s < 3 and { { s, b, "F" }, { s + 1, b, "I" }, { s + 1, b, "W" } } or { { s, b, "F" } }
    end'; do
    echo "return schedule { workers = 1, stages = 4, batches = 1, $kind }" >"$room/whole.lua"
    expect "nor in a schedule with ${kind%% =*}" "0F0 0I0 0W0 1B0 1F0 2F0 2I0 2W0 3B0 3F0" "$(jobs_of "$room/whole.lua")"
    expect "which trains" true "$(run "$room/whole.lua" --model "$room/alone.lua" --steps 3 --compare | field one_rank_same_weights)"
done
expect "also where stages are updated within a step" finite "$(run schedules/pipedream.lua --model "$room/alone.lua" --steps 3 | field loss_last |
    awk '{ print ($1 > 0 && $1 < 20 ? "finite" : $1) }')"
expect "a measured I is its B's time" "proved" "$(echo "return cluster { stages = 4, cost = function(s, d) return d ~= 'B' and 1 or nil end }" >"$room/took.lua"
    "$PIANOLA" check schedules/zb_h1.lua --model "$room/alone.lua" --cluster "$room/took.lua" 2>&1 | grep -o 'proved\|error: .*')"

# ---- check-unit ----
expect "its gradients agree" "0 true" "$(got=$("$PIANOLA" check-unit $gated --json) ; echo "$? $(field agree <<<"$got")")"
expect "as a table" "x gate_up down" "$("$PIANOLA" check-unit $gated gated_mlp | awk 'NR > 2 { print $1 }' | paste -sd' ')"
expect "by name" "0" "$("$PIANOLA" check-unit $gated gated_mlp >/dev/null; echo $?)"
expect "by another name" "2 pianola: error: $gated: has no unit 'other'" "$("$PIANOLA" check-unit $gated other 2>&1 | sed "s/^/2 /")"
# All layers: every item of the list, once for each size, and every parameter of it.
items() { "$PIANOLA" check-unit "$@" --json | python3 -c 'import json, sys
told = json.load(sys.stdin)
print(told["agree"], *(" ".join(i["layers"]) + ":" + ",".join(g["name"] for g in i["gradients"]) for i in told["items"]), sep="\n")'; }
expect "all layers of gpt, tied" "True
embedding:0.position,0.token
dropout:x
fork layernorm linear attention linear dropout join:x,3.gamma,3.beta,4.weight,4.bias,6.weight,6.bias
fork layernorm linear gelu linear dropout join:x,10.gamma,10.beta,11.weight,11.bias,13.weight,13.bias
layernorm:x,58.gamma,58.beta
unembedding:x,59.token
cross_entropy:x" "$(items schedules/models/gpt.lua -D tied=true -D dropout=0.1 -D width=32)"
expect "of a mixture of experts" "True
embedding:0.token
fork rmsnorm linear attention linear join:x,2.gamma,3.weight,5.weight
fork rmsnorm route experts swiglu experts combine join:x,8.gamma,9.router,10.weight,12.weight
rmsnorm:x,57.gamma
linear:x,58.weight
cross_entropy:x" "$(items schedules/models/moe.lua -D width=16)"
expect "of a model of integers" "True
linear:0.weight
relu:x
mse:x" "$(items schedules/models/integers.lua)"
expect "with a unit among them, but not by its name" "fork rmsnorm gated_mlp join:x,2.gamma,3.gate_up,3.down" \
    "$(items $gated | grep gated_mlp; items $gated gated_mlp | grep gated_mlp)"
expect "not in bf16" "pianola: error: schedules/models/gpt.lua: computes in bf16, and the CPU, which tests it, in fp32: leave out its precision here" \
    "$("$PIANOLA" check-unit schedules/models/gpt.lua -D precision=bf16 2>&1)"
# A gradient that is tiny beside y: the difference of forwards is as far off as its rounding.
cat >"$room/tiny.c" <<'END'
#include <pianola/unit.h>
#ifndef FACTOR
#define FACTOR 1
#endif
static const float SMALL = 1e-3f;
void tiny_forward(const struct pianola_unit_call *c) {
    const float *x = c->x, *w = c->w;
    float *y = c->y;
    for (int i = 0; i < c->rows * c->in; i++)
        y[i] = 1000 * x[i] + SMALL * w[i % c->in];
}
void tiny_input(const struct pianola_unit_call *c) {
    const float *dy = c->dy;
    float *dx = c->dx;
    for (int i = 0; i < c->rows * c->in; i++)
        dx[i] = 1000 * dy[i];
}
void tiny_weight(const struct pianola_unit_call *c) {
    const float *dy = c->dy;
    float *dw = c->dw;
    for (int j = 0; j < c->in; j++) {
        float sum = 0;
        for (int r = 0; r < c->rows; r++)
            sum += FACTOR * SMALL * dy[r * c->in + j];
        dw[j] = c->add ? dw[j] + sum : sum;
    }
}
END
echo 'return model { input = tokens { vocab = 16, context = 64, rows = 16 }, layers = { embedding { width = 8 },
    unit { source = "tiny.c", parameters = { w = { 8 } } }, linear { width = 16 }, cross_entropy {} }, optimizer = sgd { lr = 0.1 } }' >"$room/tiny.lua"
expect "a tiny gradient is right" "0 true" "$(got=$("$PIANOLA" check-unit "$room/tiny.lua" --json); echo "$? $(field agree <<<"$got")")"
expect "and a wrong one is not" "1 false" "$(got=$(UNIT_CFLAGS=-DFACTOR=1000 "$PIANOLA" check-unit "$room/tiny.lua" --json); echo "$? $(field agree <<<"$got")")"
# Units with the same code that read other inputs are checked apart.
cp tests/models/units/where.c "$room/"
echo 'local function where(side) return unit { source = "where.c", parameters = { places = { 6, 8 } }, keeps = "", side = { "gain", side } } end
return model { input = tokens { vocab = 16, context = 6, rows = 2 }, inputs = { here = { type = "i32", below = 6 }, there = { type = "i32", below = 6 }, gain = { type = "f32" } },
    layers = { embedding { width = 8 }, where "here", where "there", where "here", linear { width = 16 }, cross_entropy {} }, optimizer = sgd { lr = 0.1 } }' >"$room/apart.lua"
expect "units that read other inputs" "1: 2:" "$("$PIANOLA" check-unit "$room/apart.lua" | sed -n 's/^unit where of layer \([0-9]*:\).*/\1/p' | xargs)"

# A file with another program's values: tests/formats/torch/known.py compares a whole model with one.
known() { # CHECK
    sed "s/return model {/& check = $1,/" "$room/tiny.lua" >"$room/known.lua"
    "$PIANOLA" check-unit "$room/known.lua" 2>&1 | grep -o "error: .*"
}
expect "values without weights" "error: 'check' must be { values = \"check.safetensors\", weights = \"model.safetensors\" }" \
    "$(known '{ values = "a.safetensors" }')"
expect "values of another type" "error: 'check' must be { values = \"check.safetensors\", weights = \"model.safetensors\" }" "$(known 3)"
expect "another field" "error: check has no field 'value'" "$(known '{ value = "a" }' | grep -o "^[^;]*'value'")"
expect "values that are not there" "error: $room/none.safetensors: No such file or directory" \
    "$(known '{ values = "none.safetensors", weights = "none.safetensors" }')"

# ---- broken units, each refused by check-unit and by run ----
refused() { # WHAT BROKEN TEXT
    expect "$1" "pianola: error: unit 'fine' of layer 1: $3" "$(UNIT_CFLAGS=-DBROKEN_$2 "$PIANOLA" check-unit $small 2>&1)"
    expect "$1, by run" "pianola: error: unit 'fine' of layer 1: $3" \
        "$(UNIT_CFLAGS=-DBROKEN_$2 "$PIANOLA" run schedules/1f1b.lua -D workers=2 --model $small --steps 1 2>&1 | grep error:)"
}
expect "the unbroken one" "0" "$("$PIANOLA" check-unit $small >/dev/null; echo $?)"
refused "writes after the stash" AFTER_STASH "fine_forward touches byte 384 of stash, which has 384 bytes"
refused "writes before y" BEFORE_Y "fine_forward writes byte -1 of y, which has 384 bytes"
refused "writes far after y" FAR_AFTER_Y "fine_forward touches byte 16768 of y, which has 384 bytes"
refused "writes after dw" AFTER_DW "fine_weight touches byte 64 of dw, which has 64 bytes"
sed "s/linear { width = 16 }/unit { source = 'fine.c', parameters = { scale = { 8 }, shift = { 8 } }, stash = 384, extra = 384, work = 384 }, &/" \
    "$room/alone.lua" >"$room/both.lua" # its cut does not matter
expect "a trained one after a frozen one is checked, too" "unit 'fine' of layer 2: fine_weight" \
    "$(UNIT_CFLAGS=-DBROKEN_ADD "$PIANOLA" check-unit "$room/both.lua" 2>&1 | grep -o "unit 'fine' of layer 2: fine_weight")"
refused "writes its input" WRITES_X "fine_forward writes byte 12 of x, which it may only read"
refused "writes the stash in a backward" WRITES_STASH "fine_input writes byte 4 of stash, which it may only read"
expect "writes anywhere" "pianola: error: unit 'fine' of layer 1: fine_forward touches address 0x123456789000, where none of its operands is: SIGSEGV at offset 0x of fine.so" \
    "$(UNIT_CFLAGS=-DBROKEN_WILD "$PIANOLA" check-unit $small 2>&1 | sed 's/offset 0x[0-9a-f]* of fine-[0-9a-f]*/offset 0x of fine/')"
null="(keeps, stash, extra, work and side in the model script say what there is)"
refused "reads tokens" TOKENS "fine_forward uses a pointer that is NULL in its call: one of extra, dw, dy, dx, tokens, targets, seed, frozen, inputs $null"
refused "reads y in a backward" Y "fine_input uses a pointer that is NULL in its call: one of y, dw, tokens, targets, seed, frozen, inputs $null"
refused "needs dx" NULL_DX "fine_input uses a pointer that is NULL in its call: one of y, dw, dx, tokens, targets, seed, frozen, inputs $null"
refused "is not deterministic" RANDOM \
    "fine_forward is not deterministic: called twice with the same operands, it writes y differently, from byte 20 on"
undefined() { echo "makes byte 0 of $1 depend on what memory held before: it does not write all of $1, or reads bytes of work, stash or extra that were not written"; }
refused "reads work that nobody wrote" UNWRITTEN_WORK "fine_forward $(undefined y)"
refused "does not write all of dx" UNWRITTEN_DX "fine_input $(undefined dx)"
refused "does not add" ADD "fine_weight does not add to dw if \`add\` is true: number 0 was 0.314434, and is 0.314434 after a gradient of 0.314434"
expect "a wrong gradient, which only differences show" "1 x" \
    "$(got=$(UNIT_CFLAGS=-DBROKEN_GRADIENT "$PIANOLA" check-unit $small fine 2>&1); echo "$? $(awk '/wrong$/ { print $1 }' <<<"$got" | paste -sd' ')")"
expect "a wrong gradient of an item" "x 1.x" "$(UNIT_CFLAGS=-DBROKEN_GRADIENT "$PIANOLA" check-unit $small 2>&1 |
    awk '/^layer/ { layer = $2; sub(",", "", layer) } /wrong$/ { print (layer ? layer "." : "") $1 }' | paste -sd' ')"
expect "too small a stash" "pianola: error: unit 'fine' of layer 1: fine_forward touches byte 320 of stash, which has 320 bytes" \
    "$("$PIANOLA" check-unit $small -D stash=320 2>&1)"
expect "too wide" "pianola: error: unit 'fine' of layer 1: fine_forward makes byte 384 of y depend on what memory held before: it does not write all of y, or reads \
bytes of work, stash or extra that were not written" "$("$PIANOLA" check-unit $small -D width=9 2>&1)"

# ---- code that is not there, or not code ----
says() { "$PIANOLA" run schedules/1f1b.lua -D workers=2 --model $small --steps 1 "$@" 2>&1 | grep error: | tail -1; }
at="$small:6: error: unit"
expect "no source" "$at 'none': tests/models/units/none.c: No such file or directory" "$(says -D source=none.c)"
expect "no library" "$at 'fine': tests/models/units/libnone.so: No such file or directory" "$(says -D library=libnone.so)"
cc -shared -fPIC -Wl,-soname,libshift.so -x c -o "$room/libshift.so" - <<<'float shift_of_unit = 3;'
cc -c -x c -o "$room/shift.o" - <<<'float shift_of_unit = 3;' && ar rc "$room/libshift.a" "$room/shift.o"
python3 - "$room" <<'END'
import sys
room = sys.argv[1]
def arm(data, at): return data[:at + 18] + bytes([183, 0]) + data[at + 20:]
so, packed = (open(f'{room}/libshift.{kind}', 'rb').read() for kind in ('so', 'a'))
for name, data in (('arm.so', arm(so, 0)), ('arm.a', arm(packed, packed.index(b'\x7fELF'))), ('text.so', b'#include <stdio.h>\n'),
                   ('short.so', so[:10]), ('empty.a', b'!<arch>\n'), ('wide.so', so[:4] + b'\x01' + so[5:])):
    open(f'{room}/{name}', 'wb').write(data)
END
with_library() { says -D library="$room/$1" "${@:2}" | sed "s,$room/,,"; }
none="is not a library: it must be a shared library (.so) or an archive of objects (.a)"
for bad in text.so short.so empty.a shift.o; do expect "no library: $bad" "$at 'fine': $bad: $none" "$(with_library $bad)"; done
expect "a folder" "$at 'fine': folder: is not a regular file" "$(mkdir "$room/folder" && with_library folder)"
if [ "$(uname -m)" = x86_64 ]; then
    for bad in arm.so arm.a; do
        expect "another machine's: $bad" "$at 'fine': $bad: is a library for AArch64 with 64 bits, but this program is for x86-64 with 64 bits; build it for this machine" \
            "$(with_library $bad)"
    done
    expect "of another width" "$at 'fine': wide.so: is a library for x86-64 with 32 bits, but this program is for x86-64 with 64 bits; build it for this machine" "$(with_library wide.so)"
fi
is=$(sha256sum <"$room/libshift.so" | cut -d' ' -f1) was=$(sha256sum <"$room/arm.so" | cut -d' ' -f1)
expect "altered" "$at 'fine': libshift.so: was altered: its SHA-256 is $is, but the script says $was" "$(with_library libshift.so -D sha256="$was")"
expect "no hash" "$small:9: error: 'sha256' must be the 64 hexadecimal digits that sha256sum prints, not \"12\"" "$(with_library libshift.so -D sha256=12)"
expect "a name with a blank" "$small:9: error: 'libraries' must be a file, or a list of files, whose names have only letters, digits and _ . / + -, not \"with ...\"" \
    "$(with_library "with blank.so")"
expect "compile refuses it, too" "error: unit 'fine': arm.a: is a library" \
    "$("$PIANOLA" compile schedules/1f1b.lua -D workers=2 --model $small -D library="$room/arm.a" -o "$room/refused" 2>&1 | sed "s,$room/,," | grep -o "error: unit 'fine': arm.a: is a library")"
expect "and leaves nothing" "" "$(ls "$room/refused" 2>/dev/null | grep rank)"
cp "$room/libshift.so" "$room/libsame.so" && mkdir -p "$room/apart" && cc -shared -fPIC -x c -o "$room/apart/libshift.so" - <<<'float shift_of_unit = 4;'
two() { # LIBRARY: compiles two units, one with that library
    echo "local function block(name, library) return unit { source = name .. '.c', libraries = { library }, parameters = { scale = { 8 }, shift = { 8 } },
        stash = 384, extra = 384, work = 384 } end
    return model { input = tokens { vocab = 16, context = 4, rows = 3 }, layers = { embedding { width = 8 }, block('fine', 'libshift.so'), block('good', '$1'), linear { width = 16 },
        cross_entropy {} }, optimizer = sgd { lr = 0.1 } }" >"$room/two.lua"
    "$PIANOLA" compile schedules/serial.lua -D stages=1 --model "$room/two.lua" -o "$room/two" 2>&1 | grep -o 'error: .*' | sed "s,$room/,,g"
}
cp tests/models/units/fine.c "$room/" && sed 's/fine_/good_/' tests/models/units/fine.c >"$room/good.c"
expect "two libraries of one name" "error: units 'fine' and 'good' have different libraries of one name, libshift.so and apart/libshift.so, but ranks find libraries by their names: \
rename one" "$(two apart/libshift.so)"
expect "the same library twice, or another name" " " "$(two libshift.so) $(two libsame.so)"
for good in libshift.so libshift.a; do expect "unaltered: $good" "" "$(with_library $good -D sha256="$(sha256sum <"$room/$good" | cut -d' ' -f1)")"; done
mkdir "$room/a folder" && cp tests/models/units/fine.c $small "$room/libshift.so" "$room/a folder/"
expect "a folder with a blank" "loss" "$("$PIANOLA" run schedules/1f1b.lua -D workers=2 --model "$room/a folder/small.lua" -D library=libshift.so --steps 1 2>&1 | grep -o "^loss\|.*error:.*")"
expect "no data" "pianola: error: unit 'fine': tests/models/units/none.safetensors: No such file or directory" "$(says -D data=none.safetensors)"
expect "no function" "$at 'other': tests/models/units/fine.c does not define other_forward; functions begin with the unit's name: rename them, or give the unit the \
field 'name'" "$(says -D name=other)"
expect "no compiler" "$at 'fine': cannot run the compiler none; name another with CC" "$(CC=none says)"
expect "does not compile" "$at 'fine': tests/models/units/fine.c does not compile; the messages of cc are above" "$(UNIT_CFLAGS='-DBROKEN_Y -Dint=none' CC=cc says)"
expect "not for GPUs" "$at 'fine': has no source for CUDA; add one that ends in .cu to 'source'" "$(says -D source=fine.c --device cuda)"
expect "a team" "pianola: error: layer 2 (unit fine): a team of 2 ranks computes its stage, and nobody knows how to divide it; give its stage to one rank, with a cut \
before and after it" "$(says -D tensor=2 -D workers=4)"
expect "slices" "pianola: error: schedules/seq1f1b.lua: slices = 2, but layer 2 (unit fine) works on whole microbatches: leave 'slices' out" \
    "$("$PIANOLA" check schedules/seq1f1b.lua --model $small 2>&1)"
expect "another width" "pianola: error: layer 2 (unit fine): it takes in_width = 9 columns, but layer 1 (embedding) makes 8" "$(says -D in_width=9)"
expect "another number of rows" "pianola: error: layer 3 (linear): it takes a microbatch's 12 rows, but layer 2 (unit fine) makes 9; only units work on other rows: \
let the latter have out_rows = 12" "$(says -D out_rows=9)"
sed 's/^  optimizer/  precision = "bf16",\n&/' $small >"$room/small.lua"
expect "bf16" "$room/small.lua:6: error: units compute in fp32: leave out the model's precision = \"bf16\"" \
    "$("$PIANOLA" check schedules/1f1b.lua -D workers=2 --model "$room/small.lua" 2>&1 | head -1)"

# ---- the exporter's vector functions, whatever this processor has ----
for level in avx2:x86-64-v3 avx512f:x86-64-v4; do
    if grep -qm1 "\b${level%:*}\b" /proc/cpuinfo; then
        g++ -std=c++20 -O2 -ffp-contract=off -march=${level#*:} -o "$room/sleef" tests/models/units/sleef.cpp
        expect "e^x, ${level#*:}" "within an ulp" "$("$room/sleef" 2>/dev/null)"
    fi
done

# ---- GPUs: on the stand-in, and compiled by nvcc where it is ----
on_gpu() { NVCC="tests/models/units/nvcc.sh $BROKEN" PIANOLA_CUDA=build/standin/libpianola-cuda.so timeout 300 "$PIANOLA" run "$@" --device cuda 2>&1; }
if [ -f build/standin/libpianola-cuda.so ]; then
    two=(schedules/1f1b.lua -D workers=2 --model $gated -D layers=2 -D rows=1 --steps 2)
    gpu=$(on_gpu "${two[@]}" --compare --json)
    expect "a GPU: one rank's weights" true "$(field one_rank_same_weights <<<"$gpu")"
    expect "a GPU: the host's losses" near "$(awk -v a="$(field loss_last <<<"$gpu")" -v b="$(run "${two[@]}" | field loss_last)" \
        'BEGIN { d = a / b - 1; print (d < 1e-5 && d > -1e-5 ? "near" : a " " b) }')"
    expect "a GPU: a small one" 1 "$(on_gpu schedules/1f1b.lua -D workers=2 --model $small -D 'source=fine.cu' --steps 1 | grep -c '^loss ')"
    expect "a GPU: the host's random numbers, in each step" near \
        "$(awk -v a="$(on_gpu schedules/1f1b.lua -D workers=2 --model $noisy --steps 4 --json | field loss_last)" -v b="$(steps_of)" \
            'BEGIN { d = a / b - 1; print (d < 1e-5 && d > -1e-5 ? "near" : a " " b) }')"
    cp tests/models/units/fine.cu $small "$room/"
    expect "a GPU: frozen" true "$(on_gpu schedules/1f1b.lua -D workers=2 --model "$room/small.lua" -D frozen=true -D source=fine.cu --steps 2 --compare --json |
        field one_rank_same_weights)"
    expect "a GPU: writes after the stash" "pianola: error: unit 'fine' of layer 1: fine_forward_cuda writes byte 384 of stash, which has 384 bytes" \
        "$(BROKEN=-DBROKEN_AFTER_STASH on_gpu schedules/1f1b.lua -D workers=2 --model $small -D 'source=fine.cu' --steps 1 | grep error:)"
fi
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    "$nvcc" -std=c++17 -arch=sm_80 -Werror all-warnings -I"$(echo "$room"/cache/pianola/include/*)" -c schedules/models/gated_mlp.cu -o "$room/nvcc.o" >"$room/nvcc" 2>&1
    expect "nvcc compiles the example" "0 " "$? $(cat "$room/nvcc")"
fi

# ---- ranks as processes ----
export PKG_CONFIG_PATH=$PWD/build:$PKG_CONFIG_PATH
"$PIANOLA" compile schedules/1f1b.lua -D workers=2 --model $gated -D layers=2 -D rows=1 -o "$room/out" >/dev/null && make -s -C "$room/out"
expect "built" "0" "$?"
of_run=$(run schedules/1f1b.lua -D workers=2 --model $gated -D layers=2 -D rows=1 --steps 3 | field weights)
for k in 0 1; do
    timeout 60 "$room/out/rank$k" --rank $k --world-size 2 --master-addr 127.$((1 + $$ / 250 % 250)).$(($$ % 250)).201 --master-port 29500 --steps 3 --json \
        >"$room/ranks$k" 2>/dev/null &
done
wait
expect "ranks over TCP: the bits of run" "$of_run" "$(field weights <"$room/ranks0")"
if [ -f build/standin/libpianola-cuda.a ]; then
    PKG_CONFIG_PATH=$PWD/build/standin:$PKG_CONFIG_PATH make -s -C "$room/out" gpu NVCC="$PWD/tests/models/units/nvcc.sh"
    expect "ranks on GPUs: the bits of one process on a GPU" \
        "$(on_gpu schedules/1f1b.lua -D workers=2 --model $gated -D layers=2 -D rows=1 --steps 2 --json | field weights)" \
        "$(STANDIN_START=launch timeout 200 mpirun --oversubscribe -n 2 "$room/out/rank.gpu" --steps 2 --json 2>/dev/null | field weights)"
fi
"$PIANOLA" compile schedules/1f1b.lua -D workers=2 --model $small -o "$room/out" >/dev/null && make -s -C "$room/out" UNIT_CFLAGS=-DBROKEN_AFTER_STASH
expect "a rank refuses a broken unit" "pianola: error: rank 0: unit 'fine' of layer 1: fine_forward touches byte 384 of stash, which has 384 bytes" \
    "$(timeout 60 "$room/out/rank0" --rank 0 --world-size 2 --master-addr 127.0.0.1 --master-port 29501 --steps 1 2>&1 | grep error: | sed 's/rank 0 of 1f1b: error: /error: rank 0: /')"
expect "files of an earlier unit are gone" "units/fine/fine.c units/fine/fine.c.o" "$(cd "$room/out" && find units -type f | sort | paste -sd' ')"

# ---- ranks that compute one stage: each reads its frozen parameters from its own file ----
cp $small "$room/small.lua"
"$PIANOLA" compile schedules/ddp.lua -D workers=2 -D batches=4 --model "$room/small.lua" -D frozen=true -o "$room/copies" >/dev/null
copies() { # FILE: what ranks say if rank 1 reads that file
    sed -i "s,[a-z]*\.safetensors,$1.safetensors," "$room/copies/rank1.cu" && make -s -C "$room/copies"
    for k in 0 1; do
        timeout 60 "$room/copies/rank$k" --rank $k --world-size 2 --master-addr 127.$((1 + $$ / 250 % 250)).$(($$ % 250)).203 --master-port 29500 --steps 1 \
            >/dev/null 2>"$room/ranks$k" &
    done
    wait
    cat "$room/ranks0" "$room/ranks1" | grep -o 'error: .*\|^training: step 1/1'
}
expect "the same frozen parameters" "training: step 1/1" "$(copies own)"
expect "other ones" "error: rank 1 has other frozen parameters of stage 1 than rank 0; give all ranks the same file as the layer's 'data'" "$(copies same)"

# ---- ranks with inputs ----
"$PIANOLA" compile schedules/1f1b.lua -D workers=2 "${where[@]}" -o "$room/reading" >/dev/null && make -s -C "$room/reading"
for k in 0 1; do
    timeout 60 "$room/reading/rank$k" --rank $k --world-size 2 --master-addr 127.$((1 + $$ / 250 % 250)).$(($$ % 250)).202 --master-port 29500 --steps 5 --json \
        --data "$room/text.bin" --weights "$room/where.safetensors" >"$room/ranks$k" 2>/dev/null &
done
wait
expect "ranks with inputs: the bits of run" "$(reads 1f1b text where | field weights)" "$(field weights <"$room/ranks0")"

# ---- ranks with libraries: the folder travels whole, and each rank knows its libraries ----
cp $small tests/models/units/fine.c "$room/"
rank_alone() { timeout 60 "$1/rank0" --steps 2 "${@:2}" 2>&1 | grep -o '^loss\|error: .*' | sort -u; }
"$PIANOLA" compile schedules/serial.lua -D stages=1 --model "$room/small.lua" -D library=libshift.so -o "$room/out" >/dev/null 2>&1 && rm "$room/libshift.so"
expect "a library is copied" "units/fine/libshift.so" "$(cd "$room/out" && find units -name '*.so')"
expect "the copy serves" loss "$(make -s -C "$room/out" && rank_alone "$room/out")"
expect "wherever the folder is" loss "$(mv "$room/out" "$room/elsewhere" && rank_alone "$room/elsewhere")"
cc -shared -fPIC -Wl,-soname,libshift.so -x c -o "$room/elsewhere/units/fine/libshift.so" - <<<'float shift_of_unit = 4;'
expect "an altered copy is refused" "error: unit 'fine': the library libshift.so that is loaded is not the one that was checked: it was altered, or another library of that \
name (SONAME) was loaded before it" "$(rank_alone "$room/elsewhere")"
finish
