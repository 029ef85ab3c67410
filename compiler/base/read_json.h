/* Reads JSON written by other programs. The caller walks through it and skips unknown members; there is no tree.
 * Strings are decoded in place, which overwrites the text. Invalid JSON is an error that names the file and the byte.
 *
 *     for (json_open(j, '{'); json_more(j, '}');) {
 *         const char *name = json_name(j);
 *         if (strcmp(name, "id") == 0) … json_whole(j); else json_skip(j);
 *     } */
#ifndef PIANOLA_READ_JSON_H
#define PIANOLA_READ_JSON_H
#include "base.h"

struct json_in {
    const char *file; /* for messages */
    char *from, *at, *end;
    bool first; /* whether an object or a list was just opened */
};

_Noreturn void json_die(const struct json_in *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char json_peek(struct json_in *j);             /* first character of the next value; 0 at the end */
void json_open(struct json_in *j, char begin); /* begin: { or [ */
bool json_more(struct json_in *j, char end);   /* whether another member or item follows; if not, consumes the end */
const char *json_name(struct json_in *j);      /* name of the next member */
const char *json_any_name(struct json_in *j, size_t *n); /* the name as n bytes, which may include zeros */
const char *json_text(struct json_in *j, size_t *n); /* a string of n bytes, which may include zeros; NUL-terminated */
const char *json_string_or_null(struct json_in *j);  /* a string without zeros */
int64_t json_number(struct json_in *j);              /* a whole number from 0 to 2^53 */
double json_real(struct json_in *j);                 /* any finite number */
bool json_true(struct json_in *j);  /* whether the next value is true; the others allowed are false and null */
void json_skip(struct json_in *j);  /* skips any value */
void json_close(struct json_in *j); /* dies unless only blanks follow */
#endif
