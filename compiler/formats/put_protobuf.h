/* Writes protobuf's wire format. */
#ifndef PIANOLA_PUT_PROTOBUF_H
#define PIANOLA_PUT_PROTOBUF_H
#include "base/text.h"

void put_varint(struct text *t, uint64_t v);
void put_field_number(struct text *t, int field, uint64_t v);
void put_fixed64(struct text *t, int field, uint64_t v);
/* Write a field of bytes with their length: a message, a packed list, or text. */
void put_submessage(struct text *t, int field, const struct text *part);
void put_field_text(struct text *t, int field, const char *s);
#endif
