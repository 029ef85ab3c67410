#!/usr/bin/env bash
# Checks imported weights. For small random models in each kind of file that --weights reads, the losses equal
# reference.py's, which shares no code with ours and computes in double precision. This holds under any schedule,
# including teams and shards. Missing, misshapen, surplus or truncated data are reported.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
head -c 65 README.md >"$room/text"
model=(--model schedules/models/llama.lua -D layers=2 -D inner=96 -D rows=1 --data "$room/text")
(cd tests/models/import && /usr/bin/python3 files.py "$room" "$room/text" 64) >"$room/losses" || exit 2

# first FILE ARGS...: prints the loss before any training
first() { "$PIANOLA" run "${model[@]}" "${@:2}" --weights "$1" --steps 0 --json 2>&1 | sed -nE 's/^  "loss": (.*)/\1/p;/error:/p'; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; print (a != "" && d < 2e-6 && d > -2e-6 ? "near" : a " " b) }'; }
expect "kinds of files" 10 "$(wc -l <"$room/losses")"
while read -r file loss; do
    expect "$file" near "$(near "$(first "$room/$file" schedules/serial.lua -D batches=1)" "$loss")"
done <"$room/losses"

# All batches are equal, so all microbatches have the same loss, and so does their mean.
loss=$(sed -n 's/^Q8_0.gguf //p' "$room/losses")
for schedule in "1f1b.lua -D workers=2 -D batches=2" "zbv.lua -D workers=2 -D batches=4" "fsdp.lua -D workers=3 -D batches=3" \
    "1f1b_ddp.lua -D workers=4 -D batches=4" "tp.lua -D workers=2 -D tensor=2 -D batches=1" "tp_1f1b.lua -D batches=2" \
    "1f1b.lua -D workers=2 -D batches=2 -D tensor=2 -D parallel=sequence"; do
    # shellcheck disable=SC2086
    expect "$schedule" near "$(near "$(first "$room/Q8_0.gguf" schedules/$schedule)" "$loss")"
done
expect "training them gives one rank's bits" \
    1 "$("$PIANOLA" run schedules/1f1b.lua -D workers=2 -D batches=2 "${model[@]}" \
    --weights "$room/Q8_0.gguf" --steps 2 --compare 2>&1 | grep -c 'equal bit for bit')"
expect "the report's text" 1 "$("$PIANOLA" run schedules/serial.lua -D batches=1 "${model[@]}" --weights "$room/F32.gguf" --steps 0 2>&1 |
    grep -cE '^loss      [0-9]\.[0-9]+ on the first batch; nothing was trained$')"

# Reads a separate output layer even if config.json says that it is tied: nothing in a file is lost silently.
mkdir "$room/differs" "$room/same" "$room/more"
for kind in differs same; do python3 tests/models/import/untied.py "$room/$kind" $kind; done
python3 tests/models/import/untied.py "$room/more" same more
head_of() { "$PIANOLA" run schedules/"$2".lua --weights "$room/$1/model.safetensors" --data "$room/$1/t.bin" --steps 0 -D context=8 -D rows=1 \
    -D batches=2 --json "${@:3}" 2>&1 | sed -nE 's/^  "loss": (.*)/\1/p;s/.*(error|warning): //p' | sed "s|$room/||g" | paste -sd'|'; }
