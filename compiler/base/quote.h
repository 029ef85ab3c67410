/* JSON strings. */
#ifndef PIANOLA_QUOTE_H
#define PIANOLA_QUOTE_H
#include "base.h"

void put_string(struct text *t, const char *s); /* as a JSON string */
const char *quoted(const char *s);              /* the same, to be printed */
#endif
