/* JSON strings and numbers. */
#ifndef PIANOLA_PUT_JSON_H
#define PIANOLA_PUT_JSON_H
#include "text.h"

void put_string(struct text *t, const char *s);    /* as a JSON string */
const char *quoted(const char *s);                 /* the same, to be printed */
const char *quoted_bytes(const char *s, size_t n); /* of n bytes, which may hold zeros; a zero follows */
const char *number_or_null(double x, char *buf);   /* as number(); JSON has no infinity and no NaN: null */
#endif
