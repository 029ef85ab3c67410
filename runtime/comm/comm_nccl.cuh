/* Declarations that comm_nccl.cu, which moves messages over NCCL, and comm_nccl_open.cu, which makes its communicators,
 * share. Ranks are processes. */
#ifndef PIANOLA_COMM_NCCL_CUH
#define PIANOLA_COMM_NCCL_CUH
#include "device/device_cuda.cuh"
extern "C" {
#include "world.h"
}
#include <nccl.h>
#include <pthread.h>

struct communicator {
    ncclComm_t comm;
    void *arena; /* registration of the rank's memory; NULL: not registered */
};
struct end { /* one end of an edge: its communicator, and the other rank's rank in it */
    int communicator, peer;
};
struct nccl {
    const struct world *world;
    const struct rt_program *program;
    const int32_t *groups;
    struct cuda_rank *rank;
    struct communicator *communicator;
    int ncommunicators;
    struct end *to, *from; /* one per rank that this one exchanges messages with */
    int *of_lane;          /* communicator per lane of collectives */
    bool *adds;            /* per collective: some member adds the sum to its existing values */
    char **scratch;        /* one per lane that sums */
    char *nothing;         /* NOTHING bytes per lane, sent and summed in place of an empty tensor */
    int next;              /* the communicator that progress checks next */
    char why[512];
    pthread_mutex_t lock; /* held during every NCCL call; abort takes it for good */
};

/* comm_nccl.cu */
/* Writes the reason of a failure into why, of n bytes: the call, the name and text of its result, and NCCL's last
 * error. */
void nccl_reason(const char *call, ncclResult_t code, char *why, size_t n);
/* Returns the text of an error, which nccl->why holds. */
const char *nccl_trouble(struct nccl *nccl, const char *call, ncclResult_t code);
/* Waits until `call`, made on the communicator for instruction x (or NULL), is done. code: the call's return value. */
void nccl_settle(struct nccl *nccl, const struct communicator *communicator, const char *call, const struct rt_instr *x,
                 ncclResult_t code);
#define NCCL(n, w, x, call)                                                                                            \
    do {                                                                                                               \
        pthread_mutex_lock(&(n)->lock);                                                                                \
        ncclResult_t code = call;                                                                                      \
        pthread_mutex_unlock(&(n)->lock);                                                                              \
        nccl_settle(n, w, #call, x, code);                                                                             \
    } while (0)
/* Places nccl->nothing and nccl->scratch in the rank's memory. */
void nccl_place_scratch(struct nccl *nccl);

/* comm_nccl_open.cu: the functions of struct cuda_transport */
char *nccl_take(int rank, size_t bytes, char *why, size_t n);
void nccl_give(char *p);
int64_t nccl_beside(const struct rt_program *p, int rank, const int32_t *groups);
int64_t nccl_beside_ordered(const struct rt_program *p, int rank, const int32_t *groups);
void nccl_open(const struct world *world, const struct rt_program *p, const int32_t *groups, struct cuda_rank *own);
void nccl_abort(void *link);
void nccl_close(void *link);
#endif