untied=$(head_of differs serial -D tied=false)
loss=${untied##*|}
expect "untied: the loss differs" far "$([ "$(head_of same serial)" = "$loss" ] || echo far)"
expect "untied, with a warning" "differs/config.json says that the output layer is the token table, but differs/model.safetensors has a different \
lm_head.weight, which is used|$loss" "$(head_of differs serial)"
expect "an untied file for a tied model" 1 "$(head_of differs serial -D tied=true | grep -c 'tensor lm_head.weight is not the token table, but')"
expect "a separate output layer that equals the table" "" "$(head_of same serial | grep -o '|.*')"
expect "a buffer that is no weight is named" "1 1" "$(head_of more serial | grep -c "more/model.safetensors: skipped, since layers compute these values themselves: \
model.layers.0.self_attn.rotary_emb.inv_freq|") $(head_of more 1f1b -D workers=2 -D stages=2 | grep -c 'skipped, since')"
PKG_CONFIG_PATH=$PWD/build:$PKG_CONFIG_PATH
export PKG_CONFIG_PATH
"$PIANOLA" compile schedules/1f1b.lua --model schedules/models/llama.lua -D layers=1 -D width=8 -D heads=2 -D kv_heads=2 -D inner=16 -D vocab=16 \
    -D eps=1e-6 -D tied=true -D context=8 -D rows=1 -D workers=2 -D batches=2 -o "$room/tied" >/dev/null && make -s -C "$room/tied"
for k in 0 1; do
    timeout 60 "$room/tied/rank$k" --rank $k --world-size 2 --master-addr 127.$((1 + $$ / 250 % 250)).$(($$ % 250)).200 --master-port 29500 --steps 1 \
        --weights "$room/differs/model.safetensors" >"$room/out$k" 2>&1 &
done
wait
expect "ranks: an untied file for a tied model" 1 "$(cat "$room"/out[01] | grep -c 'error: .*tensor lm_head.weight is not the token table')"

# A byte order mark at the start of an index.
{ printf '\xef\xbb\xbf'; cat "$room/model.safetensors.index.json"; } >"$room/bom.safetensors.index.json"
expect "an index after a byte order mark" "$(first "$room/model.safetensors.index.json" schedules/serial.lua -D batches=1)" \
    "$(first "$room/bom.safetensors.index.json" schedules/serial.lua -D batches=1)"

# Ranks as processes: each reads the weights of the stages at home there.
export PKG_CONFIG_PATH=$PWD/build:$PKG_CONFIG_PATH
"$PIANOLA" compile schedules/1f1b.lua -D workers=2 -D batches=2 "${model[@]:0:2}" -D layers=2 -D inner=96 -D rows=1 -o "$room/ranks" &&
    make -s -C "$room/ranks"
# ranks WEIGHTS0 WEIGHTS1: prints the fingerprint after two steps, or rank 0's error
meetings=0
ranks() {
    meetings=$((meetings + 1))
    local at=(--world-size 2 --master-addr 127.$((1 + $$ / 250 % 250)).$(($$ % 250)).$meetings --master-port 29500)
    timeout 60 "$room/ranks/rank1" "${at[@]}" --rank 1 --data "$room/text" --steps 2 ${2:+--weights "$2"} >"$room/out1" 2>&1 &
    timeout 60 "$room/ranks/rank0" "${at[@]}" --rank 0 --data "$room/text" --steps 2 ${1:+--weights "$1"} 2>&1 |
        sed -nE 's/^weights *([0-9a-f]+).*/\1/p;s/.*error: //p'
    wait $!
}
expect "ranks as processes give the bits of one process" "$("$PIANOLA" run schedules/1f1b.lua -D workers=2 -D batches=2 "${model[@]}" \
    --weights "$room/Q8_0.gguf" --steps 2 2>&1 | sed -nE 's/^weights *([0-9a-f]+).*/\1/p')" "$(ranks "$room/Q8_0.gguf" "$room/Q8_0.gguf")"
head -c -1 "$room/F32.gguf" >"$room/other.gguf"
printf '\x3f' >>"$room/other.gguf" # the last value's sign and exponent
expect "another rank has a file with other values" \
    "rank 1 starts from different --weights than rank 0; give all ranks the same file" \
    "$(ranks "$room/F32.gguf" "$room/other.gguf")"
expect "another rank has no weights" "rank 1 has --weights 0, but rank 0 has 1; give all ranks the same flags" "$(ranks "$room/F32.gguf" "")"

# GGUF stores Llama 3's rope scaling as a divisor for each frequency.
of_gguf() { "$PIANOLA" run schedules/serial.lua -D batches=1 -D rows=1 -D context=64 --data "$room/text" --weights "$1" --steps 0 --json 2>&1; }
expect "rope divisors" near "$(near "$(of_gguf "$room/scaled.gguf" | sed -nE 's/^  "loss": (.*)/\1/p')" "$(cat "$room/scaled.loss")")"
expect "rope divisors change the loss" differ "$(near "$(cat "$room/scaled.loss")" "$(sed -n 's/^F32.gguf //p' "$room/losses")" | sed 's/.* .*/differ/')"
expect "other rope divisors" 1 "$(of_gguf "$room/shorter.gguf" | grep -c "^pianola: error: .*shorter.gguf: its rope is scaled by rope_freqs.weight, whose divisors are not those of Llama 3")"

# The same with a user's model script, which declares the same scaling or another.
said=(schedules/serial.lua -D batches=1 -D context=64 --model schedules/models/llama.lua -D layers=2 -D inner=96)
other="error: $room/scaled.gguf: rope_freqs.weight divides frequency"
expect "the script scales rope as the file does" near "$(near "$(first "$room/scaled.gguf" -D rope_factor=32 -D rope_low=1 -D rope_high=4 -D rope_context=8192 "${said[@]}")" "$(cat "$room/scaled.loss")")"
expect "the script does not scale rope" 1 "$(first "$room/scaled.gguf" "${said[@]}" | grep -c "$other 6 of rope by 7.73089, but layer [0-9]* by 1; give the file's scaling of rope, or no --model$")"
expect "the script scales rope differently" 1 "$(first "$room/shorter.gguf" -D rope_factor=32 -D rope_low=1 -D rope_high=4 -D rope_context=8192 "${said[@]}" | grep -c "${other/scaled/shorter}")"
expect "generate" 1 "$("$PIANOLA" generate --weights "$room/scaled.gguf" --model schedules/models/llama.lua -D layers=2 -D inner=96 --prompt a 2>&1 | grep -c "$other")"

# Values that no weight's shape shows, where script and file disagree: the warning names both numbers.
warned() { "$PIANOLA" "${@:2}" 2>&1 | sed -n "s|^pianola: warning: $1||p;s/.*error: //p"; }
other=(run schedules/1f1b.lua -D workers=2 -D batches=2 "${model[@]}" --steps 0)
for file in F32.gguf F32.safetensors model.safetensors.index.json; do
    from=$room/$file
    [ $file = F32.gguf ] || from=$room/config.json
    expect "$file: script and file agree" "" "$(warned "" "${other[@]}" --weights "$room/$file")"
    for case in "rope=20000|10000 for the base of rope, but layer 4 has rope = 20000" \
        "rope_factor=2|1 for the factor of rope's scaling, but layer 4 has rope_factor = 2" \
        "eps=1e-6|1e-05 for the number that norms add to a variance, but layer 2 has eps = 1e-06" \
        "heads=8 -D kv_heads=4 -D dim=8|16 for the columns of a head, but layer 4 has dim = 8"; do
        # shellcheck disable=SC2086
        expect "$file: ${case%%|*}" " says ${case#*|}: the file belongs to another model" "$(warned "$from" "${other[@]}" --weights "$room/$file" -D ${case%%|*})"
    done
done
expect "linear scaling in the file only" " says 4 for the factor of rope's scaling, but layer 4 has rope_factor = 1: the file belongs to another model" \
    "$(warned "$room/linear.gguf" "${other[@]}" --weights "$room/linear.gguf")"
expect "linear scaling in file and script" \
    "" "$(warned "" "${other[@]}" --weights "$room/linear.gguf" -D rope_factor=4)"
expect "linear scaling in the file, Llama 3's in the script" " says 0 for the context of rope's scaling, but layer 4 has rope_context = 8192: the file belongs to another model" \
    "$(warned "$room/linear.gguf" "${other[@]}" --weights "$room/linear.gguf" -D rope_factor=4 -D rope_low=1 -D rope_high=4 -D rope_context=8192)"
expect "a parameter of the model that the file names" 1 "$("$PIANOLA" run schedules/serial.lua -D batches=1 -D context=64 -D rows=1 -D rope=20000 --data "$room/text" --weights "$room/F32.gguf" --steps 0 2>&1 | grep -c "but layer 4 has rope = 20000:")"
expect "generate" 1 "$("$PIANOLA" generate --weights "$room/F32.gguf" --model schedules/models/llama.lua -D layers=2 -D inner=96 -D rope=500 --prompt a --tokens 1 2>&1 | grep -c "10000 for the base of rope, but layer 4 has rope = 500:")"
expect "ranks" "" "$(ranks "$room/linear.gguf" "$room/linear.gguf" | grep error; grep -q "rank 1: $room/linear.gguf says 4 for the factor of rope's scaling, but layer [0-9]* has rope_factor = 1:" "$room/out1" || cat "$room/out1")"

# GPT-2's names and the layout of its matrices, from the file's config.json or from the script's parameters.
mkdir "$room/gpt2"
loss=$(/usr/bin/python3 tests/models/import/gpt2.py "$room/gpt2" "$room/text" 64)
gpt2=(--model schedules/models/gpt2.lua -D layers=2 -D width=48 -D heads=4 -D vocab=256 -D context=64 -D norm_eps=0.001)
of_gpt2() {
    "$PIANOLA" run "${@}" -D rows=1 --data "$room/text" --weights "$room/gpt2/model.safetensors" --steps 0 --json 2>&1 |
        sed -nE 's/^  "loss": (.*)/\1/p;/error:/p'
}
expect "GPT-2" near "$(near "$(of_gpt2 schedules/serial.lua -D batches=1 "${gpt2[@]}")" "$loss")"
expect "GPT-2, configured by its config.json" near "$(near "$(of_gpt2 schedules/serial.lua -D batches=1)" "$loss")"
expect "GPT-2, in a pipeline of teams" near "$(near "$(of_gpt2 schedules/1f1b.lua -D workers=2 -D batches=2 -D tensor=2 "${gpt2[@]}")" "$loss")"

# Llamas configured by their config.json: heads wider than the width implies, other eps, scaled rope, Qwen2's biases of
# q, k and v, and Qwen3's per-head norms.
for kind in plain qwen2 qwen3 linear llama3; do
    mkdir "$room/$kind"
    loss=$(/usr/bin/python3 tests/models/import/llamas.py "$room/$kind" "$room/text" 64 $kind)
    schedules=("serial.lua -D batches=1" "1f1b.lua -D workers=2 -D batches=2 -D tensor=2" "zbv.lua -D workers=2 -D batches=4")
    case $kind in qwen3 | linear | llama3) # these have an output layer of their own, so layers between split ones can be divided by rows
        for parallel in context ulysses; do
            schedules+=("1f1b.lua -D workers=2 -D batches=2 -D tensor=2 -D parallel=$parallel")
        done ;;
    esac
    for schedule in "${schedules[@]}"; do
        # shellcheck disable=SC2086
        expect "$kind, configured by its config.json, $schedule" near "$(near "$("$PIANOLA" run schedules/$schedule -D context=64 -D rows=1 \
            --data "$room/text" --weights "$room/$kind/model.safetensors" --steps 0 --json 2>&1 |
            sed -nE 's/^  "loss": (.*)/\1/p;/error:/p')" "$loss")"
    done
