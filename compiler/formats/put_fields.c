#include "put_fields.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Returns the shortest decimal that reads back as this float. */
static const char *float_text(float x) {
    char *s = NULL;
    for (int n = 1; n <= 9 && (!s || (float)strtod(s, NULL) != x); n++)
        s = format("%.*g", n, (double)x);
    return s;
}
static const char *double_text(double x) {
    char *s = NULL;
    for (int n = 1; n <= 17 && (!s || strtod(s, NULL) != x); n++)
        s = format("%.*g", n, x);
    return s;
}

static int32_t int_at(const void *x) {
    int32_t n;
    memcpy(&n, x, sizeof n);
    return n;
}
static int64_t long_at(const void *x) {
    int64_t n;
    memcpy(&n, x, sizeof n);
    return n;
}
static float float_at(const void *x) {
    float n;
    memcpy(&n, x, sizeof n);
    return n;
}
static double double_at(const void *x) {
    double n;
    memcpy(&n, x, sizeof n);
    return n;
}

static bool is_zero(const struct field_row *row, const char *x) {
    switch (row->kind) {
    case FIELD_INT:
    case FIELD_WORD: return int_at(x) == 0;
    case FIELD_LONG: return long_at(x) == 0;
    case FIELD_FLOAT: return float_at(x) == 0;
    case FIELD_DOUBLE: return double_at(x) == 0;
    default: break;
    }
    for (const struct field_row *inner = row->rows; inner->name; inner++)
        if (!is_zero(inner, x + inner->at))
            return false;
    return true;
}

static void put_field(struct text *t, const struct field_row *row, const char *x) {
    switch (row->kind) {
    case FIELD_INT: put_int(t, int_at(x)); return;
    case FIELD_LONG: put(t, "%lld", (long long)long_at(x)); return;
    case FIELD_FLOAT: put_word(t, float_text(float_at(x))); return;
    case FIELD_DOUBLE: put_word(t, double_text(double_at(x))); return;
    case FIELD_WORD: put_word(t, row->words[int_at(x)]); return;
    default: break;
    }
    put_word(t, "{");
    if (row->kind == FIELD_STRUCT)
        put_fields(t, row->rows, x, ", ");
    for (const struct field_row *inner = row->rows; row->kind == FIELD_VALUES && inner->name; inner++) {
        put_word(t, inner > row->rows ? ", " : "");
        put_field(t, inner, x + inner->at);
    }
    put_word(t, "}");
}

bool put_fields(struct text *t, const struct field_row *rows, const void *x, const char *between) {
    bool any = false;
    for (const struct field_row *row = rows; row->name; row++) {
        if (!row->always && is_zero(row, (const char *)x + row->at))
            continue;
        put(t, "%s.%s = ", any ? between : "", row->name);
        put_field(t, row, (const char *)x + row->at);
        any = true;
    }
    return any;
}
