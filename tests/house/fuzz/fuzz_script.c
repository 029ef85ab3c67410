/* Schedules: the front end runs the bytes as a script, and its result goes as far as a schedule does.
 *
 * A script comes from a file, here from one in memory without a name. The sandbox's limits are tighter in this build
 * (script.h). */
#include "fuzz.h"
#include <sys/mman.h>
#include <unistd.h>

static int file;
static char path[64];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    file = memfd_create("schedule", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return file < 0;
}

static void write_script(const uint8_t *data, size_t size) {
    if (ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
}

static void compile(void *unused) {
    (void)unused;
    struct script_args args = {.schedule = path};
    struct spec *sp = script_load(&args);
    struct costs *costs = costs_make(sp);
    struct graph *g = graph_build(costs);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    mem_of(sp, p);
    lanes_sync(p);
    if (verify(costs, g, p, CLAIM_ALL))
        abort();
    report_of(sp, costs, g, p, sim_of(sp, costs, p));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    write_script(data, size);
    lives(compile, NULL);
    free_all();
    return 0;
}
