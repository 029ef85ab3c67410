/* Writes structs as C initialisers: members by name, without those that are 0. */
#ifndef PIANOLA_PUT_FIELDS_H
#define PIANOLA_PUT_FIELDS_H
#include "base/text.h"
#include <stddef.h>

/* The form of a member: a number, one of `words`, or a struct of `rows`, written with its members' names or, if these
 * are evident, with values only */
enum field_kind { FIELD_INT, FIELD_LONG, FIELD_FLOAT, FIELD_DOUBLE, FIELD_WORD, FIELD_STRUCT, FIELD_VALUES };
struct field_row {
    const char *name; /* NULL: no more rows */
    enum field_kind kind;
    size_t at;
    const char *const *words;
    const struct field_row *rows;
    bool always; /* even if it is 0 */
};
#define FIELD_NUMBER(s, name)                                                                                          \
    { #name, sizeof(((struct s *)0)->name) == 8 ? FIELD_LONG : FIELD_INT, offsetof(struct s, name), NULL, NULL, false }
#define FIELD_ALWAYS(s, name)                                                                                          \
    { #name, sizeof(((struct s *)0)->name) == 8 ? FIELD_LONG : FIELD_INT, offsetof(struct s, name), NULL, NULL, true }
#define FIELD_REAL(s, name)                                                                                            \
    { #name, FIELD_FLOAT, offsetof(struct s, name), NULL, NULL, false }
#define FIELD_TYPED(s, name)                                                                                           \
    {                                                                                                                  \
#name,                                                                                                         \
            _Generic(((struct s *)0)->name, int32_t                                                                    \
                     : FIELD_INT, float                                                                                \
                     : FIELD_FLOAT, double                                                                             \
                     : FIELD_DOUBLE),                                                                                  \
            offsetof(struct s, name), NULL, NULL, false                                                                \
    }
#define FIELD_NAME(s, name, words)                                                                                     \
    { #name, FIELD_WORD, offsetof(struct s, name), words, NULL, false }
#define FIELD_NESTED(s, name, rows)                                                                                    \
    { #name, FIELD_STRUCT, offsetof(struct s, name), NULL, rows, false }
#define FIELD_LIST(s, name, rows)                                                                                      \
    { #name, FIELD_VALUES, offsetof(struct s, name), NULL, rows, false }

/* Writes ".rows = 256, .in = 64" for the struct at x. Returns whether it wrote anything. between: ", ". */
bool put_fields(struct text *t, const struct field_row *rows, const void *x, const char *between);
#endif
