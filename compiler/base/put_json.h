/* JSON strings and numbers. */
#ifndef PIANOLA_PUT_JSON_H
#define PIANOLA_PUT_JSON_H
#include "text.h"

void put_string(struct text *t, const char *s);    /* writes s as a JSON string */
const char *quoted(const char *s);                 /* returns it, for printing */
const char *quoted_bytes(const char *s, size_t n); /* for n bytes, zeros included; the result is NUL-terminated */
const char *number_or_null(double x, char *buf);   /* as number(), but null for infinity and NaN, which JSON lacks */
#endif
