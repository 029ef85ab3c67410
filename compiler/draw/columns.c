/* Numbers in few bytes, and tables of keys: see columns.h. */
#include "columns.h"
#include <string.h>

static void put_seven_bits(struct text *t, uint64_t v) {
    char buf[10];
    size_t n = 0;
    for (; v >= 128; v >>= 7)
        buf[n++] = (char)((v & 127) | 128);
    buf[n++] = (char)v;
    put_bytes(t, buf, n);
}

static void end_zeros(struct column *column) {
    if (column->zeros) {
        put_seven_bits(&column->bytes, 0);
        put_seven_bits(&column->bytes, column->zeros - 1);
    }
    column->zeros = 0;
}

void column_put(struct column *column, int64_t v) {
    if (v == 0) {
        column->zeros++;
        return;
    }
    end_zeros(column);
    put_seven_bits(&column->bytes, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

void column_write(struct text *t, struct column *column) {
    const struct text *bytes = &column->bytes;
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    end_zeros(column);
    for (size_t i = 0; i < bytes->n; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < bytes->n ? (unsigned char)bytes->s[i + k] : 0);
        char four[4] = {digit[v >> 18], digit[v >> 12 & 63], i + 1 < bytes->n ? digit[v >> 6 & 63] : '=',
                        i + 2 < bytes->n ? digit[v & 63] : '='};
        put_bytes(t, four, 4);
    }
}

static uint64_t hash_numbers(const int32_t *key) {
    uint64_t hash = 0;
    for (int i = 0; i < KEY_SIZE; i++)
        hash = hash_add(hash, key[i]);
    return hash;
}

static uint32_t find_slot(const struct table *table, const int32_t *key) {
    uint32_t at = map_start(&table->map, hash_numbers(key));
    for (int32_t k; (k = table->map.slot[at] - 1) >= 0; at = map_next(&table->map, at))
        if (!memcmp(table->key[k], key, sizeof *table->key))
            break;
    return at;
}

int32_t table_number(struct table *table, const int32_t *key) {
    if (2 * (table->n + 1) > (size_t)table->map.mask) {
        table->map = map_new(2 * table->n + 64);
        for (size_t i = 0; i < table->n; i++)
            table->map.slot[find_slot(table, table->key[i])] = (int32_t)i + 1;
    }
    uint32_t at = find_slot(table, key);
    if (table->map.slot[at] == 0) {
        GROW(table->key, table->cap, table->n + 1);
        memcpy(table->key[table->n], key, sizeof *table->key);
        table->map.slot[at] = (int32_t)++table->n;
    }
    return table->map.slot[at] - 1;
}