done

# ---- export: a checkpoint of untrained weights equals the file, tensor by tensor; trained weights read back ----

# exported NAME WEIGHTS STEPS MODEL...: trains two ranks from WEIGHTS, at nearly zero learning rate if STEPS is 1, and
# exports the checkpoint into $room/NAME.hf
exported() {
    local at=(--world-size 2 --master-addr 127.$((1 + $$ / 250 % 250)).$(($$ % 250)).2$3 --master-port 29600)
    "$PIANOLA" compile schedules/1f1b.lua -D workers=2 -D batches=2 "${@:4}" -D rows=1 -o "$room/$1" && make -s -C "$room/$1"
    for k in 1 0; do
        timeout 60 "$room/$1/rank$k" "${at[@]}" --rank $k --data "$room/text" --steps "$3" --weights "$2" \
            --checkpoint "$room/$1.saved" >"$room/$1.out$k" 2>&1 &
    done
    wait
    "$PIANOLA" export-weights "$room/$1.saved" --names hf "${@:4}" -D rows=1 -o "$room/$1.hf" 2>&1
}
tensors() { /usr/bin/python3 tests/models/import/tensors.py "$1"; }
# AdamW moves a weight by at most its learning rate, and 1e-30 changes no fp32 weight here.
small=(--model schedules/models/llama.lua -D layers=2)
other=("${small[@]}" -D width=48 -D dim=16 -D inner=80 -D rope=1000)
for kind in llama gpt2 qwen2 qwen3 llama3; do
    case $kind in
    llama) from=$room/F32.safetensors script=("${small[@]}" -D inner=96) ;;
    gpt2) from=$room/gpt2/model.safetensors script=("${gpt2[@]}") ;;
    qwen2) from=$room/qwen2/model.safetensors script=("${other[@]}" -D bias=true -D eps=0.1 -D tied=true) ;;
    qwen3) from=$room/qwen3/model.safetensors script=("${other[@]}" -D qk_norm=true -D eps=0.1) ;;
    llama3)
        from=$room/llama3/model.safetensors
        script=("${other[@]}" -D eps=0.001 -D rope_factor=8 -D rope_low=1 -D rope_high=4 -D rope_context=16)
        ;;
    esac
    expect "$kind: export" yes "$(exported $kind "$from" 1 "${script[@]}" -D lr=1e-30 |
        grep -qE "^$room/$kind.hf/model.safetensors: step 1, [0-9]+ tensors, [0-9.]+ MB, in Hugging Face's names\$" && echo yes)"
    expect "$kind: the exported tensors are the file's" \
        "$(tensors "$from")" "$(tensors "$room/$kind.hf/model.safetensors")"
    exported $kind.trained "$from" 2 "${script[@]}" >/dev/null
    expect "$kind: trained tensors differ" differ "$(cmp -s <(tensors "$from") <(tensors "$room/$kind.trained.hf/model.safetensors") || echo differ)"
    wanted=$("$PIANOLA" run schedules/serial.lua -D batches=2 -D rows=1 "${script[@]}" --data "$room/text" --weights "$from" \
        --losses "$room/losses.tsv" --steps 3 2>&1 | sed -nE 's/^weights *([0-9a-f]+).*/\1/p')
    expect "$kind: training resumed from the export: the loss of a run of three steps" \
        near "$(near "$("$PIANOLA" run schedules/serial.lua -D batches=2 -D rows=1 --data "$room/text" \
            -D context=64 --weights "$room/$kind.trained.hf/model.safetensors" --steps 0 --json 2>/dev/null | sed -nE 's/^  "loss": (.*)/\1/p')" \
            "$(awk 'END { print $3 }' "$room/losses.tsv")")"
