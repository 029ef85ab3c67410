#include "run_times.h"
#include "../../runtime/store/timeline.h"
#include "diff/diff.h"
#include "files.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t run_timed(const struct rt_result *result) { return result->done - timeline_first(result->from, result->done); }

/* Returns the times of rank r's instructions in one of the kept steps. */
static const struct rt_stamp *step_stamps(const struct trained *trained, int r, int64_t step) {
    int64_t back = trained->result.done - step;
    return trained->stamp[r] + (trained->kept - back) * trained->program->rank[r].nins;
}

double run_makespan(const struct trained *trained) {
    const struct rt_result *result = &trained->result;
    const struct rt_program *p = trained->program;
    int64_t n = run_timed(result), first = result->done - n;
    if (!trained->kept)
        return median(trained->makespan + first, n);
    double *begin = NEW(double, n), *end = NEW(double, n), last = 0;
    for (int64_t s = 0; s < n; s++) {
        begin[s] = INFINITY;
        for (int r = 0; r < p->workers; r++)
            for (int32_t i = 0; i < p->rank[r].nins; i++)
                begin[s] = fmin(begin[s], step_stamps(trained, r, first + s)[i].start);
    }
    for (int r = 0; r < p->workers; r++)
        for (int32_t i = 0; i < p->rank[r].nins; i++) {
            for (int64_t s = 0; s < n; s++)
                end[s] = step_stamps(trained, r, first + s)[i].end - begin[s];
            last = fmax(last, median_of(end, (int)n));
        }
    return last;
}

struct work run_work(const struct trained *trained, double cores) {
    const struct rt_result *result = &trained->result;
    const struct rt_program *p = trained->program;
    int64_t first = timeline_first(result->from, result->done);
    struct work work = {NEW(double *, p->workers), cores, result->handoff};
    for (int r = 0; r < p->workers; r++) {
        work.cpu[r] = NEW(double, p->rank[r].nins);
        for (int64_t s = first; s < result->done; s++)
            for (int32_t i = 0; i < p->rank[r].nins; i++)
                work.cpu[r][i] += step_stamps(trained, r, s)[i].cpu / (double)(result->done - first);
    }
    return work;
}

void run_timeline(const struct trained *trained, double cores, const char *path) {
    const struct rt_program *p = trained->program;
    const struct rt_result *result = &trained->result;
    int64_t first = timeline_first(result->from, result->done);
    double origin = INFINITY;
    const struct timeline_on on = {cores, result->handoff};
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            origin = fmin(origin, step_stamps(trained, r, first)[i].start);
    struct text out = {0};
    FILE *f = open_memstream(&out.s, &out.n);
    if (!f)
        die("%s: %s", path, strerror(errno));
    timeline_head(f);
    for (int64_t step = first; step < result->done; step++)
        for (int r = 0; r < p->workers; r++)
            timeline_rows(f, step, &p->rank[r], p->model->slices, step_stamps(trained, r, step), origin, on);
    bool ok = !ferror(f);
    if (fclose(f) != 0 || !ok)
        die("%s: no memory for the timeline", path);
    write_file(path, &out);
    free(out.s);
}
