#!/usr/bin/env bash
# Checks pianola tokenize: tokens of texts and back, errors that leave nothing half written, and training on tokens.
# exact.py compares the tokens with the tokenizers' own library (make test-tokens).
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# tokenizer.json: all bytes in order and the results of some merges; 300 ends a text. Also as a GGUF file and as a
# folder.
python3 - "$room" <<'PY'
import json, os, struct, sys
room = sys.argv[1]
seen = [b for b in range(256) if 32 < b < 127 or 160 < b < 173 or b > 173]
unseen = [b for b in range(256) if b not in seen]
alphabet = {b: chr(b) if b in seen else chr(256 + unseen.index(b)) for b in range(256)}
merges = ["h e", "l l", "he ll", "hell o", alphabet[32] + " w", "o r"]
vocab = {alphabet[b]: b for b in range(256)} | {m.replace(" ", ""): 256 + i for i, m in enumerate(merges)}
made = {"added_tokens": [{"id": 300, "content": "<|endoftext|>", "special": True}], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges}}
def write(name, x): open(f"{room}/{name}", "w").write(json.dumps(x))
write("tokenizer.json", made)
write("zero.json", made | {"decoder": {"a\0": 1}, "added_tokens": made["added_tokens"] + [{"id": 301, "content": "\0"}],
    "model": made["model"] | {"vocab": vocab | {"a\0b": 299}}})
