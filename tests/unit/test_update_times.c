/* Times of the last stage's updates, by the papers' arithmetic: in units of a stage's F, B is 2; links and updates are
 * free. Step lengths vary, so that a program repeats its period once or a few times, or has none. */
#include "cli/pipeline.h"
#include <criterion/criterion.h>

static struct compile compiled(const char *schedule, int batches) {
    const char **set = NEW(const char *, 1);
    struct compile c = {.args = {.schedule = schedule, .set = set, .nset = 1}};
    set[0] = format("batches=%d", batches);
    compile_all(&c, "");
    return c;
}

/* Expects update k of n to end at first + k * every, in each step. */
static void expect_times(const char *schedule, int batches, int64_t n, double first, double every) {
    struct compile c = compiled(schedule, batches);
    struct update_times times = update_times(c.program, c.timeline);
    cr_assert_eq(times.n, n, "%s: %lld updates", schedule, (long long)times.n);
    for (int64_t k = 0; k < n; k++)
        cr_assert_float_eq(times.at[k], first + (double)k * every, 1e-6, "%s, %d batches: update %lld ends at %g",
                           schedule, batches, (long long)k, times.at[k]);
    free_all();
}

/* Microbatch b reaches the last of 4 stages at 3 + 3 b, whatever weights it reads (Narayanan 2019, figure 4). */
Test(update_times, pipelines_without_flushes) {
    for (int batches = 12; batches <= 480; batches += 36) {
        expect_times("schedules/pipedream.lua", batches, batches, 6, 3);
        expect_times("schedules/pipedream_vertical.lua", batches, batches, 6, 3);
        expect_times("schedules/pipedream_2bw.lua", batches, batches / 4, 15, 12);
    }
}

/* One microbatch after another through 4 stages takes 12 each, and the last stage is done after 6. Four replicas run
 * one each, and then all update. */
Test(update_times, without_a_pipeline) {
    for (int batches = 4; batches <= 404; batches += 40) {
        expect_times("schedules/model_parallel.lua", batches, batches, 6, 12);
        expect_times("schedules/bsp.lua", batches, batches / 4, 6, 12);
    }
}

/* The update follows the last stage's last backward; the step ends with the first stage, at (8 + 3) 3 (Huang 2019,
 * section 2.3). */
Test(update_times, a_step_of_one_update) {
    struct compile c = compiled("schedules/1f1b.lua", 8);
    struct update_times times = update_times(c.program, c.timeline);
    cr_assert_eq(times.n, 1);
    cr_assert_float_eq(times.at[0], 27, 1e-9);
    cr_assert_float_eq(times.step, 33, 1e-9);
    c = compiled("schedules/pipedream.lua", 480);
    times = update_times(c.program, c.timeline);
    cr_assert(c.program->repeats > 1);
    cr_assert_float_eq(times.step, 3 * (480 + 3), 1e-6);
}
