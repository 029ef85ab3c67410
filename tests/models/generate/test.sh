#!/usr/bin/env bash
# Checks pianola generate. With cached keys and values, its tokens equal numpy's, which recomputes everything for
# each token (greedy.py). Sampled tokens follow their probabilities, and errors are reported.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
printf 'The weights of a model of bytes, drawn at random: it says nothing.' >"$room/text"
(cd tests/models/import && /usr/bin/python3 files.py "$room" "$room/text" 64) >"$room/losses" || exit 2

# generate ARGS...: prints the tokens, or the error.
generate() { timeout 60 "$PIANOLA" generate "$@" --json 2>&1 | sed -nE 's/^  "tokens": \[(.*)\],/\1/p;s/.*error: //p'; }
long=$(head -c 150 README.md | tr '\n' ' ') # more than a decode takes at once
for prompt in x "What is a pianola?" "$long"; do
    wanted=$(/usr/bin/python3 tests/models/generate/greedy.py "$room/F32.gguf" "$prompt" 40)
    expect "40 tokens after a prompt of ${#prompt} bytes" "$wanted" \
        "$(generate --weights "$room/F32.gguf" --prompt "$prompt" --tokens 40 --temperature 0)"
    expect "from safetensors" "$wanted" \
        "$(generate --weights "$room/F32.safetensors" --prompt "$prompt" --tokens 40 --temperature 0)"
done
expect "from an index of several files" "$wanted" \
    "$(generate --weights "$room/model.safetensors.index.json" --prompt "$long" --tokens 40 --temperature 0)"
expect "with a model" "$wanted" "$(generate --weights "$room/F32.gguf" --model schedules/models/llama.lua -D layers=2 \
    -D inner=96 --prompt "$long" --tokens 40 --temperature 0)"
expect "quantised" "$(/usr/bin/python3 tests/models/generate/greedy.py "$room/Q8_0.gguf" "$long" 20)" \
    "$(generate --weights "$room/Q8_0.gguf" --prompt "$long" --tokens 20 --temperature 0)"
expect "a top-p of 0 is greedy" "$wanted" \
    "$(generate --weights "$room/F32.gguf" --prompt "$long" --tokens 40 --temperature 1 --top-p 0)"

# Sampling: a seed always gives the same tokens, and their frequencies equal their probabilities.
expect "a seed's tokens" "$(generate --weights "$room/F32.gguf" --prompt x --seed 7)" \
    "$(generate --weights "$room/F32.gguf" --prompt x --seed 7)"
expect "another seed's tokens differ" yes "$([ "$(generate --weights "$room/F32.gguf" --prompt x --seed 7)" != \
    "$(generate --weights "$room/F32.gguf" --prompt x --seed 8)" ] && echo yes)"
for ((seed = 0; seed < 400; seed++)); do
    generate --weights "$room/F32.gguf" --prompt x --tokens 1 --temperature 0.7 --top-p 0.6 --seed $seed
done >"$room/drawn"
expect "frequencies of sampled tokens" likely "$(/usr/bin/python3 tests/models/generate/drawn.py "$room/F32.gguf" x 0.7 0.6 "$room/drawn")"

expect "the answer as text" "$(/usr/bin/python3 -c "import sys
sys.stdout.buffer.write(bytes([$wanted]) + b'\n')" | od -An -c)" \
    "$("$PIANOLA" generate --weights "$room/F32.gguf" --prompt "$long" --tokens 40 --temperature 0 2>/dev/null | od -An -c)"
"$PIANOLA" generate --weights "$room/F32.gguf" --prompt x --tokens 3 2>"$room/err" >/dev/null
expect "it names the model" 1 "$(grep -c 'F32.gguf: using --model schedules/models/llama.lua -D layers=2 -D width=64 -D heads=4 -D kv_heads=2 -D inner=96 -D vocab=256 -D rope=10000 -D tied=false$' "$room/err")"
expect "it prints the speed" 1 "$(grep -cE '^pianola: 1 token of prompt in [0-9.]+ s, 3 tokens at [0-9.]+ a second; --tokens N writes more$' "$room/err")"
# Extreme temperatures: one acts like 0, the other ignores the model, so that a byte may be zero.
expect "temperature 1e-9" "$wanted" "$(generate --weights "$room/F32.gguf" --prompt "$long" --tokens 40 --temperature 1e-9)"
expect "temperature 1e-320" "$wanted" "$(generate --weights "$room/F32.gguf" --prompt "$long" --tokens 40 --temperature 1e-320)"
"$PIANOLA" generate --weights "$room/F32.gguf" --prompt $'\xff\xc0"x' --tokens 3000 --temperature 100 --top-p 1 --json \
    >"$room/hot.json" 2>"$room/err"
