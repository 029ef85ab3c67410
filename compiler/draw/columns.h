/* Parts of the viewer's data: columns of numbers in few bytes, and numbered keys. viewer/data.js reads the columns. */
#ifndef PIANOLA_COLUMNS_H
#define PIANOLA_COLUMNS_H
#include "base/map.h"
#include "base/text.h"

struct column {
    struct text bytes;
    uint64_t zeros; /* not written yet */
};
void column_put(struct column *column, int64_t v);
void column_write(struct text *t, struct column *column); /* ends the column, and writes it in base64 */

enum { KEY_SIZE = 8 };
struct table {
    struct map map;
    int32_t (*key)[KEY_SIZE];
    size_t n, cap;
};
int32_t table_number(struct table *table, const int32_t *key); /* returns a key's number; a new key gets the next one */
#endif
