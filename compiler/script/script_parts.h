/* Private to script_parts.c and script_model.c: what the constructors of layers, inputs and optimizers return. */
#ifndef PIANOLA_SCRIPT_PARTS_H
#define PIANOLA_SCRIPT_PARTS_H
#include "passes/layers.h"
#include "script.h"

enum part_group { INPUT, LAYER, OPTIMIZER };

struct maker {
    const char *name;
    enum part_group group;
    int kind;                  /* enum layer_kind, input_kind or optimizer */
    const struct field *field; /* of inputs, optimizers and stages; a layer's are in its row */
};

extern const struct maker residual_maker, stage_maker; /* made of layers: their list is the part's user value */
bool is_moe(const struct maker *maker);

/* The userdata that a constructor returns; scripts can get no other. */
struct part {
    const struct maker *maker;
    int line; /* of the script, where it was made */
    struct model_layer layer;
    struct rt_model model; /* of an input and an optimizer: their fields */
};

/* The part of that group at a stack index; NULL: it is something else. */
const struct part *part_at(lua_State *L, int index, enum part_group group);

/* Whether files of others have names for its parameters; then a list of NNAMES is the part's user value. */
enum { NNAMES = 2 };
bool has_names(const struct maker *maker);
#endif
