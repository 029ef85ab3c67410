/* Declarations shared by comm_put.cu, which implements messages by one-sided copies, and comm_put_share.cu, which
 * handles ranks on one GPU. */
#ifndef PIANOLA_COMM_PUT_CUH
#define PIANOLA_COMM_PUT_CUH
#include "device/device_cuda.cuh"
extern "C" {
#include "world.h"
}

struct part {               /* a rank's part in a message or collective, as offsets in the rank's memory */
    int64_t tensor, result; /* first operand and result; -1: it has none */
    int64_t words;          /* -1: it has no part */
};
struct place { /* location of a rank */
    cudaUUID_t gpu;
    int64_t words; /* offset of the rank's struct own_words in its memory */
    bool here;     /* the rank shares this rank's GPU, or is this rank */
};
struct put {
    const struct world *world;
    const struct rt_program *program;
    const int32_t *groups;
    struct cuda_rank *rank;
    char **memory;              /* memory of each rank, mapped here; NULL: no exchange with it */
    struct part *part;          /* [rank * nmsgs + message] */
    bool flush;                 /* the device can flush remote writes */
    uint32_t *one;              /* a word that is 1, copied to post; NULL: streams can write words of other devices */
    struct place *place;        /* one per rank */
    char about[512], hint[800]; /* which ranks share this GPU, and what to do if they wait for ever */
};
/* Words of a rank after its planned bytes; the words of its messages follow. */
struct own_words {
    uint32_t one, token;
    float scratch;
};
static inline struct own_words *put_words(const struct put *put, int rank) {
    return (struct own_words *)(put->memory[rank] + put->place[rank].words);
}

/* comm_put.cu. put_post makes a stream write 1 to a word of this rank or another. put_await makes it wait until this
 * rank's word is 1, then resets the word. */
void put_post(const struct put *put, uint32_t *word, cudaStream_t stream);
void put_await(const struct put *put, uint32_t *word, cudaStream_t stream);

/* comm_put_share.cu */
/* Sets place, about and hint. Returns the number of ranks on this rank's GPU. Every rank must call it. */
int put_find_sharers(struct put *put);
/* Returns the next rank on this GPU in a circle, or this rank if it is alone. put_pass_token writes its memory. */
int put_next_sharer(const struct put *put);
/* Loads the kernel that put_pass_token runs, since loading may wait for all of this process's streams (CUDA Programming
 * Guide, "Lazy Loading"). */
void put_work_a_little(const struct put *put);
/* Passes a token twice around the ranks on one GPU; there must be at least two. Each runs a kernel before it passes the
 * token on, so every rank's stream waits while all others run. Returns false and sets why if the GPU has not served all
 * of them within ten seconds. */
bool put_pass_token(const struct put *put, char *why, size_t n);
#endif
