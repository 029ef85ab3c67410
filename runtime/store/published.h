/* What a layer's parameters are called in files of others, and how they lie there, as the names say that the model
 * gives its layers: import.h describes them. */
#ifndef PIANOLA_PUBLISHED_H
#define PIANOLA_PUBLISHED_H
#include "rt.h"

enum { MOST_PUBLISHED = 8, MOST_NAME = 300 };
/* Of a parameter, the tensors that it is there: each has so many of its columns. */
struct published {
    bool turned; /* out x in there */
    int n;
    struct {
        char name[MOST_NAME];
        int heads; /* whose rows llama.cpp has turned; 0: none */
    } part[MOST_PUBLISHED];
};
/* Parameter number i of a layer, counted with the tokens of an embedding that shares them; whole: not a member's part.
 */
struct layer_parameter {
    const struct rt_layer *l;
    int i;
    struct rt_parameter whole;
};
/* Returns false if the model does not name the parameter; why says what is missing. */
bool published_names(const struct rt_model *m, const struct layer_parameter *of, bool gguf, struct published *out,
                     char *why, size_t nwhy);
#endif
