/* The host as a device, as ranks see it; shared by device_host.c, the transports, and rank_host.c. */
#ifndef PIANOLA_DEVICE_HOST_H
#define PIANOLA_DEVICE_HOST_H
#include "replay.h"
#include "store/checkpoint.h"

/* How messages travel between ranks on hosts. Both return false until the other side has arrived and the tensor
 * has moved; then start and end are when it did, by the device's clock. */
struct host_transport {
    bool (*message)(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end);
    bool (*collective)(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end);
    void (*idle)(void *link, struct replay *re); /* returns when something may have changed for the rank */
};

struct host_rank {
    char *arena, *host; /* host: the arena in host memory; NULL: it has no bytes */
    const struct data *data;
    uint64_t seed;              /* of the training: of its weights and of what it draws */
    void *batch;                /* data_bytes: the microbatch being read */
    float *loss;                /* per microbatch of the step; the last stage's rank writes it */
    int64_t apart;              /* floats from there to where another member of its team does; 0: elsewhere */
    struct rt_routed routed;    /* of all forwards so far */
    int64_t *ended;             /* per instruction: how often it has ended */
    struct rt_stamp *stamp;     /* per instruction, of the last time */
    struct rt_took *took;       /* per instruction: adds up what it takes. NULL: nobody asks */
    double first, last;         /* of the step: when it first started one, last ended one; the caller resets them */
    uint64_t found[NORM_WORDS]; /* the rank's norm before it began the step's */
    double *when;               /* per update of the last stage in a step: when it ended. NULL: nobody asks */
    const struct host_transport *transport;
    void *link;    /* the transport's own */
    double origin; /* seconds() when the run began */
};
extern const struct device host_device;

/* Allocates all that a rank's replay needs, its arenas (zeroed, page-aligned) included; false: no memory. Then
 * host_release. */
bool host_take(struct replay *re, struct host_rank *own, const struct rt_program *p, int rank);
void host_release(struct replay *re, struct host_rank *own); /* all but the arenas */
/* How long the compute lane waited, in the step's last pass, for other lanes, between its first instruction and its
 * last. stamp: as in struct host_rank. */
double host_waited(const struct rt_rank *k, const struct rt_stamp *stamp);
/* Initial weights at the homes; takes a stage's memory for a while where they are sharded. */
bool host_begin(struct replay *re, const struct start *start, char *why, size_t nwhy);
/* What a home has learned, where it lies; and the other way: from those of the whole stage, as checkpoints have them.
 */
struct checkpoint_shard host_pull(const struct replay *re, const struct rt_home *home);
void host_push(struct replay *re, const struct rt_home *home, const float *weight, const float *moments);
#endif
