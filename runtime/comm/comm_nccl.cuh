/* NCCL between ranks that are processes: what comm_nccl.cu, which moves messages, and comm_nccl_open.cu, which makes
 * the communicators for them, share. */
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
    void *arena; /* registered with it; NULL: it is not */
};
struct end { /* of an edge: its communicator, and the other rank's rank there */
    int communicator, peer;
};
struct nccl {
    const struct world *world;
    const struct rt_program *program;
    const int32_t *groups;
    struct cuda_rank *rank;
    struct communicator *communicator;
    int ncommunicators;
    struct end *to, *from; /* per rank that it exchanges messages with */
    int *of_lane;          /* per lane of collectives: its communicator */
    bool *adds;            /* per collective: some member adds the sum to what it has */
    char **scratch;        /* per lane that sums */
    char *nothing;         /* NOTHING bytes per lane: sent and summed for an empty tensor */
    int next;              /* the communicator that progress asks next */
    char why[512];
    pthread_mutex_t lock; /* held during every NCCL call, while nothing may be aborted */
};

/* comm_nccl.cu */
/* Into why, of n bytes: the call, the name and text of its result, and what NCCL said last. */
void nccl_reason(const char *call, ncclResult_t code, char *why, size_t n);
/* The text of an error, in nccl->why. */
const char *nccl_trouble(struct nccl *nccl, const char *call, ncclResult_t code);
/* Waits until `call`, made on the communicator for instruction x or none, is done. code: what it returned. */
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

/* comm_nccl_open.cu, as struct cuda_transport has them */
char *nccl_take(int rank, size_t bytes, char *why, size_t n);
void nccl_give(char *p);
int64_t nccl_beside(const struct rt_program *p, int rank, const int32_t *groups);
int64_t nccl_beside_ordered(const struct rt_program *p, int rank, const int32_t *groups);
void nccl_open(const struct world *world, const struct rt_program *p, const int32_t *groups, struct cuda_rank *own);
void nccl_abort(void *link);
void nccl_close(void *link);
#endif
