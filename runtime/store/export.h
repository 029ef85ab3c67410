/* Weights for other programs: a checkpoint's parameters in one safetensors file, with the names and layout that the
 * model's layers specify for such files (import.h). Tied parameters are written once, frozen ones as their files have
 * them. */
#ifndef PIANOLA_EXPORT_H
#define PIANOLA_EXPORT_H
#include "rt.h"

/* Columns of each tensor, where a layer's parameter is several tensors; 0: all have equally many. */
struct columns {
    int32_t n[3];
};
/* A stage, or a set that several share; columns: one entry per layer. */
struct export_stage {
    const struct rt_stage *s;
    const struct columns *columns;
};
/* A model's stages in the checkpoint of a step in dir. */
struct export {
    const char *dir;
    int64_t step;
    const struct rt_model *m;
    const struct export_stage *stage;
    int n;
};
/* Exports them into path, entirely or not at all. Sets *bytes and *tensors to what was written. */
bool export_named(const struct export *what, const char *path, int64_t *bytes, int *tensors, char *why, size_t nwhy);
#endif
