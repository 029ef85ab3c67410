/* Weights for others: a checkpoint's parameters as one safetensors file, in the names that the model's layers say for
 * such files (import.h), and as they lie there. What is tied is written once. */
#ifndef PIANOLA_EXPORT_H
#define PIANOLA_EXPORT_H
#include "rt.h"

/* Where a layer's parameters are several tensors: how many columns each has; 0: all have as many. */
struct columns {
    int32_t n[3];
};
/* A stage, or what several share; columns: of each of its layers. */
struct export_stage {
    const struct rt_stage *s;
    const struct columns *columns;
};
/* A model's stages, as the checkpoint of a step in dir has them. */
struct export {
    const char *dir;
    int64_t step;
    const struct rt_model *m;
    const struct export_stage *stage;
    int n;
};
/* Writes all of it into path, or nothing. *bytes, *tensors: what was written. */
bool export_named(const struct export *what, const char *path, int64_t *bytes, int *tensors, char *why, size_t nwhy);
#endif
