#include "unit_check.h"
#include "store/hash.h"
#include "unit_libraries.h"
#include "unit_trial.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An operation's results are compared after runs in memory that was 0, and that was all ones: NaN, and -1. */
enum { ZEROS = 0, ONES = 0xff };

/* ---- comparisons ---- */

/* The results of a run, by operand; NULL: not written. */
struct results {
    char *of[NOPERANDS];
};
/* Copies the results of an operation that has just run. Returns false if there is no memory. */
static bool copy_results(const struct trial *t, enum unit_operation op, struct results *results) {
    bool ok = true;
    for (int operand = 0; operand < NOPERANDS; operand++) {
        const struct room *room = &t->room[operand];
        if (room->bytes == 0 || operand == OPERAND_work || !trial_writes(t, op, operand))
            continue;
        char *copy = malloc((size_t)room->bytes);
        if (copy)
            t->memory->get(room, copy);
        ok = ok && copy;
        results->of[operand] = copy;
    }
    return ok || trial_says(t, op, "cannot be checked: there is no memory to keep what it makes");
}
static void free_results(struct results *results) {
    for (int operand = 0; operand < NOPERANDS; operand++)
        free(results->of[operand]);
}

/* Reports the first result that differs from an earlier run's. again: both runs found the same bytes in memory. */
static bool compare_results(const struct trial *t, enum unit_operation op, const struct results *results, bool again) {
    for (int operand = 0; operand < NOPERANDS; operand++) {
        bool padded = operand == OPERAND_stash || operand == OPERAND_extra; /* may have bytes that nobody writes */
        bool compared = results->of[operand] && (again || !padded);
        int64_t at = compared ? trial_difference(t, operand, results->of[operand]) : -1;
        if (at >= 0 && again)
            return trial_says(t, op,
                              "is not deterministic: called twice with the same operands, it writes %s "
                              "differently, from byte %lld on",
                              operand_name[operand], (long long)at);
        if (at >= 0)
            return trial_says(t, op,
                              "makes byte %lld of %s depend on what memory held before: it does not write all of "
                              "%s, or reads bytes of work, stash or extra that were not written",
                              (long long)at, operand_name[operand], operand_name[operand]);
    }
    return true;
}

/* ---- the checks ---- */

/* Runs an operation three times: twice in memory of zeros, then in memory of ones. made_on_ones: the operands that
 * earlier operations made in memory of ones, for the third run. Sets *zeros and *ones to the results. */
static bool check_operation(struct trial *t, enum unit_operation op, const struct results *made_on_ones,
                            struct results *zeros, struct results *ones) {
    char *before[NOPERANDS];
    bool ok = trial_run(t, op, ZEROS) && copy_results(t, op, zeros);
    ok = ok && trial_run(t, op, ZEROS) && compare_results(t, op, zeros, true);
    memcpy(before, t->value, sizeof before);
    for (int operand = 0; operand < NOPERANDS; operand++)
        if (made_on_ones && made_on_ones->of[operand])
            t->value[operand] = made_on_ones->of[operand];
    ok = ok && trial_run(t, op, ONES) && compare_results(t, op, zeros, false) && copy_results(t, op, ones);
    memcpy(t->value, before, sizeof before);
    return ok;
}

/* Copies an operation's results into the operands of later operations. */
static void keep_results(struct trial *t, const struct results *results) {
    for (int operand = 0; operand < NOPERANDS; operand++)
        if (results->of[operand] && t->value[operand])
            memcpy(t->value[operand], results->of[operand], (size_t)t->room[operand].bytes);
}

/* Checks that NAME_input writes the same `extra` if dx is NULL. */
static bool check_without_dx(struct trial *t, const struct results *with) {
    t->without_dx = true;
    bool ok = trial_run(t, UNIT_INPUT, ZEROS);
    int64_t at = ok ? trial_difference(t, OPERAND_extra, with->of[OPERAND_extra]) : -1;
    if (at >= 0)
        ok = trial_says(t, UNIT_INPUT, "writes extra differently, from byte %lld on, where dx is NULL", (long long)at);
    t->without_dx = false;
    return ok;
}

