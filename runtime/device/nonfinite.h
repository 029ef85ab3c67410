/* The first number of a training that is not finite. A run that continues with such numbers learns nothing more, and
 * its checkpoints would replace good ones. So a training keeps this record, and by default stops when it is set.
 *
 * The host checks each loss and, after an update, the weights that it has changed. A GPU's losses are checked when they
 * reach the host, and its weights before a checkpoint and at the end. */
#ifndef PIANOLA_NONFINITE_H
#define PIANOLA_NONFINITE_H
#include "rt.h"

/* Ordered as in a step. */
enum nonfinite_kind { NONFINITE_LOSS, NONFINITE_GRADIENT, NONFINITE_STATE };

struct nonfinite {
    int64_t step; /* counts from 1; 0: everything has been finite so far */
    int32_t kind, rank, batch, layer;
    bool unlabelled; /* the loss of a step without labels that count */
    float value;
    char tensor[32]; /* its name in checkpoints */
};

/* Checks a rank's losses [n] of a step, counted from 1. Keeps the first non-finite one, if none is kept yet. */
void nonfinite_look(struct nonfinite *bad, int64_t step, int rank, const float *loss, int64_t n);
/* Checks a piece of a stage that lies at w, and keeps its first non-finite number in the same way. moment: the letter
 * of a moment, or 0 for weights or a gradient. Returns false if a number is not finite. */
struct nonfinite_at {
    int64_t step;
    int rank;
    enum nonfinite_kind kind;
    char moment;
};
bool nonfinite_scan(struct nonfinite *bad, const struct nonfinite_at *at, struct rt_piece piece, const float *w);
/* Keeps the earlier of two. */
void nonfinite_join(struct nonfinite *bad, const struct nonfinite *other);
/* Writes a message into out, of n bytes: "step 7: the weights layer.3.weight on rank 1 are inf after the update". */
const char *nonfinite_say(const struct nonfinite *bad, char *out, size_t n);
#endif
