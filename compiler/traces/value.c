#include "value.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 100 };

void add_item(struct value *list, struct value *item) {
    GROW(list->item, list->cap, list->n + 1);
    list->item[list->n++] = item;
}

static struct value *value_new(enum value_kind kind) {
    struct value *value = NEW(struct value, 1);
    value->kind = kind;
    return value;
}

static struct value *text_value(struct json_in *j) {
    size_t n;
    struct value *value = value_new(V_TEXT);
    value->text = json_text(j, &n);
    return value;
}

/* Reads a number: whole ones exactly, since times in nanoseconds have more digits than a double. */
static struct value *number_value(struct json_in *j) {
    char *end;
    errno = 0;
    int64_t whole = strtoll(j->at, &end, 10);
    if (end == j->at || errno || (*end && strchr(".eE", *end))) {
        struct value *value = value_new(V_REAL);
        value->real = json_real(j);
        return value;
    }
    struct value *value = value_new(V_INT);
    value->number = whole;
    j->at = end;
    return value;
}

static struct value *value_within(struct json_in *j, int depth) {
    char c = json_peek(j);
    if (depth > DEEPEST)
        json_die(j, "more than %d nested lists", DEEPEST);
    if (c == '"')
        return text_value(j);
    if (c == '{' || c == '[') {
        struct value *value = value_new(c == '{' ? V_DICT : V_LIST);
        for (json_open(j, c); json_more(j, c == '{' ? '}' : ']');) {
            if (c == '{') {
                size_t n;
                struct value *key = value_new(V_TEXT);
                key->text = json_any_name(j, &n);
                add_item(value, key);
            }
            add_item(value, value_within(j, depth + 1));
        }
        return value;
    }
    if (c == 't' || c == 'f') {
        struct value *value = value_new(V_BOOL);
        value->number = json_true(j);
        return value;
    }
    if (c == 'n') {
        json_skip(j);
        return value_new(V_NULL);
    }
    return number_value(j);
}

struct value *json_value(struct json_in *j) {
    return value_within(j, 0);
}

const struct value *member_of(const struct value *dict, const char *key) {
    for (size_t i = 0; dict && dict->kind == V_DICT && i + 1 < dict->n; i += 2)
        if (dict->item[i]->kind == V_TEXT && strcmp(dict->item[i]->text, key) == 0)
            return dict->item[i + 1];
    return NULL;
}

const char *text_member(const struct value *dict, const char *key, const char *absent) {
    const struct value *value = member_of(dict, key);
    return value && value->kind == V_TEXT ? value->text : absent;
}

int64_t int_member(const struct value *dict, const char *key, int64_t absent) {
    const struct value *value = member_of(dict, key);
    return value && (value->kind == V_INT || value->kind == V_BOOL) ? value->number : absent;
}
