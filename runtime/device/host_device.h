/* What a rank of this process owns; shared by device_host.c, the communicators, train_host.c and rank_main.c. */
#ifndef PIANOLA_HOST_DEVICE_H
#define PIANOLA_HOST_DEVICE_H
#include "device.h"

struct host_rank {
    char *arena;
    const struct data *data;
    void *batch;            /* data_bytes: the microbatch being read */
    float *loss;            /* per microbatch of the step; the last stage's rank writes it */
    int64_t *ended;         /* per instruction: steps in which it has ended */
    struct rt_stamp *stamp; /* per instruction */
    const struct comm *comm;
    void *link;    /* the communicator's own */
    double origin; /* seconds() when the run began */
};
extern const struct device host_device;

/* Takes everything a rank's replay needs, its arena too, zeroed and on a page; false: no memory. Then host_release. */
bool host_take(struct replay *z, struct host_rank *h, const struct rt_program *p, int rank);
void host_release(struct replay *z, struct host_rank *h); /* all but the arena */
void *host_pages(size_t n, size_t size);                  /* n things of a size, zeroed, on a page; NULL: no memory */
void host_begin(struct replay *z, uint64_t seed);         /* initial weights at the homes */
#endif
