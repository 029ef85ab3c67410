/* Messages by one-sided copies: what comm_put.cu, which copies, and comm_put_share.cu, which looks after ranks on one
 * GPU, share. */
#ifndef PIANOLA_COMM_PUT_CUH
#define PIANOLA_COMM_PUT_CUH
#include "device/device_cuda.cuh"
extern "C" {
#include "world.h"
}

struct part {               /* a rank's part in a message or collective: offsets in its memory */
    int64_t tensor, result; /* its first operand, and the second; -1: it has none */
    int64_t words;          /* -1: it has no part */
};
struct place { /* of a rank */
    cudaUUID_t gpu;
    int64_t words; /* an offset in its memory: of its struct own_words */
    bool here;     /* it shares this rank's GPU, or is this rank */
};
struct put {
    const struct world *world;
    const struct rt_program *program;
    const int32_t *groups;
    struct cuda_rank *rank;
    char **memory;              /* of each rank, mapped here; NULL: no exchange with it */
    struct part *part;          /* [rank * nmsgs + message] */
    bool flush;                 /* the device can flush remote writes */
    uint32_t *one;              /* a word that is 1, to be copied; NULL: streams can write words of other devices */
    struct place *place;        /* per rank */
    char about[512], hint[800]; /* which ranks are on this one's GPU, and what to do if they wait for ever */
};
/* A rank's memory after its planned bytes: this, then the words of its messages. */
struct own_words {
    uint32_t one, token;
    float scratch;
};
static inline struct own_words *put_words(const struct put *put, int rank) {
    return (struct own_words *)(put->memory[rank] + put->place[rank].words);
}

/* comm_put.cu: a stream writes 1 to a word, of this rank or another; or waits until this rank's is 1, and resets it. */
void put_post(const struct put *put, uint32_t *word, cudaStream_t stream);
void put_await(const struct put *put, uint32_t *word, cudaStream_t stream);

/* comm_put_share.cu */
/* Collective: sets place, about and hint. Returns how many ranks are on this rank's GPU. */
int put_find_sharers(struct put *put);
/* The next rank on this GPU in a circle; the rank itself, if it is alone. pass_token reaches its memory. */
int put_next_sharer(const struct put *put);
/* Loads the kernel that put_pass_token runs: loading may wait for all of this process's streams (CUDA Programming
 * Guide, "Lazy Loading"). */
void put_work_a_little(const struct put *put);
/* Ranks on one GPU, more than one, pass a token around twice, and each runs a kernel before it passes it on: so
 * everyone's stream waits while all others run. False with why: within ten seconds the GPU has not turned to them all.
 */
bool put_pass_token(const struct put *put, char *why, size_t n);
#endif