expect "JSON fits the schema, also with bytes that are not UTF-8" "" "$(/usr/bin/python3 tests/formats/json/valid.py generate "$room/hot.json" 2>&1)"
"$PIANOLA" tokenize README.md --tokenizer "$room/tokenizer.json" -o "$room/tokens.bin" --json >"$room/counts.json"
expect "JSON of tokenize fits the schema" \
    "" "$(/usr/bin/python3 tests/formats/json/valid.py tokenize "$room/counts.json" 2>&1)"
expect "every byte is generated, and is in the text" yes "$(/usr/bin/python3 -c "import json
j = json.load(open('$room/hot.json'))
seen = set(j['tokens'])
print('yes' if len(seen) == 256 and j['text'].count('\0') == j['tokens'].count(0) and
    j['text'].replace('\ufffd', '') == bytes(j['tokens']).decode('utf-8', 'ignore') and
    j['prompt_tokens'] == [255, 192, 34, 120] else j)")"

# A model with learned positions stops after the last of them.
mkdir "$room/gpt2" && cp "$room/tokenizer.json" "$room/gpt2/"
wanted2=$(/usr/bin/python3 tests/models/import/gpt2.py "$room/gpt2" "$room/text" 48 "What is a pianola, and what are its positions?")
g2=(--weights "$room/gpt2/model.safetensors" --temperature 0)
for tokens in 3 200 9223372036854775807; do
    expect "GPT-2, --tokens $tokens" "$wanted2" \
        "$(generate "${g2[@]}" --prompt "What is a pianola, and what are its positions?" --tokens $tokens)"
done

# Per-head norms precede rope, and cached keys include both.
mkdir "$room/qwen3" && cp "$room/tokenizer.json" "$room/qwen3/"
wanted3=$(/usr/bin/python3 tests/models/import/llamas.py "$room/qwen3" "$room/text" 90 qwen3 "What is a pianola?")
expect "Qwen3" "$wanted3" "$(generate --weights "$room/qwen3/model.safetensors" --temperature 0 --prompt "What is a pianola?" --tokens 72)"

# The end token of tokenizer_config.json: here the third token of the answer. Also folders without tokenizer.json.
mkdir "$room/ends" "$room/older"
for to in ends older; do
    cp "$room/F32.safetensors" "$room/config.json" "$room/$to/"
done
/usr/bin/python3 - "$room" "$wanted" <<'PY'
import json, sys
room, wanted = sys.argv[1], [int(x) for x in sys.argv[2].split(", ")]
tokenizer = json.load(open(f"{room}/tokenizer.json"))
vocab = tokenizer["model"]["vocab"]
json.dump(tokenizer, open(f"{room}/ends/tokenizer.json", "w"))
name = next(name for name, id in vocab.items() if id == wanted[2])
json.dump({"eos_token": {"content": name}, "add_bos_token": None}, open(f"{room}/ends/tokenizer_config.json", "w"))
json.dump(vocab, open(f"{room}/older/vocab.json", "w"))
open(f"{room}/older/merges.txt", "w").write("#version: 0.2\n")
open(f"{room}/before", "w").write(", ".join(map(str, wanted[:wanted.index(wanted[2])])))
PY
"$PIANOLA" generate --weights "$room/ends/F32.safetensors" --prompt "$long" --tokens 40 --temperature 0 --json >"$room/json" 2>"$room/err"
expect "it stops at tokenizer_config.json's end token" "$(cat "$room/before") True" "$(/usr/bin/python3 -c "import json
j = json.load(open('$room/json')); print(*[', '.join(map(str, j['tokens'])), j['ended']])")"
expect "vocab.json and merges.txt" "$wanted" \
    "$(generate --weights "$room/older/F32.safetensors" --prompt "$long" --tokens 40 --temperature 0)"
