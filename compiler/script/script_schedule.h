/* Private to script_schedule.c and script_sequence.c: a schedule's table while its jobs are read. */
#ifndef PIANOLA_SCRIPT_SCHEDULE_H
#define PIANOLA_SCRIPT_SCHEDULE_H
#include "script.h"

struct reader {
    struct script *S;
    lua_State *L;
    struct table t;
    struct spec *sp;
    int dir[NDIRS];                                 /* stack indices of "F", "R", … */
    int w, n, fill, cost, split, recompute, source; /* stack indices of the functions; 0: not given */
    struct owners owners;
};

bool field_given(struct reader *reader, const char *name);
/* Calls f(s, b, d), or f(s, b) if d < 0, where b counts from the beginning of the step. With slices, q is one more
 * argument after these. The call lasts until call_end, so that errors in its results name it. */
void ask_script(struct reader *reader, const char *name, int f, int s, int b, int d, int results);
/* Lays out the jobs that `has` names, (s,b) by (s,b), in canonical order. */
void lay_out_jobs(struct spec *sp, const uint8_t *has);

/* script_sequence.c: reads the field `sequence`, which is on top of the stack. */
void jobs_from_sequence(struct reader *reader);
#endif
