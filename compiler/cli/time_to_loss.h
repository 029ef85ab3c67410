/* `compare --train`: what schedules learn, by predicted time and by microbatches. */
#ifndef PIANOLA_TIME_TO_LOSS_H
#define PIANOLA_TIME_TO_LOSS_H
#include "command.h"
#include "pipeline.h"

struct course {                   /* a schedule's training */
    const char *name;             /* the caller's */
    int64_t updates;              /* of the last stage */
    int each;                     /* microbatches of an update */
    float *loss;                  /* [updates * each]: of each microbatch */
    double *smooth;               /* [updates]: the mean loss of the last `window` microbatches; NAN: there are fewer */
    double *predicted, *measured; /* [updates]: seconds, since the training began, until each has ended */
    double seconds, spent;        /* of it all: predicted, measured */
    int64_t reached;              /* the update from which on smooth is at most the target; -1: there is none */
    const struct report *report;
};

/* Dies unless the compiled schedule can be trained, and its time be predicted in seconds. */
void check_course(const struct compile *c, const struct settings *settings);
/* Trains it. Progress goes to stderr. */
struct course run_course(const struct compile *c, const struct settings *settings, const char *name);

struct courses {
    struct course *course;
    int n;
    int64_t steps, batches; /* of a step */
    int64_t window;         /* microbatches: a tenth of all, or an update of any schedule if that is more */
    double target;
    bool given; /* the target; else it is the worst loss at the end */
};
/* Smooths losses, and finds when they are at the target. target: NAN: not given. */
struct courses judge_courses(struct course *course, int n, int64_t steps, double target);
void put_courses(struct text *out, const struct courses *courses, const struct settings *settings);
void put_courses_json(struct text *out, const struct courses *courses); /* members of an object */
void draw_courses(struct text *out, const struct courses *courses);
#endif
