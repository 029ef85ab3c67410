/* A layer of kind `unit`, as a model script describes it: its sizes, its parameters and its functions. */
#ifndef PIANOLA_UNIT_LAYER_H
#define PIANOLA_UNIT_LAYER_H
#include "unit.h"

enum unit_operation { UNIT_FORWARD, UNIT_INPUT, UNIT_WEIGHT, UNIT_OPERATIONS };
enum { UNIT_KEEPS_X = 1, UNIT_KEEPS_Y = 2 }; /* rt_unit.keeps */
/* rt_unit.side; a layer with `input` reads the model's inputs of units, too */
enum { UNIT_READS_TOKENS = 1, UNIT_READS_TARGETS = 2, UNIT_READS_SEED = 4, UNIT_READS_INPUTS = 8 };
/* Initial values of a parameter. UNIT_INIT_KIND: a matrix's are UNIT_INIT_NORMAL, a vector's UNIT_INIT_ZEROS. */
enum unit_init { UNIT_INIT_KIND, UNIT_INIT_ZEROS, UNIT_INIT_ONES, UNIT_INIT_NORMAL };

struct rt_unit_parameter {
    const char *name;
    int32_t ndims; /* 1 or 2 */
    int64_t dim[2];
    int32_t init; /* enum unit_init; NORMAL: with deviation 1 / sqrt(dim[0]), as a linear layer's */
    bool frozen;  /* not trained */
};
/* A shared library that a unit is linked with. */
struct rt_unit_library {
    const char *name;
    int64_t bytes;
    const char *sha256; /* 64 hexadecimal digits */
};
/* The functions, by operation; NULL: not there. Set once the unit's library is open. */
struct rt_unit_code {
    pianola_unit_function *run[UNIT_OPERATIONS];
    const void *config;
    const struct rt_unit_library *library;
    int32_t nlibraries;
};
/* Sizes are bytes, of one microbatch. stash: without what `keeps` says. extra: without dy. */
struct rt_unit {
    const char *name;
    const char *data; /* safetensors file with the parameters' initial values, under their names; NULL: none */
    const struct rt_unit_parameter *parameter;
    int32_t nparameters, keeps, side, ninputs;
    int32_t input[8]; /* [ninputs]: which of the model's inputs of units it reads */
    int64_t stash, extra, work[UNIT_OPERATIONS];
    double flop[UNIT_OPERATIONS];
    struct rt_unit_code *code;
};
/* Returns the bytes before its workspace for its random number. */
static inline int64_t unit_seed_bytes(const struct rt_unit *unit) { return unit->side & UNIT_READS_SEED ? 64 : 0; }
/* Counts the elements of a unit's trained parameters, or else of its frozen ones. */
static inline int64_t unit_elements(const struct rt_unit *unit, bool frozen) {
    int64_t n = 0;
    for (int32_t i = 0; i < unit->nparameters; i++) {
        const struct rt_unit_parameter *p = &unit->parameter[i];
        n += p->frozen != frozen ? 0 : p->ndims == 1 ? p->dim[0] : p->dim[0] * p->dim[1];
    }
    return n;
}
/* Returns whether a unit has the function of an operation. */
static inline bool unit_has(const struct rt_unit *unit, enum unit_operation op) {
    return op != UNIT_WEIGHT || unit_elements(unit, false) > 0;
}
#endif
