/* A model as a profile: a chain of its units, each a layer, a residual block as a whole, or an item of a model of
 * costs. */
#ifndef PIANOLA_UNITS_H
#define PIANOLA_UNITS_H
#include "ir/spec.h"
#include "partition/partition.h"

/* sp: by script_units. Times are those that cost.c gives; a tied token table counts as the first unit's. name: of the
 * model's file. */
struct profile *profile_of(struct spec *sp, const char *name);
#endif
