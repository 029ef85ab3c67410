/* What the replay core asks of a device. A GPU enqueues and answers true at once; the host does the work, and answers
 * false when it would have to wait for another rank. */
#ifndef PIANOLA_DEVICE_H
#define PIANOLA_DEVICE_H
#include "rt.h"

struct replay;

struct device {
    bool (*wait)(struct replay *z, int32_t i);                  /* may a lane go on after instruction i? */
    void (*launch)(struct replay *z, const struct rt_instr *x); /* a layer, an update, an addition */
    bool (*send)(struct replay *z, const struct rt_instr *x);
    bool (*recv)(struct replay *z, const struct rt_instr *x);
    bool (*reduce)(struct replay *z, const struct rt_instr *x);
    void (*record)(struct replay *z, int32_t i, double start, double end); /* instruction i has ended, or is enqueued */
    double (*clock)(struct replay *z);
    void (*idle)(struct replay *z); /* every lane waits for another rank */
};

/* One rank's replay. All memory is the caller's, taken at the start. */
struct replay {
    const struct device *device;
    const struct rt_program *program;
    int32_t rank;
    int64_t step;    /* from 0 */
    int32_t *cursor; /* per lane */
    bool *blocked;   /* per lane: could not go on since the last change */
    void *self;      /* the device's own */
};
/* Runs every instruction of the rank once. */
void replay_step(struct replay *z);

/* comm_local.c: messages between ranks of one process. Each has a static flag that counts steps: no queue, no lock. */
struct local;
struct local *local_open(const struct rt_program *p, char *const *arena);
void local_close(struct local *c);
/* One side has come to message x of step z->step. True once the tensor has moved; start and end say when. */
bool local_meet(struct local *c, const struct replay *z, const struct rt_instr *x, double *start, double *end);
bool local_reduce(struct local *c, const struct replay *z, const struct rt_instr *x, double *start, double *end);
uint32_t local_bell(struct local *c, int rank); /* rings whenever something may have changed for the rank */
void local_sleep(struct local *c, int rank, uint32_t heard); /* until the bell has rung since it was heard */
#endif
