/* The times of a run's last steps, on which its predicted and measured makespans and its timeline are based. */
#ifndef PIANOLA_RUN_TIMES_H
#define PIANOLA_RUN_TIMES_H
#include "prediction.h"

int64_t run_timed(const struct rt_result *result); /* number of steps whose times are kept */
/* Returns the makespan of the median step, as `diff` and `show --measured` do: each instruction's end counts from the
 * first start in its step, and its median over the kept steps is taken. */
double run_makespan(const struct trained *trained);
struct work run_work(const struct trained *trained, double cores);
/* Writes the kept steps' timeline. Time 0 is the start of the first kept step. cores: 0 if not known. */
void run_timeline(const struct trained *trained, double cores, const char *path);
#endif