done
# Published sizes have the published number of parameters; a shared table counts once.
while read -r size parameters; do
    expect "$size: parameters" "$parameters" "$(($("$PIANOLA" show schedules/serial.lua -D stages=1 -D batches=1 \
        --model schedules/models/llama.lua -D size="$size" --json | sed -nE 's/.*"at_peak": \{ "weights": ([0-9]+).*/\1/p') / 4))"
done <<'EOF'
Qwen3-0.6B 596049920
Qwen3-1.7B 1720574976
Qwen3-4B 4022468096
Qwen3-8B 8190735360
EOF
# The default context is the one that the model was trained with, unless -D changes it.
while read -r size context options; do
    # shellcheck disable=SC2086 # options are several words
    expect "$size $options: context" "llama on 1 rank, 1 row a step, $context tokens a row" "$("$PIANOLA" tune schedules/1f1b.lua --memory 1e18 \
        --model schedules/models/llama.lua --cluster schedules/clusters/nodes.lua --workers 1 --rows 1 -D size="$size" $options 2>&1 | head -n 1)"
done <<'EOF'
SmolLM2-135M 8192
Llama-2-7B 4096
Llama-2-7B 512 -D context=512
Llama-3-8B 8192
Llama-3.2-1B 131072
Qwen2.5-0.5B 32768
Qwen3-0.6B 40960
EOF
expect "run prints the context" "pianola: microbatches of 2 rows of 16 tokens" "$("$PIANOLA" run schedules/serial.lua -D batches=1 \
    --model schedules/models/llama.lua -D layers=1 -D rows=2 -D context=16 --steps 1 2>&1 >/dev/null | grep microbatches)"
