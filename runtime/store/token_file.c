#include "token_file.h"
#include <stdio.h>

/* Formats of llm.c: github.com/karpathy/llm.c, dev/data/data_common.py */
static const struct form {
    int32_t magic, version;
    int width;
} forms[] = {{20240520, 1, 2}, {20240801, 7, 4}};
enum { NFORMS = 2 };

static const struct form *form_of(const void *bytes, size_t size) {
    int32_t magic;
    if (size < sizeof magic)
        return NULL;
    memcpy(&magic, bytes, sizeof magic);
    for (const struct form *form = forms; form < forms + NFORMS; form++)
        if (form->magic == magic)
            return form;
    return NULL;
}

void token_head(uint8_t head[TOKEN_HEAD], int64_t n, int width) {
    const struct form *form = width == 2 ? &forms[0] : &forms[1];
    int32_t said[] = {form->magic, form->version, (int32_t)n};
    memset(head, 0, TOKEN_HEAD);
    memcpy(head, said, sizeof said);
}

bool is_token_file(const void *bytes, size_t size) { return form_of(bytes, size); }

bool read_tokens(const void *bytes, size_t size, struct tokens *out, const char *path, char *why, size_t nwhy) {
    const struct form *form = form_of(bytes, size);
    int32_t said[3] = {0};
    if (!form) {
        snprintf(why, nwhy, "%s: is no file of tokens; `pianola tokenize` makes one from a text", path);
        return false;
    }
    if (size >= TOKEN_HEAD)
        memcpy(said, bytes, sizeof said);
    if (size >= TOKEN_HEAD && said[1] != form->version) {
        snprintf(why, nwhy, "%s: tokens of version %d; only version %d can be read", path, said[1], form->version);
        return false;
    }
    if (size < TOKEN_HEAD || said[2] < 0 || size != TOKEN_HEAD + (size_t)said[2] * (size_t)form->width) {
        snprintf(
            why, nwhy,
            "%s: says that it has %d tokens of %d bits, but has %zu bytes instead of %lld: it was cut off, or damaged",
            path, said[2], 8 * form->width, size, TOKEN_HEAD + (long long)said[2] * form->width);
        return false;
    }
    *out = (struct tokens){(const uint8_t *)bytes + TOKEN_HEAD, said[2], form->width};
    return true;
}
