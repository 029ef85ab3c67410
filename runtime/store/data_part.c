/* The rows of a microbatch that a slice or a member of a team reads. */
#include "data.h"

/* Moves rows first .. first + length of each sequence together. each: bytes of a row. */
static void keep_rows(char *at, int64_t rows, int64_t sequence, int first, int length, size_t each) {
    for (int64_t s = 0; s * sequence < rows; s++)
        memmove(at + (size_t)(s * length) * each, at + (size_t)(s * sequence + first) * each, (size_t)length * each);
}

void data_keep_slice(const struct rt_model *m, int first, int length, void *memory) {
    size_t half = data_half(m);
    int64_t sequence = m->input == INPUT_TOKENS ? m->context : m->rows;
    keep_rows(memory, m->rows, sequence, first, length, half / (size_t)m->rows);
    keep_rows((char *)memory + half, m->rows, sequence, first, length, half / (size_t)m->rows);
}

/* Moves a member's rows to the front, in the batch's order. */
static void keep_part(char *at, const struct rt_layer *l, int32_t all, size_t each) {
    for (int32_t r = 0; l && l->part.members > 0 && r < all / l->part.members; r++)
        memmove(at + (size_t)r * each, at + (size_t)row_of_batch(l, all, r) * each, each);
}

void data_keep(const struct rt_model *m, const struct rt_layer *input, const struct rt_layer *target, void *memory) {
    size_t half = data_half(m), each = half / (size_t)m->rows;
    keep_part(memory, input, m->rows, each);
    keep_part((char *)memory + half, target, m->rows, each);
}
