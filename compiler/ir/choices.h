/* The choices of a compile, which the scripts, the user and the searches make, and the arguments of a script. */
#ifndef PIANOLA_CHOICES_H
#define PIANOLA_CHOICES_H
#include "base/base.h"
#include <string.h>

enum lanes_per { PER_EDGE, PER_PEER, PER_RANK }; /* what has a communication lane of its own; an edge has a direction */
/* When a rank's communication starts: once its lane is free; not before the one issued before it, on whichever lane,
 * has started; or has ended. */
enum launch_order { LAUNCH_LANE, LAUNCH_ISSUE, LAUNCH_SERIAL };
/* Which weights are kept, and when others come: as fetch.c and lower_weights.c solve it; or none is kept beyond a run
 * of uses, and each comes as many runs ahead. */
enum prefetch { SOLVED, JUST_IN_TIME, ONE_AHEAD, TWO_AHEAD };

/* When a buffer's first access starts, and its last one ends. */
struct lifetime {
    double start, end;
};

/* What may be chosen: the scripts and the user say some of it, and the searches of plan/ vary the rest. */
struct choices {
    enum lanes_per lanes;
    enum launch_order launch;
    enum prefetch prefetch;
    bool least_memory; /* the smallest plan, even where instructions then wait for others to leave bytes */
    bool any_memory;   /* a plan may be larger than the cluster's memory */
    bool auto_offload; /* which stashes leave is searched, so that the program fits into memory */
    uint8_t *offload;  /* [stage * batches + b]: what its F keeps goes to host memory meanwhile; NULL: none does */
    int *slots;        /* weight slots per rank; 0: nothing is kept between jobs */
    int64_t *room;     /* bytes for fetched weights while a job runs on its rank, and since the job before it;
                        * INT64_MAX: as many as there are slots for. NULL: that for all jobs */
    bool *late;        /* per rank, with room: weights come after the job before the one that reads them */
    /* [rank][buffer]: bytes are reused only once they are free by these times; NULL: as soon as the schedule permits */
    struct lifetime **life;
};

struct script_text {
    char *src;
    size_t size;
};

/* The arguments of script.c: files or NULL, and -D settings "key=value". */
struct script_args {
    const char *schedule, *model, *cluster;
    enum lanes_per lanes;
    enum launch_order launch;
    enum prefetch prefetch;
    bool recompute, least_memory;
    double memory; /* bytes of a rank, instead of the cluster's; 0: the cluster's */
    int most;      /* of a step whose updates are jobs: about so many microbatches are written out; 0: all */
    int later;     /* of such a step: its functions are asked about jobs so many microbatches later; whole updates */
    struct script_text
        *text; /* [3], per kind of script: kept from the first run for later ones. NULL: read each time */
    const char **set;
    int nset;
    int nsizes; /* the last nsizes settings are for the schedule alone */
    bool *used; /* [nset]: set for each setting that a script used. NULL: every setting must be used */
};
/* Whether "workers=8" sets this key; whether a setting of the user's does. */
static inline bool sets_key(const char *setting, const char *key) {
    size_t n = strlen(key);
    return strncmp(setting, key, n) == 0 && setting[n] == '=';
}
static inline bool is_set(const struct script_args *args, const char *key) {
    bool set = false;
    for (int i = 0; i < args->nset; i++)
        set |= sets_key(args->set[i], key);
    return set;
}
#endif