expect "more memory than the machine has" 1 "$("$PIANOLA" run schedules/serial.lua -D batches=1 --model schedules/models/llama.lua -D layers=64 \
    -D width=65536 -D heads=64 -D kv_heads=64 --steps 1 2>&1 | grep -cE '^pianola: error: the ranks of this schedule together need [0-9.]+ GB of memory, and this machine has [0-9.]+ GB; use fewer or shorter rows than 4 of 64 tokens: -D rows=N -D context=N$')"

out=$("$PIANOLA" export-weights "$room/llama.saved" --names hf "${small[@]}" -D inner=96 -D rows=1 -D context=2048 --tokenizer "$room/tokenizer.json" -o "$room/longer" 2>&1)
expect "export: the number of learned positions" "  \"max_position_embeddings\": 2048, $room/longer/config.json says max_position_embeddings = 2048" \
    "$(grep max_position "$room/longer/config.json") $(sed -n 's/^pianola: \(.*\), the context of this --model.*/\1/p' <<<"$out")"
expect "export: with a tokenizer" "" "$(cmp "$room/tokenizer.json" "$room/longer/tokenizer.json" 2>&1)"
for file in text; do
    "$PIANOLA" export-weights "$room/llama.saved" --names hf "${small[@]}" -D inner=96 -D rows=1 --tokenizer "$room/$file" -o "$room/never" >"$room/out" 2>&1
    expect "export: $file is no tokenizer, and nothing is written" "2 1 gone" "$? $(grep -c "error: .*$room/$file: " "$room/out") $([ -e "$room/never" ] || echo gone)"
