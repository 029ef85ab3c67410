/* The device interface of the replay core. A GPU enqueues and returns true at once; the host does the work, and returns
 * false if it would have to wait for another rank. */
#ifndef PIANOLA_DEVICE_H
#define PIANOLA_DEVICE_H
#include "rt.h"

struct replay;

struct device {
    bool (*wait)(struct replay *z, const struct rt_instr *x, int32_t i); /* may x's lane go on after instruction i? */
    void (*launch)(struct replay *z, const struct rt_instr *x);          /* a layer, an update, an addition */
    bool (*send)(struct replay *z, const struct rt_instr *x);
    bool (*recv)(struct replay *z, const struct rt_instr *x);
    bool (*reduce)(struct replay *z, const struct rt_instr *x);
    void (*record)(struct replay *z, int32_t i, double start, double end); /* instruction i has ended, or is enqueued */
    double (*clock)(struct replay *z);
    bool (*stamp)(struct replay *z, int32_t i, double *start, double *end); /* of this step; false: not known */
    void (*idle)(struct replay *z);                                         /* every lane waits for another rank */
};

/* One rank's replay. The caller allocates all memory at the start. */
struct replay {
    const struct device *device;
    const struct rt_program *program;
    int32_t rank;
    int64_t step;    /* from 0 */
    int32_t *cursor; /* per lane: the place in lane_ins it has come to. Written with release: the watch reads it */
    int32_t running; /* the instruction being launched, or -1; likewise */
    int32_t left;    /* instructions of the step still to run */
    bool *blocked;   /* per lane: could not go on since the last change */
    /* Per lane, where the device runs later than this says: instructions of the step that have ended. NULL: the cursors
     * say it. */
    const uint32_t *reached;
    void *self; /* the device's own */
};
/* Runs every instruction of the rank once. Calls idle whenever every lane waits. */
void replay_step(struct replay *z);
/* The same in parts, for ranks that share a thread. run: as far as it goes; true when all have run. */
void replay_begin(struct replay *z);
bool replay_run(struct replay *z);

/* Which side of a message x is; x is no reduction. ORDER OPS: SENDs and RECVs alternate. */
static inline bool sends(const struct rt_instr *x) { return (x->op - OP_SEND_F) % 2 == 0; }
/* The members of a group, ended by -1. groups: as in rt_tables. */
static inline const int32_t *group_at(const int32_t *groups, int number) {
    for (; number > 0; groups++)
        number -= *groups < 0;
    return groups;
}

/* How a host rank's messages travel. Both return false until the other side has arrived and the tensor has moved. */
struct comm {
    bool (*message)(void *link, struct replay *z, const struct rt_instr *x, double *start, double *end);
    bool (*reduce)(void *link, struct replay *z, const struct rt_instr *x, double *start, double *end);
    void (*idle)(void *link, struct replay *z); /* returns when something may have changed for the rank */
};

/* comm_local.c: between ranks of one process. Each message has a static flag that counts steps: no queue, no lock. */
extern const struct comm comm_local;
struct local;
struct local *local_open(const struct rt_program *p, char *const *arena);
void local_close(struct local *c);
#endif