expect "no tokenizer" "$room/alone2/tokenizer.json: No such file or directory" \
    "$(mkdir "$room/alone2"; cp "$room/F32.safetensors" "$room/config.json" "$room/alone2/"; generate --weights "$room/alone2/F32.safetensors" --prompt x)"

# A rope has no last position, but the model's context has an end.
sed -i 's/"max_position_embeddings": 2048/"max_position_embeddings": 30/' "$room/older/config.json"
learned() { "$PIANOLA" generate --weights "$room/older/F32.safetensors" --prompt 'Ten bytes.' --tokens "$1" 2>&1 >"$room/out" | sed -n 's/^pianola: warning: //p'; }
expect "positions beyond the model's context" "$room/older/config.json says that its model was trained for 30 positions, but this run uses 31" "$(learned 21)"
expect "positions within the model's context" "" "$(learned 20)"

# Without --model, `run` also uses the model of the weights' file.
expect "run" "$(sed -n 's/^F32.gguf //p' "$room/losses" | cut -c1-6)" "$("$PIANOLA" run schedules/serial.lua -D batches=1 -D rows=1 \
    --data "$room/text" --weights "$room/F32.gguf" --steps 0 --json 2>/dev/null | sed -nE 's/^  "loss": (.{6}).*/\1/p')"

# ---- errors ----

says() { expect "$1" "$2" "$(generate "${@:3}")"; }
g=(--weights "$room/F32.gguf")
says "no weights" "\`generate\` needs --weights FILE, a model's GGUF or safetensors file" --prompt x
says "no prompt" '`generate` needs --prompt TEXT, the text to continue' "${g[@]}"
says "a file" "\`generate\` takes no file, but got 'x'; name the model's weights with --weights" x "${g[@]}"
says "no such file" "$room/none: No such file or directory" --weights "$room/none" --prompt x
says "no model" "$room/alone/F32.safetensors: no config.json beside it describes its model; name the model with --model" \
    --weights "$(mkdir "$room/alone" && cp "$room/F32.safetensors" "$room/alone/" && echo "$room/alone/F32.safetensors")" --prompt x
says "temperature" "--temperature -1: expected a number from 0 to 100" "${g[@]}" --prompt x --temperature -1
says "chat" "--chat: the tokenizer has no <|im_start|> and <|im_end|>, so its model does not know ChatML" "${g[@]}" --prompt x --chat
says "no text model" "schedules/models/integers.lua: the model does not predict tokens" "${g[@]}" --prompt x --model schedules/models/integers.lua
sed 's/"model_type": "llama"/"model_type": "mamba"/' "$room/config.json" >"$room/alone/config.json"
/usr/bin/python3 -c "d = bytearray(open('$room/F32.gguf', 'rb').read())
d[-4:] = bytes([0, 0, 192, 127])
open('$room/nan.gguf', 'wb').write(d)"
for temperature in 0 1; do
    says "a weight that is NaN" "$room/nan.gguf: the model computes nan for a token: its weights are damaged, or belong to another model" \
        --weights "$room/nan.gguf" --prompt x --temperature $temperature
done
expect "too many tokens" "no memory for the keys and values of 2147483647 tokens; give fewer --tokens" \
    "$(ulimit -v 16000000; generate "${g[@]}" --prompt x --tokens 9223372036854775807)"
says "no position left" "the prompt has 48 tokens, but the model has only 48 positions" "${g2[@]}" --prompt "$(head -c 48 README.md)"
timeout 20 "$PIANOLA" generate "${g[@]}" --prompt x --tokens 1000000 >/dev/full 2>"$room/err"
expect "a full disk at stdout" "2 pianola: error: stdout: No space left on device" "$? $(tail -n 1 "$room/err")"
says "another architecture" "$room/alone/config.json: unknown architecture 'mamba'; known are llama, qwen2, qwen3, gpt2. Write the model as a script, and give it with --model" \
    --weights "$room/alone/F32.safetensors" --prompt x
sed 's/"hidden_size": 64/"hidden_size": 1e400/' "$room/config.json" >"$room/alone/config.json"
says "an argument that is no number" "$room/alone/config.json: byte 117: expected a number" --weights "$room/alone/F32.safetensors" --prompt x
expect "files with impossible contents" "done" "$(/usr/bin/python3 tests/models/generate/hostile.py "$PIANOLA" "$room")"
finish