done

# ---- files from elsewhere: buffers that are not weights, other types, metadata that is not read ----

mkdir "$room/odd"
/usr/bin/python3 - "$room" <<'PY'
import json, struct, sys
room = sys.argv[1]
raw = open(f"{room}/F32.safetensors", "rb").read()
n, = struct.unpack_from("<Q", raw)
header, data = json.loads(raw[8:8 + n]), raw[8 + n:]
def write(name, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    open(f"{room}/odd/{name}.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
extra = {k: {"dtype": t, "shape": shape, "data_offsets": [len(data) + at, len(data) + at + 8]} for at, k, t, shape in (
    (0, "model.layers.0.attn.bias", "BOOL", [1, 1, 4, 2]), (8, "model.layers.1.attn.bias", "I64", []), (16, "model.layers.0.self_attn.rotary_emb.inv_freq", "F64", [1]))}
escaped = {"__metadata__": {"format": "pt", "é": "a\n\"b\"", "config": "{\"a\": [1, \"\\\\\"]}"}}
write("buffers", header | extra | escaped, data + bytes(24))
write("owner", header | {"model.layers.0.other": extra["model.layers.0.attn.bias"]}, data + bytes(8))
name = "model.layers.1.mlp.up_proj.weight"
at = header[name]["data_offsets"][0]
half = [s // 2 if i == 0 else s for i, s in enumerate(header[name]["shape"])]
write("f64", header | {name: header[name] | {"dtype": "F64", "shape": half}}, data)
write("f9", header | {name: header[name] | {"dtype": "F9"}}, data)
write("u", header | {name: header[name] | {"dtype": "U"}}, data)
write("nan", header, b"\xff" * len(data))
deep = b'{"__metadata__":' + b'{"a":[' * 300000 + b"]}" * 300000
write("deep", deep + b"," + json.dumps(header).encode().replace(b'{"__metadata__": {"format": "pt"}, ', b"", 1), data)
write("open", deep[:-1], data)
index = json.load(open(f"{room}/model.safetensors.index.json"))
index["metadata"] = {"total_size": 1.5e9, "parts": [None, {"a": "\"é\\"}, True], "n": -1}
json.dump(index, open(f"{room}/odd.safetensors.index.json", "w"))
open(f"{room}/cut.safetensors.index.json", "w").write('{"metadata": {"a": "b')
PY
loss=$(sed -n 's/^F32.safetensors //p' "$room/losses")
for file in odd/buffers.safetensors odd/deep.safetensors odd.safetensors.index.json; do
    expect "$file" near "$(near "$(first "$room/$file" schedules/serial.lua -D batches=1)" "$loss")"
done
expect "weights that are NaN" "pianola: warning: $room/odd/nan.safetensors: the loss is nan: its weights are damaged, or belong to another model
None" "$("$PIANOLA" run "${model[@]}" schedules/serial.lua -D batches=1 --weights "$room/odd/nan.safetensors" --steps 0 --json 2>"$room/err" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["loss"])' >"$room/out"; grep warning "$room/err"; cat "$room/out")"

# ---- errors ----

says() { expect "$1" yes "$(got=$(first "${@:3}"); [[ $got == *"$2"* ]] && echo yes || echo "$got")"; }
serial=(schedules/serial.lua -D batches=1)
says "more layers than there are" "has no tensor blk.2.attn_norm.weight, which layer" "$room/F32.gguf" "${serial[@]}" -D layers=3
says "fewer layers than there are" \
    "tensor blk.1.attn_k.weight belongs to no layer of the model" "$room/F32.gguf" "${serial[@]}" -D layers=1
says "another shape" "tensor blk.0.ffn_up.weight is 96 x 64, but weight of layer 9 is 64 x 160, with all its parts, turned" "$room/F32.gguf" "${serial[@]}" -D inner=80
says "one part of several" "but weight of layer 3 is 64 x 192, with all its parts, turned" "$room/F32.gguf" "${serial[@]}" -D kv_heads=4
expect "a model without names" \
    "pianola: error: layer 0: the model does not give its name in safetensors files; give the layer the field 'hf'" \
    "$("$PIANOLA" run "${serial[@]}" --model schedules/models/gpt.lua --weights "$room/F32.safetensors" --steps 0 2>&1 | grep error)"
says "an unknown tensor that is no buffer" "tensor model.layers.0.other belongs to no layer of the model" "$room/odd/owner.safetensors" "${serial[@]}"
says "weights of another type" "tensor model.layers.1.mlp.up_proj.weight: dtype F64; only F32, F16 or BF16 is read here" "$room/odd/f64.safetensors" "${serial[@]}"
for type in F9 U; do
    says "an unknown type" "tensor model.layers.1.mlp.up_proj.weight: dtype $type; only F32, F16 or BF16 is read here" "$room/odd/${type,,}.safetensors" "${serial[@]}"
done
says "metadata that does not end" "of the header: expected a value" "$room/odd/open.safetensors" "${serial[@]}"
says "an index that does not end" \
    "of the index: a string does not end" "$room/cut.safetensors.index.json" "${serial[@]}"
head -c 20000 "$room/F32.gguf" >"$room/cut.gguf"
says "cut off" "lies beyond the end of the file: it was cut off" "$room/cut.gguf" "${serial[@]}"
head -c 100 "$room/F32.gguf" >"$room/cut.gguf"
says "cut off in its header" "ends within its header: it was cut off" "$room/cut.gguf" "${serial[@]}"
head -c 20000 "$room/F32.safetensors" >"$room/cut.safetensors"
says "safetensors, cut off" "are not within the" "$room/cut.safetensors" "${serial[@]}"
says "no file" "No such file" "$room/none.gguf" "${serial[@]}"
says "a folder" "$room: is a folder; name the file in it, such as model.safetensors" "$room" "${serial[@]}"
expect "ranks: a folder" "$room: is a folder; name the file in it, such as model.safetensors or model.safetensors.index.json" "$(ranks "$room" "$room")"
says "a device" "/dev/null: is no file" /dev/null "${serial[@]}"
rm "$room/model-00002-of-00003.safetensors"
says "a part is missing" "model-00002-of-00003.safetensors: No such file" "$room/model.safetensors.index.json" "${serial[@]}"
cp "$room/F32.gguf" "$room/own.gguf"
for option in metrics loss-svg losses timeline; do
    expect "--$option over the weights" "pianola: error: $room/own.gguf: this file is an input; name another one to write to" \
        "$("$PIANOLA" run "${serial[@]}" "${model[@]}" --weights "$room/own.gguf" --steps 1 --$option "$room/own.gguf" 2>&1)"
done
expect "the weights were not overwritten" "" "$(cmp "$room/F32.gguf" "$room/own.gguf" 2>&1)"
expect "two outputs to one file" "pianola: error: --loss-svg $room/../${room##*/}/new: --metrics is written there; name another file" \
    "$("$PIANOLA" run "${serial[@]}" "${model[@]}" --steps 1 --metrics "$room/new" --loss-svg "$room/../${room##*/}/new" 2>&1)"
expect "--steps 0 and --compare" "pianola: error: --steps 0 trains nothing: there is nothing for --compare" \
    "$("$PIANOLA" run "${serial[@]}" "${model[@]}" --steps 0 --compare 2>&1)"
finish
