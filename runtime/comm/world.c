/* Errors of ranks. */
#include "world.h"
#include "store/fault.h"
#include "watch.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void rank_error(const struct rt_program *self, const char *why) {
    static pthread_mutex_t told = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&told); /* if ranks are threads, only one reports */
    if (!self || self->msg)
        fprintf(stderr, "%spianola: error: %s\n", isatty(STDERR_FILENO) ? "\n" : "", why);
    else
        fprintf(stderr, "pianola: rank %d of %s: error: %s\n", self->rank->number, self->name, why);
    fault_tell(why);
    fflush(NULL);
    _Exit(2); /* not exit: MPI's own handlers would wait for the other ranks */
}

void world_verdict(const struct world *world, bool ok, const char *why) {
    struct verdict {
        bool ok;
        char why[1000];
    } mine = {.ok = ok}, *all = malloc(sizeof mine * (size_t)world->size);
    if (!all)
        rank_error(world->self, "no memory");
    if (!ok)
        snprintf(mine.why, sizeof mine.why, "%s", why);
    world->all(world->link, &mine, all, sizeof mine);
    int bad = 0;
    while (bad < world->size && all[bad].ok)
        bad++;
    if (bad < world->size) {
        if (world->rank == 0) {
            fprintf(stderr, "pianola: error: %s\n", all[bad].why);
            fault_tell(all[bad].why);
        }
        watch_end();
        world->close(world->link);
        fflush(NULL);
        _Exit(2); /* not exit: CUDA's handlers could wait for a stream that waits for another rank */
    }
    free(all);
}
