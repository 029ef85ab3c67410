/* Reads the JSON that this runtime writes: objects, lists, plain strings and whole numbers. The caller knows what comes
 * next. There is no tree and no recursion, so a hostile file cannot nest too deep, and the text itself is the only
 * memory.
 *
 * The first error is kept, as `FILE: byte N of the header: …`. Every later call fails, so a reader may continue to its
 * end and check once. */
#ifndef PIANOLA_JSON_H
#define PIANOLA_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    char *from, *at, *end; /* the text; each string that was read ends in NUL instead of its quote */
    const char *file, *in; /* for messages: `FILE: byte N of IN` */
    char *why;             /* nwhy bytes for a message */
    size_t nwhy;
    bool bad;
};

bool json_fail(struct json *json, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* always false */
bool json_next(struct json *json, char c);         /* takes c if it comes next */
bool json_take(struct json *json, char c);         /* takes c, which must come next */
char *json_string(struct json *json);              /* printable ASCII without escapes; NULL on error */
bool json_whole(struct json *json, int64_t *out);  /* 0 to INT64_MAX */
bool json_key(struct json *json, const char *key); /* "key": must come next */
bool json_pass(struct json *json);                 /* skips any value, including strings with escapes */
bool json_end(struct json *json);                  /* only space may follow */
#endif
