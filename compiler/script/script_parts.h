/* Private to script_parts.c and script_model.c: results of the constructors of layers, inputs and optimizers. */
#ifndef PIANOLA_SCRIPT_PARTS_H
#define PIANOLA_SCRIPT_PARTS_H
#include "passes/layers.h"
#include "script.h"

enum part_group { INPUT, LAYER, OPTIMIZER };

struct maker {
    const char *name;
    enum part_group group;
    int kind;                  /* enum layer_kind, input_kind or optimizer */
    const struct field *field; /* fields of inputs, optimizers and stages; a layer's fields are in its row */
};

extern const struct maker residual_maker, stage_maker; /* the part's user value is a list of layers */
bool is_moe(const struct maker *maker);

/* The userdata that a constructor returns; scripts can get no other. */
struct part {
    const struct maker *maker;
    int line; /* script line that made it */
    struct model_layer layer;
    struct rt_model model; /* fields of an input or an optimizer */
};

/* Returns the part of that group at a stack index, or NULL if it is something else. */
const struct part *part_at(lua_State *L, int index, enum part_group group);

/* Returns whether files of other programs have names for its parameters; if so, a list of NNAMES is the part's user
 * value. */
enum { NNAMES = 2 };
bool has_names(const struct maker *maker);

/* Returns whether it makes layers whose operations the script declares. If so, the table of the layer's fields is the
 * part's second user value. */
bool is_declared(const struct maker *maker);
/* script_unit.c: reads the table of fields at a stack index, and sets the unit's files. line: the script's line that
 * made it. */
extern const char *const unit_fields[]; /* besides those in layers.c and names; ends with NULL */
const struct rt_unit *read_unit_table(lua_State *L, int at, int line, const struct rt_model *m,
                                      struct unit_files *files);
/* Returns whether a text has only letters, digits, _ and the given other characters, and does not begin with a digit.
 */
bool is_plain_name(const char *s, const char *others);
/* Returns the absolute path of a safetensors file beside the script, since ranks may start anywhere; NULL: the table
 * has no such field. */
const char *read_weights_file(const struct table *t, const char *field);
struct known_files read_known_files(const struct table *model); /* a model's field `check` */
_Noreturn void need_data_file(const struct table *t);           /* fails: a frozen layer has no such file */
bool is_side_word(const char *name); /* something that every model of tokens has, so no input may be called so */
#endif
