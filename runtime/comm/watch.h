/* The watchdog of a process, which is a rank or runs them all: a thread that handles the clock and the signals, so that
 * no rank waits for ever, and a rank that stops reports where it was.
 *
 * Deadline: a phase (meeting, a step or one repetition of its period, a checkpoint) that takes longer ends the process
 * with exit code 1.
 * SIGINT, SIGTERM: the replay learns of the signal between steps (watch_signal) and ends in order; a second one ends
 * the process at once, and while ranks still meet the first one does. A rank that is stuck when the signal arrives
 * reports where, and keeps waiting: the others may still arrive. The report is one line on stderr,
 *
 *     pianola: rank 3 waits at 412 RECV_F act(2,5) from rank 2
 *
 * and a flight record, a file with the last instructions of each lane. */
#ifndef PIANOLA_WATCH_H
#define PIANOLA_WATCH_H
#include "device/replay.h"

struct watch_args {
    const char *program;     /* its name, for messages */
    int rank;                /* for messages; or, where ranks are threads, */
    int ranks;               /* how many there are, else 0 */
    double deadline;         /* seconds; 0, of threads: none */
    const char *flight;      /* folder of the flight record */
    const int32_t *group;    /* as in rt_program: names the members of collectives */
    const char *const *lane; /* names of lanes; NULL: as rt_rank has them */
    const char *saved;       /* folder of its checkpoints; NULL: none */
    void (*abort)(void);     /* called before the process ends with 1; bounded. NULL: nothing */
};
/* Handles the signals and starts the thread. False: no thread could be started. */
bool watch_start(const struct watch_args *args);
/* Says which rank this thread is. */
void watch_rank(int rank);
/* Ends a watch over ranks that were threads, all of which have ended: leaves SIGINT and SIGTERM to the system again. */
void watch_stop(void);
/* Whether ranks meet: then SIGINT and SIGTERM end the process, with 130 or 143. */
void watch_meeting(bool meeting);
/* Begins a phase and its deadline. what: "waits for all ranks to start"; kept, not copied. */
void watch_phase(const char *what);
/* Begins to wait for the end of a step of the replay, from 0. A device that begins the next one by itself is followed
 * there. */
void watch_step(struct replay *re, int64_t step);
/* Only the shutdown of all ranks is left. The deadline still holds; signals no longer have an effect. */
void watch_end(void);
/* The rank is done; nothing more is timed. */
void watch_leave(void);
/* A reason why a step may never end, which is reported with its deadline. Kept, not copied; NULL: none. */
void watch_hint(const char *hint);
int watch_signal(void); /* SIGINT, SIGTERM, or 0 */
/* Reports what this rank waits for and why it gives up, writes the flight record, and ends the process with 1. */
__attribute__((noreturn)) void watch_fail(const char *why);

/* Into out, of n bytes: "RECV_F act(2,5) from rank 2". */
void instr_name(char *out, size_t n, const struct rt_program *p, const struct rt_instr *x, const int32_t *groups);
#endif
