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

extern const struct maker residual_maker, stage_maker; /* made of layers, whose list is the part's user value */
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
#endif
