/* A run of a program's ranks, to be disturbed. It is started over TCP or under mpirun, in its own session, so that its
 * leftovers can be found. Every wait for it has a limit. */
#ifndef PIANOLA_FAULTS_RUN_H
#define PIANOLA_FAULTS_RUN_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { RANKS = 8, RUNS_ON = -1, PLACE = 512 };

struct program {
    const char *name, *schedule; /* its folder in the room; its own name */
    int ranks;
    const char *data; /* value of --data, or NULL */
    int like;         /* programs with equal values train to the same bits */
};

struct run {
    const struct program *p;
    bool mpi;
    char logs[PLACE]; /* folder with out, err<k>, flight-rank<k>.txt */
    pid_t pid[RANKS]; /* rank k's; under mpirun, pid[0] is mpirun's */
                      /* exit code, or 128 + signal, or RUNS_ON */
    int code[RANKS];  /* how it ended: exit code, or 128 + signal; RUNS_ON */
    int npids;
};

struct start {
    const struct program *p;
    bool mpi;
    const char *room, *logs, *saved; /* folders: programs, output, checkpoints */
    int meeting;                     /* a number that no other run on this machine has now */
    int steps, every;
    double deadline;
    const char *also; /* one more flag, or NULL */
};

double now(void);
void nap(double seconds);
/* Ends the process with exit code 2. */
_Noreturn void give_up(const char *what, const char *name);

void run_start(struct run *r, const struct start *s);
/* Returns the process of a rank, or 0 if it does not exist (yet). */
pid_t run_rank(const struct run *r, int rank);
/* Notes which processes have ended. Returns whether all have, except for number `but` (-1: no exception). */
bool run_ended(struct run *r, int but);
/* Waits at most `seconds` seconds for the same. */
bool run_wait(struct run *r, int but, double seconds);
/* Returns how many processes of the run are left. */
int run_left(const struct run *r);
/* Kills all processes that are left. */
void run_kill(struct run *r);
/* Reads a file of the logs into memory that the next call reuses; returns "" if it does not exist. */
const char *run_said(const struct run *r, const char *format, int number);
#endif
