/* Reads JSON of others: the caller walks through it and skips what it does not know. There is no tree; a string is read
 * in place, so the text is written over. What is not JSON dies with the file and the byte.
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
    bool first; /* of an object or a list that was just opened */
};

_Noreturn void json_die(const struct json_in *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char json_peek(struct json_in *j);             /* what the next value begins with; 0 at the end */
void json_open(struct json_in *j, char begin); /* { or [ */
bool json_more(struct json_in *j, char end);   /* whether a member or an item follows; takes the end if none does */
const char *json_name(struct json_in *j);      /* of a member */
const char *json_any_name(struct json_in *j, size_t *n); /* the same of n bytes, which may hold zeros */
const char *json_text(struct json_in *j, size_t *n); /* a string of n bytes, which may hold zeros; ends in one too */
const char *json_string_or_null(struct json_in *j);  /* a string without zeros */
int64_t json_number(struct json_in *j);              /* whole, and from 0 to 2^53 */
double json_real(struct json_in *j);                 /* any finite number */
bool json_true(struct json_in *j);                   /* true, or else false or null */
void json_skip(struct json_in *j);                   /* any value */
void json_close(struct json_in *j);                  /* nothing but blanks may follow */
#endif
