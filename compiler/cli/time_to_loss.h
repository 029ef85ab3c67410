/* `compare --train`: what schedules learn, by predicted time and by microbatches. */
#ifndef PIANOLA_TIME_TO_LOSS_H
#define PIANOLA_TIME_TO_LOSS_H
#include "command.h"
#include "pipeline.h"

struct course {                   /* One schedule's training. */
    const char *name;             /* owned by the caller */
    int64_t updates;              /* the last stage's number of updates */
    int each;                     /* microbatches per update */
    float *loss;                  /* [updates * each]: loss of each microbatch */
    double *smooth;               /* [updates]: mean loss of the last `window` microbatches; NAN: fewer so far */
    double *predicted, *measured; /* [updates]: seconds from the start of training to the update's end */
    double seconds, spent;        /* seconds of the whole training: predicted, measured */
    int64_t reached;              /* first update from which smooth stays at or below the target; -1: none */
    const struct report *report;
};

/* Dies unless the compiled schedule can be trained and its time predicted in seconds. */
void check_course(const struct compile *c, const struct settings *settings);
/* Trains the schedule. Reports progress on stderr. */
struct course run_course(const struct compile *c, const struct settings *settings, const char *name);

struct courses {
    struct course *course;
    int n;
    int64_t steps, batches; /* batches: per step */
    int64_t window;         /* microbatches: a tenth of all, or the largest number per update if that is more */
    double target;
    bool given; /* whether the user gave the target; else it is the worst final loss */
};
/* Smooths the losses, and finds when they reach the target. target: NAN: not given. */
struct courses judge_courses(struct course *course, int n, int64_t steps, double target);
void put_courses(struct text *out, const struct courses *courses, const struct settings *settings);
void put_courses_json(struct text *out, const struct courses *courses); /* writes members of an object */
void draw_courses(struct text *out, const struct courses *courses);
#endif
