/* The watchdog of a process, which is one rank or runs all of them. Its thread handles the clock and the signals, so
 * that no rank waits for ever, and a rank that stops reports where it was.
 *
 * Deadline: a phase (meeting, a step or one repetition of its period, a checkpoint) that takes longer ends the process
 * with exit code 1. SIGINT, SIGTERM: the replay learns of the signal between steps (watch_signal) and ends in order. A
 * second signal ends the process at once; while ranks still meet, the first one does. A rank that is stuck when the
 * signal arrives reports where, and keeps waiting: the others may still arrive. The report is one line on stderr,
 *
 *     pianola: rank 3 waits at 412 RECV_F act(2,5) from rank 2
 *
 * and a flight record, a file with the last instructions of each lane. */
#ifndef PIANOLA_WATCH_H
#define PIANOLA_WATCH_H
#include "device/replay.h"

struct watch_args {
    const char *program;     /* its name, for messages */
    int rank;                /* rank of the process, for messages; unused where ranks are threads */
    int ranks;               /* number of ranks that are threads, else 0 */
    double deadline;         /* seconds; 0: none, allowed only where ranks are threads */
    const char *flight;      /* folder of the flight record */
    const int32_t *group;    /* group table of rt_program, to name the members of collectives */
    const char *const *lane; /* names of lanes; NULL: those in rt_rank */
    const char *saved;       /* folder of the run's checkpoints; NULL: none */
    void (*abort)(void);     /* called before the process exits with 1; must return soon. NULL: nothing is called */
};
/* Handles the signals and starts the thread. Returns false if no thread could be started. */
bool watch_start(const struct watch_args *args);
/* Says which rank this thread is. */
void watch_rank(int rank);
/* Ends a watch over ranks that were threads. All of them have ended. Restores the default action of SIGINT and
 * SIGTERM. */
void watch_stop(void);
/* Sets whether ranks are meeting: while they are, SIGINT and SIGTERM end the process, with 130 or 143. */
void watch_meeting(bool meeting);
/* Begins a phase and its deadline. what: its text, such as "waits for all ranks to start"; kept, not copied. */
void watch_phase(const char *what);
/* Begins to wait for the end of a step of the replay; steps count from 0. If the device begins the next step by itself,
 * the watch follows it. */
void watch_step(struct replay *re, int64_t step);
/* Begins the shutdown of all ranks. The deadline still holds; signals no longer have an effect. */
void watch_end(void);
/* Ends timing: the rank is done. */
void watch_leave(void);
/* Sets a reason why a step may never end, which is reported with its deadline. Kept, not copied; NULL: none. */
void watch_hint(const char *hint);
int watch_signal(void); /* returns SIGINT, SIGTERM, or 0 */
/* Reports what this rank waits for and why it gives up, writes the flight record, and exits with 1. */
__attribute__((noreturn)) void watch_fail(const char *why);

/* Writes an instruction's name into out, which has n bytes: "RECV_F act(2,5) from rank 2". */
void instr_name(char *out, size_t n, const struct rt_program *p, const struct rt_instr *x, const int32_t *groups);
#endif