/* Checks that NAME_weight adds its gradient to dw if `add` is true. */
static bool check_addition(struct trial *t, const struct results *once) {
    const float *one = (const float *)(const void *)once->of[OPERAND_dw];
    int64_t n = t->room[OPERAND_dw].bytes / 4;
    float most = 0;
    if (!one)
        return true;
    memcpy(t->value[OPERAND_dw], one, (size_t)n * 4);
    t->add = true;
    bool ok = trial_run(t, UNIT_WEIGHT, ZEROS);
    t->add = false;
    const float *two = (const float *)(const void *)t->now;
    t->memory->get(&t->room[OPERAND_dw], t->now);
    for (int64_t i = 0; i < n; i++)
        most = fabsf(one[i]) > most ? fabsf(one[i]) : most;
    for (int64_t i = 0; ok && i < n; i++)
        if (fabsf(two[i] - 2 * one[i]) > 1e-3f * most)
            ok = trial_says(t, UNIT_WEIGHT,
                            "does not add to dw if `add` is true: number %lld was %g, and is %g after a gradient of "
                            "%g",
                            (long long)i, (double)one[i], (double)two[i], (double)one[i]);
    return ok;
}

bool trial_check(struct trial *t, bool skips_dx) {
    struct results zeros[UNIT_OPERATIONS] = {{{NULL}}}, ones[UNIT_OPERATIONS] = {{{NULL}}}, made;
    bool ok = unit_trial_open(t) && check_operation(t, UNIT_FORWARD, NULL, &zeros[UNIT_FORWARD], &ones[UNIT_FORWARD]);
    if (ok)
        keep_results(t, &zeros[UNIT_FORWARD]);
    made = ones[UNIT_FORWARD];
    ok = ok && check_operation(t, UNIT_INPUT, &made, &zeros[UNIT_INPUT], &ones[UNIT_INPUT]);
    if (ok)
        keep_results(t, &zeros[UNIT_INPUT]);
    made.of[OPERAND_extra] = ones[UNIT_INPUT].of[OPERAND_extra];
    ok = ok && (!skips_dx || check_without_dx(t, &zeros[UNIT_INPUT]));
    if (ok && t->of->runs(t, UNIT_WEIGHT))
        ok = check_operation(t, UNIT_WEIGHT, &made, &zeros[UNIT_WEIGHT], &ones[UNIT_WEIGHT]) &&
             check_addition(t, &zeros[UNIT_WEIGHT]);
    for (int op = 0; op < UNIT_OPERATIONS; op++) {
        free_results(&zeros[op]);
        free_results(&ones[op]);
    }
    unit_trial_close(t);
    return ok;
}

bool unit_check(const struct rt_model *m, const struct rt_layer *l, const struct unit_memory *memory, char *why,
                size_t nwhy) {
    struct trial t = {.of = &subject_unit, .m = m, .l = l, .memory = memory, .why = why, .nwhy = nwhy};
    return unit_libraries_loaded(l->unit, why, nwhy) && trial_check(&t, l->unit->extra > 0);
}

static bool same_parameters(const struct rt_unit *a, const struct rt_unit *b) {
    bool same = a->nparameters == b->nparameters;
    for (int i = 0; same && i < a->nparameters; i++) {
        const struct rt_unit_parameter *p = &a->parameter[i], *q = &b->parameter[i];
        same = p->ndims == q->ndims && p->dim[0] == q->dim[0] && p->dim[1] == q->dim[1] && p->frozen == q->frozen;
    }
    return same;
}

static bool same_inputs(const struct rt_unit *a, const struct rt_unit *b) {
    bool same = a->ninputs == b->ninputs;
    for (int i = 0; same && i < a->ninputs; i++)
        same = a->input[i] == b->input[i];
    return same;
}

bool unit_same(const struct rt_layer *a, const struct rt_layer *b) {
    return a->unit && b->unit && a->unit->code->run[UNIT_FORWARD] == b->unit->code->run[UNIT_FORWARD] &&
           a->unit->code->config == b->unit->code->config && a->rows == b->rows && a->in == b->in && a->out == b->out &&
           rows_out(a) == rows_out(b) && same_parameters(a->unit, b->unit) && same_inputs(a->unit, b->unit) &&
           a->unit->stash == b->unit->stash && a->unit->extra == b->unit->extra && a->unit->keeps == b->unit->keeps &&
           a->unit->side == b->unit->side && memcmp(a->unit->work, b->unit->work, sizeof a->unit->work) == 0;
}