write("nfc.json", made | {"normalizer": {"type": "NFC"}})
write("endless.json", made | {"added_tokens": []})
begin = {"id": 299, "content": "<s>", "special": True}
def template(*items): return {"type": "TemplateProcessing", "single": list(items), "pair": [],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [299], "tokens": ["<s>"]}}}
special, text = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
bytewise = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
added = {"added_tokens": made["added_tokens"] + [begin]}
write("bytewise.json", made | {"post_processor": bytewise})
write("begins.json", made | added | {"post_processor": template(special, text)})
write("sequence.json", made | added | {"post_processor": {"type": "Sequence", "processors": [bytewise, template(special, text)]}})
write("ends.json", made | added | {"post_processor": template(text, special)})
finish = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
around = template(special, special, text, finish)
write("around.json", made | added | {"post_processor": around})
renamed = template(special, text) | {"special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<|endoftext|>"]}}}
write("renamed.json", made | added | {"post_processor": renamed})
write("several.json", made | added | {"post_processor": renamed | {"special_tokens": {"<s>": {"id": "<s>", "ids": [300, 299]}}}})
write("letter.json", made | added | {"post_processor": renamed | {"special_tokens": {"<s>": {"id": "<s>", "ids": [104]}}}})
write("textless.json", made | added | {"post_processor": template(special)})
write("twotexts.json", made | added | {"post_processor": template(text, special, text)})
write("templates.json", made | added | {"post_processor": {"type": "Sequence", "processors": [template(special, text), template(special, text)]}})
write("many.json", made | added | {"post_processor": template(*[special] * 9, text)})
write("unknown.json", made | {"post_processor": template(special, text)})
write("roberta.json", made | {"post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}})
write("wide.json", made | {"added_tokens": [{"id": 70000, "content": "<|endoftext|>"}]})
os.mkdir(f"{room}/gpt2")
write("gpt2/vocab.json", vocab | {"<|endoftext|>": 300})
open(f"{room}/gpt2/merges.txt", "w").write("#version: 0.2\n" + "\n".join(merges) + "\n")
# Without tokenizer.json, tokenizer_config.json counts, as in transformers.
ends = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|endoftext|>", "special": True}, "chat_template": "{{ x }}"}
for name, config in (("none", {}), ("bos", {"add_bos_token": True, "add_eos_token": None}), ("both", {"add_bos_token": True, "add_eos_token": True})):
    os.mkdir(f"{room}/gpt2-{name}")
    for file in "vocab.json", "merges.txt":
        os.link(f"{room}/gpt2/{file}", f"{room}/gpt2-{name}/{file}")
    write(f"gpt2-{name}/tokenizer_config.json", ends | config)
os.mkdir(f"{room}/beside")
write("beside/tokenizer.json", made | added | {"added_tokens": [begin | {"content": "</s>"}], "post_processor": None})
write("beside/tokenizer_config.json", {"eos_token": "</s>", "bos_token": "hello", "add_bos_token": True, "add_eos_token": False})
names = list(vocab) + [f"<{i}>" for i in range(len(vocab), 300)] + ["<|endoftext|>"]
string = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
strings = lambda l: struct.pack("<IIQ", 9, 8, len(l)) + b"".join(map(string, l))
def gguf(name, pre, *more):
    keys = [("x.many", struct.pack("<IIQ6h", 9, 3, 6, *range(6))), ("x.one", struct.pack("<Id", 12, 1.5)),
            ("tokenizer.ggml.model", struct.pack("<I", 8) + string("gpt2")), ("tokenizer.ggml.pre", struct.pack("<I", 8) + string(pre)),
            ("tokenizer.ggml.merges", strings(merges)), ("tokenizer.ggml.tokens", strings(names)),
            ("tokenizer.ggml.token_type", struct.pack(f"<IIQ{len(names)}i", 9, 5, len(names), *[1] * len(vocab), *[3] * (len(names) - len(vocab)))), *more]
    open(f"{room}/{name}", "wb").write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(string(k) + v for k, v in keys))
gguf("model.gguf", "gpt-2")
gguf("other.gguf", "deepseek-llm")
number, flag = lambda n: struct.pack("<II", 4, n), lambda b: struct.pack("<IB", 7, b)
begin = ("tokenizer.ggml.bos_token_id", number(299))
gguf("begins.gguf", "gpt-2", begin, ("tokenizer.ggml.add_bos_token", flag(True)))
gguf("begins-not.gguf", "gpt-2", begin)
end = ("tokenizer.ggml.eos_token_id", number(300))
gguf("llama.gguf", "llama-bpe", begin)
gguf("around.gguf", "llama-bpe", begin, end, ("tokenizer.ggml.add_eos_token", flag(True)))
gguf("ends-not.gguf", "gpt-2", end, ("tokenizer.ggml.add_eos_token", flag(False)))
gguf("nobos.gguf", "gpt-2", ("tokenizer.ggml.add_bos_token", flag(True)))
gguf("noeos.gguf", "gpt-2", ("tokenizer.ggml.add_eos_token", flag(True)))
gguf("chat.gguf", "qwen2", begin, end, ("tokenizer.chat_template", struct.pack("<I", 8) + string('{% for m in messages %}"\\n{{ m }}{% endfor %}' + 200 * "x")))
gguf("gone.gguf", "gpt-2", ("tokenizer.ggml.bos_token_id", number(9999)), ("tokenizer.ggml.add_bos_token", flag(True)))
gguf("llama-not.gguf", "llama-bpe", begin, ("tokenizer.ggml.add_bos_token", flag(False)))
PY
T=$room/tokenizer.json

# ids FILE: prints its header and its tokens.
ids() { od -An -v -td4 -N12 "$1" | xargs; od -An -v -t"${2:-u2}" -j1024 -w100000 "$1" | xargs; }
tokens() { rm -f "$room/t.bin"; "$PIANOLA" tokenize "$@" -o "$room/t.bin" >"$room/out" 2>&1 || cat "$room/out"; }

printf 'hello world' >"$room/a.txt"
printf '' >"$room/none.txt"
printf '\xff\x00hell<|endoftext|>' >"$room/b.bin"
tokens "$room/a.txt" --tokenizer "$T"
wanted="20240520 1 5
259 260 261 108 100" # hello, " w", or, l, d
expect "one text" "$wanted" "$(ids "$room/t.bin")"
# A Git LFS pointer is not a text.
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >"$room/pointer"
tokens "$room/pointer" --tokenizer "$T" >/dev/null
expect "a pointer" 1 "$(grep -c "error: $room/pointer: is a Git LFS pointer, not the file" "$room/out")"
tokens "$room/a.txt" --tokenizer "$T"
expect "what tokenize reports" "$room/t.bin: 1 document, 11 bytes, 5 tokens of 16 bits, 2.2 bytes a token" "$(sed 's/, [0-9.]* s, .*//' "$room/out")"
for t in gpt2 model.gguf endless.json nfc.json zero.json; do
    tokens "$room/a.txt" --tokenizer "$room/$t"
    expect "one text with $t" "$wanted" "$(ids "$room/t.bin")"
done
for t in bytewise.json begins-not.gguf llama-not.gguf ends-not.gguf gpt2-none; do
    tokens "$room/a.txt" --tokenizer "$room/$t"
    expect "$t: nothing before a text" "$wanted" "$(ids "$room/t.bin")"
done
for t in begins.json sequence.json begins.gguf llama.gguf; do
    tokens "$room/a.txt" --tokenizer "$room/$t"
    expect "$t: a token before a text" "20240520 1 6
299 259 260 261 108 100" "$(ids "$room/t.bin")"
    expect "$t: decoding leaves that token out" "hello world" "$("$PIANOLA" tokenize --decode "$room/t.bin" --tokenizer "$room/$t" 2>"$room/err")"
    tokens "$room/a.txt" "$room/a.txt" --tokenizer "$room/$t"
    "$PIANOLA" tokenize --decode "$room/t.bin" --tokenizer "$room/$t" >"$room/out" 2>"$room/err"
    expect "$t: decoding reports what it leaves out" \
        "pianola: left out 2 times token 299, which stands in front of texts
pianola: left out 1 times token 300, which stands between texts" "$(cat "$room/err")"
    expect "$t: a token before each text" "299 259 260 261 108 100 300 299 259 260 261 108 100" "$(ids "$room/t.bin" | tail -n 1)"
done
# around TOKENIZER ONE TWO SAID: checks the tokens of one text and of two, and what decoding leaves out.
around() {
    tokens "$room/a.txt" --tokenizer "$room/$1"
    expect "$1: a text" "$2" "$(ids "$room/t.bin" | tail -n 1)"
    tokens "$room/a.txt" "$room/a.txt" --tokenizer "$room/$1"
    expect "$1: two texts" "$3" "$(ids "$room/t.bin" | tail -n 1)"
    "$PIANOLA" tokenize --decode "$room/t.bin" --tokenizer "$room/$1" >"$room/out" 2>"$room/err"
    expect "$1: back" "hello worldhello world" "$(cat "$room/out")"
    expect "$1: decoding reports what it leaves out" "$4" "$(sed 's/pianola: left out //' "$room/err")"
}
a="259 260 261 108 100"
around ends.json "$a 299" "$a 299 300 $a 299" "2 times token 299, which stands behind texts
1 times token 300, which stands between texts"
around around.json "299 299 $a 300" "299 299 $a 300 299 299 $a 300" "4 times token 299, which stands in front of texts
2 times token 300, which stands behind and between texts"
around around.gguf "299 $a 300" "299 $a 300 299 $a 300" "2 times token 299, which stands in front of texts
2 times token 300, which stands behind and between texts"
tokens "$room/a.txt" --tokenizer "$room/renamed.json"
expect "a template with its own token numbers" "300 $a" "$(ids "$room/t.bin" | tail -n 1)"
tokens "$room/a.txt" --tokenizer "$room/gpt2-bos"
expect "tokenizer_config.json: a token before a text" "300 $a" "$(ids "$room/t.bin" | tail -n 1)"
tokens "$room/a.txt" --tokenizer "$room/gpt2-both"
expect "and one after it" "300 $a 300" "$(ids "$room/t.bin" | tail -n 1)"
"$PIANOLA" tokenize "$room/a.txt" "$room/a.txt" --tokenizer "$room/beside/tokenizer.json" -o "$room/t.bin" 2>"$room/err" >"$room/out"
expect "with tokenizer.json, tokenizer_config.json gives the end token" "$a 299 $a" "$(ids "$room/t.bin" | tail -n 1)"
expect "but not the tokens to add, which is reported" "pianola: $room/beside/tokenizer_config.json says add_bos_token = true, but the post_processor of tokenizer.json adds no 'hello' in front of texts; it takes precedence, as in transformers" \
    "$(cat "$room/err")"
for t in "unknown.json|each text must begin with token 299, which does not exist" "roberta.json|a post_processor of type .*RobertaProcessing.*; ByteLevel, TemplateProcessing" \
    "letter.json|token 104, .h., which texts may contain" "several.json|'<s>' stands for several tokens" "textless.json|whose template has no text" "twotexts.json|has a text twice" "templates.json|with two templates" \
    "many.json|more than 8 tokens in front of each text" "nobos.gguf|add_bos_token is true, but there is no tokenizer.ggml.bos_token_id" "noeos.gguf|add_eos_token is true, but there is no" "gone.gguf|begin with token 9999, which does not exist"; do
    expect "${t%%|*}: refused" 1 "$("$PIANOLA" tokenize "$room/a.txt" --tokenizer "$room/${t%%|*}" -o "$room/never" 2>&1 | grep -c "${t#*|}")"
done
tokens "$room/a.txt" --tokenizer "$room/wide.json"
expect "32 bits for a larger vocabulary" "$(sed 's/20240520 1/20240801 7/' <<<"$wanted")" "$(ids "$room/t.bin" u4)"
expect "32-bit tokens decoded" \
    "hello world" "$("$PIANOLA" tokenize --decode "$room/t.bin" --tokenizer "$room/wide.json")"
tokens "$room/b.bin" "$room/none.txt" "$room/a.txt" --tokenizer "$T"
expect "documents; a text never becomes a special token" "20240520 1 23
255 0 258 60 124 101 110 100 111 102 116 101 120 116 124 62 300 300 259 260 261 108 100" "$(ids "$room/t.bin")"
"$PIANOLA" tokenize --decode "$room/t.bin" --tokenizer "$T" -o "$room/back" 2>"$room/err"
expect "decoding reports what it leaves out" \
    "pianola: left out 2 times token 300, which stands between texts" "$(cat "$room/err")"
expect "all documents decoded" "" "$(cat "$room/b.bin" "$room/a.txt" | cmp - "$room/back" 2>&1)"
printf '{"text": "he\\u006clo"}\n\n{"id": [1, {}], "text": ""}\r\n{"text": "\\ud83d\\ude00"}' >"$room/l.jsonl"
tokens "$room/l.jsonl" --tokenizer "$T"
expect "lines" "20240520 1 7
259 300 300 240 159 152 128" "$(ids "$room/t.bin")"
printf 'e\xcc\x81' >"$room/e.txt"
expect "not in NFC" "pianola: 1 of 1 documents were not in Unicode's NFC, which this tokenizer requires: they were converted, and decode to NFC" \
    "$("$PIANOLA" tokenize "$room/e.txt" --tokenizer "$room/nfc.json" -o "$room/t.bin" 2>&1 >"$room/out")"
expect "is normalised to NFC" "20240520 1 2
195 169" "$(ids "$room/t.bin")"
"$PIANOLA" tokenize "$room/a.txt" --tokenizer "$T" -o "$room/t.bin" --json | python3 -c '
import json, sys; x = json.load(sys.stdin); x.pop("seconds"); x.pop("file"); print(*x.values())' >"$room/out"
expect "--json" "1 1 11 5 16 301 2.2 0" "$(cat "$room/out")"

# refused WANTED ARGS...: expects exit code 2, the message, and neither the output nor any other new file.
refused() {
    rm -f "$room/t.bin"
    ls -A "$room" >"$room.before"
    local got
    got=$("$PIANOLA" tokenize "${@:2}" 2>&1)
    expect "tokenize ${*:2}: exit code" 2 $?
    expect "tokenize ${*:2}" "pianola: error: $1" "$got"
    expect "tokenize ${*:2}: nothing is written" "" "$(ls -A "$room" | diff "$room.before" -)"
    rm "$room.before"
}
o=(-o "$room/t.bin")
refused "\`tokenize\` needs --tokenizer FILE: the tokenizer.json of the model, or its GGUF file" "$room/a.txt" "${o[@]}"
refused "\`tokenize\` needs -o FILE" "$room/a.txt" --tokenizer "$T"
refused "$room/gone: No such file or directory" "$room/gone" --tokenizer "$T" "${o[@]}"
refused "$room/gone: No such file or directory" "$room/a.txt" --tokenizer "$room/gone" "${o[@]}"
refused "$room/gone/t.bin: No such file or directory" "$room/a.txt" --tokenizer "$T" -o "$room/gone/t.bin"
refused "-: is not a regular file, so it cannot be written to" "$room/a.txt" --tokenizer "$T" -o -
refused "-: the file is memory-mapped, which stdin cannot be; name a file" - --tokenizer "$T" "${o[@]}"
refused "$room/a.txt: this file is an input; name another one to write to" "$room/a.txt" --tokenizer "$T" -o "$room/a.txt"
cp "$T" "$room/own.json"
refused "$room/own.json: this file is an input; name another one to write to" "$room/a.txt" --tokenizer "$room/own.json" -o "$room/own.json"
expect "a tokenizer is not overwritten" "" "$(cmp "$T" "$room/own.json" 2>&1)"
refused "$room/a.txt: a second document, but the tokenizer has no token that ends a text, such as <|endoftext|>: give one file at a time" \
    "$room/a.txt" "$room/a.txt" --tokenizer "$room/endless.json" "${o[@]}"
refused "$room/a.txt: byte 0: expected {" "$room/a.txt" --tokenizer "$room/a.txt" "${o[@]}"
refused "$room/other.gguf: its text is cut as 'deepseek-llm' says, in tokenizer.ggml.pre; known are gpt-2, smollm, llama-bpe, qwen2. The model's tokenizer.json says more: give that" \
    "$room/a.txt" --tokenizer "$room/other.gguf" "${o[@]}"
# Lines of JSON, recognised by content under any name and after a byte order mark; compressed files, or no lines.
made() { tokens "$@" --tokenizer "$T"; sha256sum <"$room/t.bin"; }
wanted=$(made "$room/l.jsonl")
for name in l.ndjson L.JSONL c4-train.00000.json l.txt; do
    cp "$room/l.jsonl" "$room/$name"
    expect "lines of JSON in $name" "$wanted" "$(made "$room/$name")"
done
{ printf '\xef\xbb\xbf'; cat "$room/l.jsonl"; } >"$room/bom.jsonl"
expect "lines of JSON after a byte order mark" "$wanted" "$(made "$room/bom.jsonl")"
expect "it reports lines of JSON" 1 "$("$PIANOLA" tokenize "$room/l.txt" --tokenizer "$T" "${o[@]}" 2>&1 | grep -c "l.txt: each line is an object of JSON with a \"text\": a document")"
printf '{"text": "a" and more\n' >"$room/prose.txt"
expect "a text that only begins like JSON is text" 1 "$("$PIANOLA" tokenize "$room/prose.txt" --tokenizer "$T" "${o[@]}" 2>&1 | grep -c '^[^:]*: 1 document, 22 bytes')"
printf '[{"text": "a"}]' >"$room/list.json"
refused "$room/list.json: is JSON, but not lines of JSON, each an object with a \"text\"; \`jq -c '.[]' $room/list.json > $room/list.jsonl\` makes such lines of a list" \
    "$room/list.json" --tokenizer "$T" "${o[@]}"
gzip -k "$room/l.jsonl"
refused "$room/l.jsonl.gz: is compressed; unpack it first: \`gzip -dc $room/l.jsonl.gz > $room/l.jsonl\`, and give the result" "$room/l.jsonl.gz" --tokenizer "$T" "${o[@]}"
printf '{"text": "a"}\n{"txt": "b"}\n' >"$room/bad.jsonl"
refused "$room/bad.jsonl: line 2: byte 12: the object has no \"text\"" "$room/bad.jsonl" --tokenizer "$T" "${o[@]}"
printf '{"text": "\\ud800"}\n' >"$room/bad.jsonl"
refused "$room/bad.jsonl: line 1: byte 16: half of a surrogate pair, which is not a character" "$room/bad.jsonl" --tokenizer "$T" "${o[@]}"

# A tokenizer that is cut off at any byte is refused with one line.
cut_off() { # FILE STEP
    local n bad=0
    for ((n = 0; n < $(stat -c %s "$1") - 1; n += $2)); do
        head -c "$n" "$1" >"$room/cut"
        "$PIANOLA" tokenize "$room/a.txt" --tokenizer "$room/cut" "${o[@]}" >"$room/out" 2>&1
        [ $? = 2 ] && grep -q "^pianola: error: $room/cut: " "$room/out" || { bad=$((bad + 1)) && echo "$n: $(cat "$room/out")"; }
    done
    expect "cut off: $1" 0 $bad
}
cut_off "$T" 97
cut_off "$room/model.gguf" 61

# Decoding.
tokens "$room/a.txt" --tokenizer "$T"
cp "$room/t.bin" "$room/a.bin"
refused "$room/a.txt: is no file of tokens; \`pianola tokenize\` makes one from a text" --decode "$room/a.txt" --tokenizer "$T"
refused "$room/own.json: this file is an input; name another one to write to" --decode "$room/a.bin" --tokenizer "$room/own.json" -o "$room/own.json"
head -c 1033 "$room/a.bin" >"$room/cut.bin"
refused "$room/cut.bin: says that it has 5 tokens of 16 bits, but has 1033 bytes instead of 1034: it was cut off, or damaged" --decode "$room/cut.bin" --tokenizer "$T"
{ head -c 1024 "$room/a.bin"; printf '\x06\x01\xff\xff\x00\x00\x00\x00\x00\x00'; } >"$room/cut.bin"
refused "$room/cut.bin: token 0 is 262, which $T does not have: another tokenizer made this file" --decode "$room/cut.bin" --tokenizer "$T" -o "$room/t.bin"

# Training: the bytes of a text as tokens equal that text; a larger vocabulary needs tokens, and the error says so.
text=/usr/share/common-licenses/GPL-3
cat >"$room/model.lua" <<'LUA'
local p = params { vocab = 256 }
return model {
  input = tokens { vocab = p.vocab, context = 16, rows = 2 },
  layers = { embedding { width = 16 }, linear { width = 16 }, relu {}, linear { width = p.vocab }, cross_entropy {} },
  optimizer = adamw { lr = 1e-2 },
}
LUA
train() { timeout 60 "$PIANOLA" run schedules/1f1b.lua --model "$room/model.lua" -D workers=2 -D batches=2 --steps 20 --json "$@" 2>&1; }
weights() { sed -nE 's/^  "weights": "(.*)",?$/\1/p;/error:/p'; }
python3 - "$room" $text <<'PY'
import struct, sys
data = open(sys.argv[2], "rb").read()
for name, head, form in (("16", (20240520, 1), "H"), ("32", (20240801, 7), "I")):
    open(f"{sys.argv[1]}/{name}.bin", "wb").write(struct.pack("<256i", *head, len(data), *[0] * 253) + struct.pack(f"<{len(data)}{form}", *data))
PY
bytes=$(train --data $text | weights)
expect "bytes train" no "$(grep -q error <<<"$bytes" && echo yes || echo no)"
expect "as tokens of 16 bits, to the same bits" "$bytes" "$(train --data "$room/16.bin" | weights)"
printf '\xff\xff\xff\xff' | cat <(head -c 1104 "$room/32.bin") - <(tail -c +1109 "$room/32.bin") >"$room/wild.bin"
expect "tokens of 32 bits, beyond the vocabulary" "pianola: error: $room/wild.bin: token 20 is 4294967295, but vocab = 256; use the text itself: this model takes bytes" \
    "$(train --data "$room/wild.bin" | grep error:)"
expect "tokens of 32 bits" "$bytes" "$(train --data "$room/32.bin" | weights)"
tokens $text --tokenizer "$T"
expect "tokens, for a model of bytes" "pianola: error: $room/t.bin: token 20 is 261, but vocab = 256; use the text itself: this model takes bytes" \
    "$(train --data "$room/t.bin" | grep error: | sed 's/token [0-9]* is [0-9]*/token 20 is 261/')"
expect "tokens beyond the vocabulary" "pianola: error: $room/t.bin: token 20 is 261, but vocab = 260; use the model that the tokenizer is for" \
    "$(train --data "$room/t.bin" -D vocab=260 | grep error: | sed 's/token [0-9]* is [0-9]*/token 20 is 261/')"
expect "a text for a model of tokens" "pianola: error: $text: is no file of tokens, but vocab = 301 is more than the values of a byte; make one from this text with \`pianola tokenize $text --tokenizer T -o FILE.bin\`, where T is the model's tokenizer" \
    "$(train --data $text -D vocab=301 | grep error:)"
expect "tokens that were cut off" "pianola: error: $room/cut.bin: says that it has 5 tokens of 16 bits, but has 1033 bytes instead of 1034: it was cut off, or damaged" \
    "$(head -c 1033 "$room/a.bin" >"$room/cut.bin"; train --data "$room/cut.bin" -D vocab=301 | grep error:)"
expect "too few tokens" "pianola: error: $room/a.bin: has 5 tokens, but a sequence takes 17 (context = 16, and the token after it); give more text, or a smaller context" \
    "$(train --data "$room/a.bin" -D vocab=301 | grep error:)"
expect "a model of tokens trains" yes "$(train --data "$room/t.bin" -D vocab=301 | awk -F'[:,]' '/"loss_first"/ { first = $2 } /"loss_last"/ { last = $2 }
    END { print last < first - 0.3 ? "yes" : first " to " last }')"
# export-weights writes the tokenizer of a GGUF file as transformers' files. They give a text the same tokens and have
# the special tokens and the template. With PYTHON_TOKENIZERS, also compares with the library's tokens.
tiny=(--model schedules/models/llama.lua -D layers=1 -D width=8 -D heads=2 -D kv_heads=1 -D inner=8 -D vocab=301 -D rows=1 -D context=16)
"$PIANOLA" run schedules/serial.lua "${tiny[@]}" --steps 1 --checkpoint "$room/trained" >/dev/null 2>&1
printf "hello world, it's 12345 low\n\n  tabs\tand \xc3\xa9\xe4\xb8\xad <|endoftext|> HELLO he's\n" >"$room/mixed.txt"
for name in model begins llama around chat; do
    "$PIANOLA" export-weights "$room/trained" --names hf "${tiny[@]}" --tokenizer "$room/$name.gguf" -o "$room/hf-$name" >/dev/null 2>&1
    tokens "$room/mixed.txt" --tokenizer "$room/$name.gguf"
    wanted=$(ids "$room/t.bin")
    tokens "$room/mixed.txt" --tokenizer "$room/hf-$name/tokenizer.json"
    expect "the tokenizer of $name.gguf as tokenizer.json" "$wanted" "$(ids "$room/t.bin")"
    if [ -n "${PYTHON_TOKENIZERS-}" ]; then
        expect "$name.gguf: the library's tokens" "$(tail -n 1 <<<"$wanted")" "$("$PYTHON_TOKENIZERS" -c 'import sys, tokenizers
t = tokenizers.Tokenizer.from_file(sys.argv[1]); t.encode_special_tokens = True
print(*t.encode(open(sys.argv[2]).read()).ids)' "$room/hf-$name/tokenizer.json" "$room/mixed.txt")"
    fi
done
expect "bos and eos, and the template" "299 300 <|endoftext|> {% for m in messages %}\"\\n{{ m }}{% endfor %}..." "$(python3 -c 'import json, sys
c, t = (json.load(open(f"{sys.argv[1]}/{f}")) for f in ("config.json", "tokenizer_config.json"))
print(c["bos_token_id"], c["eos_token_id"], t["eos_token"], t["chat_template"].replace(200 * "x", "..."))' "$room/hf-chat" 2>&1 | tail -n 1)"
"$PIANOLA" export-weights "$room/trained" --names hf "${tiny[@]}" --tokenizer "$room/beside/tokenizer.json" -o "$room/hf-beside" >/dev/null 2>&1
expect "a tokenizer.json is copied with the files next to it" "" "$(cmp "$room/beside/tokenizer_config.json" "$room/hf-beside/tokenizer_config.json" 2>&1)"
finish
