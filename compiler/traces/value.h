/* Values of JSON and of Python's pickles, as a tree. */
#ifndef PIANOLA_VALUE_H
#define PIANOLA_VALUE_H
#include "base/read_json.h"

struct value {
    enum value_kind { V_NULL, V_BOOL, V_INT, V_REAL, V_TEXT, V_LIST, V_DICT } kind;
    int64_t number;      /* V_INT, V_BOOL */
    double real;         /* V_REAL */
    const char *text;    /* V_TEXT */
    struct value **item; /* V_LIST; V_DICT: keys and values in turn */
    size_t n, cap;       /* items, including keys */
};

/* Reads the value at j. */
struct value *json_value(struct json_in *j);
/* read_pickle.c: reads a pickle of plain values. Dies, naming the opcode, at one that could do more than build them. */
struct value *pickle_value(const char *file, const char *s, size_t n);

void add_item(struct value *list, struct value *item);
/* Returns the member of a dictionary, or NULL if it has none, or if dict is no dictionary. */
const struct value *member_of(const struct value *dict, const char *key);
/* Return a member, or `absent` if it is none of that kind. */
const char *text_member(const struct value *dict, const char *key, const char *absent);
int64_t int_member(const struct value *dict, const char *key, int64_t absent);
#endif