bool units_check(const struct rt_program *p, const struct unit_memory *memory, char *why, size_t nwhy) {
    enum { MOST = 256 }; /* different units; any further one is checked again for each layer */
    const struct rt_layer *done[MOST];
    int n = 0;
    for (int s = 0; s < p->stages; s++)
        for (const struct rt_layer *l = p->stage[s].layer; l && l < p->stage[s].layer + p->stage[s].nlayers; l++) {
            int k = 0;
            while (l->unit && k < n && !unit_same(done[k], l))
                k++;
            if (!l->unit || k < n)
                continue;
            if (!unit_check(p->model, l, memory, why, nwhy))
                return false;
            if (n < MOST)
                done[n++] = l;
        }
    return true;
}

/* ---- gradients against differences ---- */

static double product_of(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Runs a forward with n numbers of an operand, from `at` on, moved by step times direction. Sets *sum to the sum of y
 * times dy. Returns false on error. */
static bool forward_moved(struct trial *t, enum operand operand, const float *at, const float *direction, int64_t n,
                          double step, double *sum) {
    float *value = (float *)(void *)t->value[operand] + (at - (const float *)(const void *)t->value[operand]);
    float *kept = malloc((size_t)n * sizeof *kept);
    if (!kept)
        return false;
    memcpy(kept, value, (size_t)n * sizeof *kept);
    for (int64_t i = 0; i < n; i++)
        value[i] = (float)((double)kept[i] + step * (double)direction[i]);
    bool ok = trial_run(t, UNIT_FORWARD, ZEROS);
    t->memory->get(&t->room[OPERAND_y], t->now);
    *sum = product_of((const float *)(const void *)t->now, (const float *)(const void *)t->value[OPERAND_dy],
                      t->room[OPERAND_y].bytes / 4);
    memcpy(value, kept, (size_t)n * sizeof *kept);
    free(kept);
    return ok;
}

/* Returns how far off the sum of y dy is, after a forward, if each y is off by an fp32 epsilon, independently. */
static double rounding_of_sum(const struct trial *t) {
    const float *y = (const float *)(const void *)t->now, *dy = (const float *)(const void *)t->value[OPERAND_dy];
    double squares = 0;
    for (int64_t i = 0; i < t->room[OPERAND_y].bytes / 4; i++)
        squares += (double)y[i] * (double)dy[i] * (double)y[i] * (double)dy[i];
    return FLT_EPSILON * sqrt(squares);
}

/* Numbers of an operand, and a direction in which they are moved. */
struct line {
    enum operand operand;
    const float *at, *direction;
    int64_t n;
};

/* Sets the slope's difference of forwards along a line. The differences of two steps are extrapolated to a step of 0
 * (Richardson). The error of the result is at most 3 / step times the error of a sum. Sets *smooth to whether the two
 * steps' slopes agree. */
static bool measure_slope(struct trial *t, const struct line *line, double step, struct unit_slope *slope,
                          bool *smooth) {
    double sum[4];
    bool ok = true;
    for (int k = 0; ok && k < 4; k++)
        ok = forward_moved(t, line->operand, line->at, line->direction, line->n,
                           (k % 2 ? -1 : 1) * (k < 2 ? step : step / 2), &sum[k]);
    if (!ok)
        return false;
    double wide = (sum[0] - sum[1]) / (2 * step), narrow = (sum[2] - sum[3]) / step;
    slope->difference = (4 * narrow - wide) / 3;
    slope->rounding = 3 / step * rounding_of_sum(t);
    *smooth = fabs(narrow - wide) <= 1e-3 * slope->scale + slope->rounding;
    return true;
}

/* Compares the gradient of n numbers of an operand with differences of forwards. The direction has the gradient's
 * signs, so that the slope is steep, except that some are flipped. A stage may have kinks, such as a route's choices,
 * so its steps are smaller, and shrink while the slopes of two steps disagree. */
static bool compare_slope(struct trial *t, enum operand operand, int64_t from, int64_t n, const float *gradient,
                          struct unit_slope *slope) {
    float *direction = malloc((size_t)n * sizeof *direction);
    const struct line line = {operand, (const float *)(const void *)t->value[operand] + from, direction, n};
    bool ok = direction, smooth = false;
    slope->scale = 0;
    for (int64_t i = 0; ok && i < n; i++) {
        bool turned = i % 4 == 0 && host_hash(1, (uint64_t)i) & 1;
        direction[i] = (gradient[i] < 0) != turned ? -1 : 1;
        slope->scale += fabs((double)gradient[i]);
    }
    slope->gradient = ok ? product_of(gradient, direction, n) : 0;
    ok = ok && measure_slope(t, &line, t->stage ? 1.0 / 1024 : 1.0 / 128, slope, &smooth);
    for (double step = 1.0 / 8192; ok && t->stage && !smooth && step > 1e-6; step /= 8)
        ok = measure_slope(t, &line, step, slope, &smooth);
    free(direction);
    return ok;
}

/* Runs a forward and both gradients, and keeps their results as the trial's values. */
static bool run_operations(struct trial *t) {
    bool ok = true;
    for (int op = 0; ok && op < UNIT_OPERATIONS; op++) {
        struct results results = {{NULL}};
        if (!t->of->runs(t, op))
            continue;
        ok = trial_run(t, op, ZEROS) && copy_results(t, op, &results);
        if (ok)
            keep_results(t, &results);
        free_results(&results);
    }
    return ok;
}

/* Compares the gradients of a layer's parameters, the first of which is number `from` of the trial's weights. */
static bool compare_parameters(struct trial *t, const struct rt_layer *l, int64_t from, struct unit_slope *slope,
                               int *n) {
    const float *dw = (const float *)(const void *)t->value[OPERAND_dw];
    const struct rt_parameters trained = parameters_of(t->m, l, shared_table(t->m, l) > 0);
    bool ok = true;
    for (int i = 0; ok && i < trained.n; from += trained.at[i++].count) {
        slope[*n].name = trained.at[i].name;
        slope[*n].layer = l->index;
        ok = compare_slope(t, OPERAND_w, from, trained.at[i].count, dw + from, &slope[(*n)++]);
    }
    return ok;
}

/* Compares the gradients of a stage's parameters, and of the table that follows them. */
static bool compare_stage(struct trial *t, struct unit_slope *slope, int *n) {
    const float *dw = (const float *)(const void *)t->value[OPERAND_dw];
    bool ok = true;
    for (const struct rt_layer *l = t->stage->layer; ok && l < t->stage->layer + t->stage->nlayers; l++) {
        const int64_t table = shared_table(t->m, l), from = t->stage->weight / 4;
        ok = !has_weight_gradient(l) || compare_parameters(t, l, l->param / 4, slope, n);
        if (!ok || table == 0)
            continue;
        slope[*n].name = "token";
        slope[*n].layer = l->index;
        ok = compare_slope(t, OPERAND_w, from, table, dw + from, &slope[(*n)++]);
    }
    return ok;
}

int trial_slopes(struct trial *t, struct unit_slope *slope) {
    int n = 0;
    t->of->name(t, t->why, t->nwhy);
    bool ok = unit_trial_open(t) && run_operations(t);
    if (ok && t->value[OPERAND_dx]) {
        const float *dx = (const float *)(const void *)t->value[OPERAND_dx];
        slope[n].name = "x";
        ok = compare_slope(t, OPERAND_x, 0, t->room[OPERAND_x].bytes / 4, dx, &slope[n++]);
    }
    ok = ok && (t->stage ? compare_stage(t, slope, &n) : compare_parameters(t, t->l, 0, slope, &n));
    unit_trial_close(t);
    return ok ? n : -1;
}

int unit_slopes(const struct rt_model *m, const struct rt_layer *l, const struct unit_memory *memory,
                struct unit_slope *slope, char *why, size_t nwhy) {
    struct trial t = {.of = &subject_unit, .m = m, .l = l, .memory = memory, .why = why, .nwhy = nwhy};
    return trial_slopes(&t, slope);
}
