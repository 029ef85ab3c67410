/* Tokenizers, as JSON or as GGUF, by their first bytes: a readable one encodes a text, and the tokens decode to it. */
#include "fuzz.h"
#include "models/tokenizer.h"

struct reading {
    const uint8_t *data;
    size_t size;
    struct tokenizer *t;
    struct text back;
};

static void read_it(void *with) {
    struct reading *r = with;
    char *s = NEW(char, r->size + 1);
    memcpy(s, r->data, r->size);
    r->t = r->size >= 4 && memcmp(s, "GGUF", 4) == 0 ? tokenizer_of_gguf("fuzzed.gguf", s, r->size)
                                                     : tokenizer_of_json("fuzzed.json", s, r->size);
    finish_tokenizer(r->t);
}

static void take(void *with, const uint32_t *id, size_t n, size_t bytes) {
    struct reading *r = with;
    size_t before = r->back.n;
    for (size_t i = 0; i < n; i++)
        if (!decode(r->t, id[i], &r->back))
            abort();
    if (r->back.n - before != bytes)
        abort();
}

static const char text[] = "it's  12 he hello \xc3\xa9"
                           "e\xcc\x81 \xff\n\n x";

static void encode_it(void *with) {
    struct reading *r = with;
    if (encode(r->t, text, sizeof text - 1, take, r) &&
        (r->back.n != sizeof text - 1 || memcmp(r->back.s, text, r->back.n)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct reading reading = {.data = data, .size = size};
    if (lives(read_it, &reading))
        lives(encode_it, &reading);
    free_all();
    return 0;
}
