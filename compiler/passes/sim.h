/* The state of a simulation, for sim.c and sim_cores.c. */
#ifndef PIANOLA_SIM_H
#define PIANOLA_SIM_H
#include "passes.h"

struct meeting { /* meeting point of the ranks of a message or a collective */
    double ready;
    int32_t came;
};

struct sim {
    const struct spec *sp;
    const struct costs *costs;
    enum launch_order order;
    const struct program *p;
    struct timeline *tl;
    double **free, **done; /* per rank and lane: when it can start another message, and anything else */
    int **sibling;         /* per rank and lane: sibling_lanes */
    double *launch;        /* per rank: when another communication may be launched */
    int32_t *at, *stop;    /* per rank: the next instruction; the one to stop at */
    struct meeting *meet;
    int32_t *todo; /* ranks that can go on */
    int ntodo;
    double noise;  /* times are longer or shorter by up to this fraction, or AS_MEASURED, */
    uint64_t draw; /* with the random numbers of this run and repetition */
};

/* sim.c */
struct sim sim_begin(const struct compile *c, struct timeline *tl);
struct timeline *sim_timeline(const struct compile *c, const struct program *p); /* empty */
/* Returns how long an instruction takes that meets no other rank, on a core of its own. */
double sim_duration(const struct sim *sim, int r, const struct instr *x);
/* Returns an instruction's random factor, by its place in the program. All ranks of a message or a collective get one
 * factor. */
double sim_noise(const struct sim *sim, int r, int32_t i);
/* Returns whether x is the first of an overlapped pair, which runs with the instruction after it. */
bool sim_leads_pair(const struct sim *sim, const struct instr *x);
/* Returns whether x need not wait for the latency of the message before it: it is the next message of the same edge. On
 * a lane of several edges it waits. */
bool sim_follows_edge(const struct rank *k, const struct instr *x);
/* Returns the times at which a message's sender and receiver are done, relative to its start. took: when both lanes are
 * free again. */
struct message_times {
    double late, took; /* the latency; the time that it occupies its lanes */
};
struct message_times sim_message(const struct sim *sim, int r, int32_t i);
double sim_collective(const struct sim *sim, int r, int32_t i);

/* Maximum number of repetitions that are followed until the period settles; each costs as much as a simulation. LARGE:
 * programs of more instructions are followed for two. */
enum { MOST_REPETITIONS = 64, LARGE = 1000000 };
/* Times at which the ranks' lanes joined after each repetition that was followed; at[0]: before the first. */
struct followed {
    double *at[MOST_REPETITIONS + 1];
    int n;     /* repetitions */
    int cycle; /* number of repetitions after which all ranks are equally much later; 0: not settled yet */
    double later;
};
/* Returns whether the last repetition is like one of the eight before it, and sets cycle and later if so. */
bool sim_settles(struct followed *all, int workers);
void sim_take_mean(struct followed *all, int workers); /* for what never settles: the mean of the second half */

/* sim_cores.c: the same where ranks share cores. */
struct shared_run {
    const struct compile *c;
    struct timeline *tl; /* gets the times of the last pass or, if `appends`, of all passes one after the other */
    int64_t copies;      /* repetitions of the period, or steps if nothing repeats */
    bool appends;
    double noise;              /* as in struct sim */
    uint64_t draw;             /* of the run */
    struct followed *followed; /* NULL, or ends the run once the repetitions settle */
};
bool cores_are_shared(const struct spec *sp); /* whether ranks are threads, or use more cores than there are */
void run_shared(const struct shared_run *run);
void shared_steady(const struct compile *c);
double shared_noisy(const struct sim *sim, const struct compile *c, uint64_t draw);

/* sim_follows.c. The followers of an instruction on its rank: next[at[i] .. at[i + 1]), once it has ended or, for
 * ~next, once its lane is free again. */
struct follows {
    int32_t *at, *next;
    int32_t *need; /* per instruction: number of instructions of its section that it follows */
};
struct follows follows_of(const struct sim *sim, int r); /* of rank r's instructions */
#endif
