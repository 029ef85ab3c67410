/* The forward for text generation: runs a model on the next few rows of one sequence, on the host, and keeps the keys
 * and values of all earlier rows (Shazeer 2019, "Fast Transformer Decoding", section 2.1). */
#ifndef PIANOLA_DECODE_H
#define PIANOLA_DECODE_H
#include "rt.h"

/* A model as a chain of whole stages, each with the fp32 weights of its layers. table: the tokens that an embedding and
 * an unembedding share, or NULL. */
struct decode_model {
    const struct rt_model *m;
    const struct rt_stage *stage;
    int32_t nstages;
    float *const *weight; /* [nstages] */
    float *table;
};
struct decoder;
/* Returns why such a model cannot be decoded, or NULL if it can. Checks only the layers. */
const char *decode_refuses(const struct rt_model *m, const struct rt_stage *stage, int32_t nstages);
/* Makes a decoder. room: maximum rows of the sequence; most: maximum rows of one decode. Returns NULL if there is no
 * memory. Everything the model points to must outlive the decoder. */
struct decoder *decoder_open(const struct decode_model *model, int32_t room, int32_t most);
/* Returns the bytes that the decoder takes besides the weights. */
int64_t decoder_bytes(const struct decoder *d);
/* Decodes the next n tokens, at most `most`. Returns the logits of the last one, vocab of them, valid until the next
 * call. */
const float *decode_next(struct decoder *d, const int32_t *token, int32_t n);
void decoder_close(struct decoder *d);
#endif
