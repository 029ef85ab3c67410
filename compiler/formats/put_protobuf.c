/* Writes protobuf's wire format: https://protobuf.dev/programming-guides/encoding/ */
#include "put_protobuf.h"
#include <string.h>

void put_varint(struct text *t, uint64_t v) {
    char byte[10];
    size_t n = 0;
    for (; v >= 128; v >>= 7)
        byte[n++] = (char)(v | 128);
    byte[n++] = (char)v;
    put_bytes(t, byte, n);
}

void put_field_number(struct text *t, int field, uint64_t v) {
    put_varint(t, (uint64_t)field << 3);
    put_varint(t, v);
}

void put_fixed64(struct text *t, int field, uint64_t v) {
    char byte[8];
    put_varint(t, (uint64_t)field << 3 | 1);
    for (int i = 0; i < 8; i++)
        byte[i] = (char)(v >> 8 * i);
    put_bytes(t, byte, 8);
}

void put_submessage(struct text *t, int field, const struct text *part) {
    put_varint(t, (uint64_t)field << 3 | 2);
    put_varint(t, part->n);
    put_bytes(t, part->s, part->n);
}

void put_field_text(struct text *t, int field, const char *s) {
    put_submessage(t, field, &(struct text){.s = (char *)s, .n = strlen(s)});
}
