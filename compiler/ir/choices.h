/* Choices of a compile, made by scripts, the user and searches, and the arguments of a script. */
#ifndef PIANOLA_CHOICES_H
#define PIANOLA_CHOICES_H
#include "base/base.h"
#include <string.h>

enum lanes_per { PER_EDGE, PER_PEER, PER_RANK }; /* unit that has its own communication lane; an edge is directed */
/* Earliest start of a rank's communication: once its lane is free; once the one issued before it, on any lane, has
 * started; or once that has ended. */
enum launch_order { LAUNCH_LANE, LAUNCH_ISSUE, LAUNCH_SERIAL };
/* Policy for weights: which of them stay on a rank, and when the others arrive. SOLVED: fetch.c and lower_weights.c
 * choose. Otherwise no set stays beyond a run of consecutive uses, and each arrives zero, one or two runs ahead. */
enum prefetch { SOLVED, JUST_IN_TIME, ONE_AHEAD, TWO_AHEAD };

/* Time from the start of a buffer's first access to the end of its last. */
struct lifetime {
    double start, end;
};

/* Choices of a compile. Scripts and the user make some of them; the searches of plan/ vary the rest. */
struct choices {
    enum lanes_per lanes;
    enum launch_order launch;
    enum prefetch prefetch;
    bool least_memory; /* the smallest plan, even if instructions then wait until others free bytes */
    bool any_memory;   /* a plan may be larger than the cluster's memory */
    bool auto_offload; /* whether a search chooses the stashes to offload, so that the program fits into memory */
    uint8_t *offload;  /* [stage * batches + b]: whether what F keeps goes to host memory; NULL: nothing does */
    int *slots;        /* weight slots per rank; 0: no weights stay between jobs */
    int64_t *room;     /* per job: bytes available for fetched weights from the end of the rank's previous job to its
                        * own end; INT64_MAX: only the slots limit them. NULL: INT64_MAX for all jobs */
    bool *late;        /* per rank, with room: whether weights arrive only after the job before their reader */
    /* [rank][buffer]: bytes are reused only once free by these times; NULL: as early as the schedule
     * permits */
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
    bool uncut;    /* without a schedule: a cut that the model has does not matter */
    double memory; /* bytes per rank, instead of the cluster's; 0: the cluster's */
    int most;      /* if updates are jobs: approximate number of the step's microbatches to write out; 0: all */
    int later;     /* if updates are jobs: shifts the jobs passed to scripts by this many microbatches, a whole number
                    * of updates */
    struct script_text
        *text; /* [3], per kind of script: texts read in the first run, for later ones. NULL: read each time */
    const char **set;
    int nset;
    int nsizes; /* the last nsizes settings apply only to the schedule */
    bool *used; /* [nset]: receives true for each setting that a script used. NULL: every setting must be used */
};
/* sets_key returns whether "workers=8" sets this key; is_set, whether any of the user's settings does. */
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
