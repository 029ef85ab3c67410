/* A run of a program's ranks, to be disturbed: started over TCP or under mpirun, in a session of its own, so that what
 * is left of it can be found, and never waited for without a limit. */
#ifndef PIANOLA_FAULTS_RUN_H
#define PIANOLA_FAULTS_RUN_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { RANKS = 8, RUNS_ON = -1, PLACE = 512 };

struct program {
    const char *name, *schedule; /* its folder in the room; its own name */
    int ranks;
    const char *data; /* what --data says, or NULL */
    int like;         /* programs alike train to the same bits */
};

struct run {
    const struct program *p;
    bool mpi;
    char logs[PLACE]; /* a folder: out, err<k>, flight-rank<k>.txt */
    pid_t pid[RANKS]; /* of rank k; under mpirun: pid[0] is mpirun's */
    int code[RANKS];  /* how it ended: exit code, or 128 + signal; RUNS_ON */
    int npids;
};

struct start {
    const struct program *p;
    bool mpi;
    const char *room, *logs, *saved; /* folders: of programs, for what is said, of checkpoints */
    int meeting;                     /* a number that no other run of this machine has now */
    int steps, every;
    double deadline;
    const char *also; /* one more flag, or NULL */
};

double now(void);
void nap(double seconds);
/* Ends the process with 2. */
_Noreturn void give_up(const char *what, const char *name);

void run_start(struct run *r, const struct start *s);
/* The process of a rank; 0: it is not there, or not yet. */
pid_t run_rank(const struct run *r, int rank);
/* Notes who has ended. True: all of them, but for the one with this number (-1: without exception). */
bool run_ended(struct run *r, int but);
/* The same, waited for so many seconds at most. */
bool run_wait(struct run *r, int but, double seconds);
/* How many processes of the run are left. */
int run_left(const struct run *r);
/* Kills whatever is left. */
void run_kill(struct run *r);
/* A file of the logs, into memory that the next call takes again; "" when it is not there. */
const char *run_said(const struct run *r, const char *format, int number);
#endif
