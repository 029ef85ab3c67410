/* The replay core, and the interface of a device: device_host.c or device_cuda.cu. */
#ifndef PIANOLA_REPLAY_H
#define PIANOLA_REPLAY_H
#include "rt.h"

struct replay;

/* A GPU enqueues and returns true at once; the host does the work, and returns false if it would have to wait for
 * another rank. */
struct device {
    bool (*wait)(struct replay *re, const struct rt_instr *x, int32_t i); /* may x's lane go on after instruction i? */
    void (*launch)(struct replay *re, const struct rt_instr *x);          /* a layer, an update, an addition */
    bool (*meet)(struct replay *re, const struct rt_instr *x);            /* a message's side, or a collective */
    /* Instruction i has ended, or is enqueued. */
    void (*record)(struct replay *re, int32_t i, double start, double end);
    double (*clock)(struct replay *re);
    bool (*stamp)(struct replay *re, int32_t i, double *start, double *end); /* of this step; false: not known */
    void (*idle)(struct replay *re);                                         /* every lane waits for another rank */
};

/* One rank's replay. The caller allocates all memory at the start. */
struct replay {
    const struct device *device;
    const struct rt_program *program;
    int32_t rank;
    int64_t step;    /* from 0 */
    int32_t *cursor; /* per lane: its position in lane_ins. Stored with release: the watch reads it */
    int32_t running; /* the instruction being launched, or -1; stored with release too */
    int32_t left;    /* instructions of the step still to run */
    bool *blocked;   /* per lane: could not continue since the last change */
    /* Per lane, for a device that lags behind the cursors: instructions of its step that have ended; and behind them,
     * which step that is, from 1. NULL: see cursor. */
    const uint32_t *reached;
    void *self; /* the device's own */
};
/* Runs every instruction of the rank once. Calls idle whenever every lane waits. */
void replay_step(struct replay *re);
/* The same in parts, for ranks that share a thread. replay_run goes as far as it can; true when all have run. */
void replay_begin(struct replay *re);
bool replay_run(struct replay *re);

/* The members of a group, ended by -1. groups: as in rt_tables. */
static inline const int32_t *group_at(const int32_t *groups, int number) {
    for (; number > 0; groups++)
        number -= *groups < 0;
    return groups;
}
static inline int group_count(const int32_t *groups) {
    int n = 0;
    for (; *groups >= 0; n++)
        groups = group_at(groups, 1);
    return n;
}
/* A group as its member `me` sees it: members below me come before it in the order of sums. */
struct rt_group {
    const int32_t *member;
    int n, me;
};
static inline struct rt_group group_of(const int32_t *groups, int number, int rank) {
    struct rt_group group = {group_at(groups, number), 0, 0};
    for (; group.member[group.n] >= 0; group.n++)
        group.me = group.member[group.n] == rank ? group.n : group.me;
    return group;
}
/* Which side of a message, or member of a collective, a rank is. */
static inline int side_of(const struct rt_meeting *meeting, int rank) {
    int side = 0;
    while (meeting->rank[side] != rank)
        side++;
    return side;
}
#endif
