/* The ranks' interface to the host as a device, for device_host.c, the transports, and rank_host.c. */
#ifndef PIANOLA_DEVICE_HOST_H
#define PIANOLA_DEVICE_HOST_H
#include "replay.h"
#include "store/checkpoint.h"

/* How messages travel between ranks on hosts. Both functions return false until the other side has arrived and the
 * tensor has moved; start and end then hold the times of the move, by the device's clock. */
struct host_transport {
    bool (*message)(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end);
    bool (*collective)(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end);
    void (*idle)(void *link, struct replay *re); /* returns when something may have changed for the rank */
    void (*begin)(void *link, struct replay *re); /* begin and end: as in struct device */
    void (*end)(void *link, struct replay *re);
};

struct host_rank {
    char *arena, *host; /* host: the arena in host memory; NULL: it has no bytes */
    const struct data *data;
    uint64_t seed; /* the training's, for its weights and random draws */
    void *batch;   /* data_bytes: the microbatch being read */
    float *loss;   /* per microbatch of the step; the last stage's rank writes it */
    int64_t apart; /* floats from there to the place of another member of its team; 0: it is in other memory */
    struct rt_routed routed; /* totals over all forwards so far */
    int64_t *ended;          /* per instruction: how often it has ended */
    struct rt_stamp *stamp;  /* per instruction, for the last time */
    bool times;              /* whether to measure the CPU time of instructions */
    double cpu;              /* CPU time of the instruction that is about to end; NAN: not measured */
    double first, last;      /* start of the step's first instruction, end of its latest one; the caller resets them */
    uint64_t found[NORM_WORDS]; /* the rank's norm before it began this step's norm */
    double *when;               /* end of each of the last stage's updates in a step; NULL: not needed */
    const struct host_transport *transport;
    void *link;    /* the transport's own */
    double origin; /* seconds() when the run began */
};
extern const struct device host_device;

/* Allocates everything that a rank's replay needs, including its arenas (zeroed, page-aligned). Returns false if there
 * is no memory. Call host_release in either case. */
bool host_take(struct replay *re, struct host_rank *own, const struct rt_program *p, int rank);
void host_release(struct replay *re, struct host_rank *own); /* frees everything but the arenas */
/* Returns how long the compute lane waited for other lanes in the step's last pass, between its first instruction and
 * its last. stamp: as in struct host_rank. */
double host_waited(const struct rt_rank *k, const struct rt_stamp *stamp);
/* Sets initial weights at the homes. Where they are sharded, it temporarily takes a whole stage's memory. */
bool host_begin(struct replay *re, const struct start *start, char *why, size_t nwhy);
/* Returns a home's learned state in place; push sets it from a whole stage's arrays, as in checkpoints. */
struct checkpoint_shard host_pull(const struct replay *re, const struct rt_home *home);
void host_push(struct replay *re, const struct rt_home *home, const float *weight, const float *moments);
#endif
