/* A model's forward on the next few rows of one sequence, on the host, with the keys and values of all rows before kept
 * (Shazeer 2019, "Fast Transformer Decoding", section 2.1): what generating text is made of. */
#ifndef PIANOLA_DECODE_H
#define PIANOLA_DECODE_H
#include "rt.h"

/* A model as a chain of whole stages, each with the fp32 weights of its layers; table: the tokens that an embedding and
 * an unembedding share, or NULL. */
struct decode_model {
    const struct rt_model *m;
    const struct rt_stage *stage;
    int32_t nstages;
    float *const *weight; /* [nstages] */
    float *table;
};
struct decoder;
/* Why such a model cannot be decoded; NULL: it can. Looks at layers alone. */
const char *decode_refuses(const struct rt_model *m, const struct rt_stage *stage, int32_t nstages);
/* room: the rows that the sequence may have in all; most: those of one decode. NULL: no memory. What the model points
 * to must stay. */
struct decoder *decoder_open(const struct decode_model *model, int32_t room, int32_t most);
/* Bytes that it takes besides the weights. */
int64_t decoder_bytes(const struct decoder *d);
/* The next n tokens, at most `most`: the logits of the last one, vocab of them, until the next call. */
const float *decode_next(struct decoder *d, const int32_t *token, int32_t n);
void decoder_close(struct decoder *d);
#endif
