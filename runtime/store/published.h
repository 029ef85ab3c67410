/* Names and layout of a layer's parameters in files of other programs, from the names that the model gives its layers.
 * import.h describes these names. */
#ifndef PIANOLA_PUBLISHED_H
#define PIANOLA_PUBLISHED_H
#include "rt.h"

enum { MOST_PUBLISHED = 8, MOST_NAME = 300 };
/* The tensors that hold a parameter there; each holds some of its columns. */
struct published {
    bool turned; /* the tensors are out x in */
    int n;
    struct {
        char name[MOST_NAME];
        int heads; /* heads whose rows llama.cpp has permuted; 0: none */
    } part[MOST_PUBLISHED];
};
/* A layer's parameter number i, counting the tokens of an embedding that shares them. whole: the parameter itself, not
 * a member's part. */
struct layer_parameter {
    const struct rt_layer *l;
    int i;
    struct rt_parameter whole;
};
/* Sets the published names of a parameter. Returns false and sets why to the missing part of the model's names. */
bool published_names(const struct rt_model *m, const struct layer_parameter *of, bool gguf, struct published *out,
                     char *why, size_t nwhy);
#endif
