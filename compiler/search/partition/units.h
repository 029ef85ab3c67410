/* A model as a profile: a chain of its units, each a layer, a whole residual block, or an item of a cost model. */
#ifndef PIANOLA_UNITS_H
#define PIANOLA_UNITS_H
#include "ir/costs.h"
#include "partition.h"

/* Returns the profile. sp: made by script_units; st: its stages, whose costs are the times. A tied token table counts
 * as the first unit's. name: the model's file. */
struct profile *profile_of(const struct costs *costs, const char *name);
#endif
