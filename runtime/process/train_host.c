/* All ranks of a program on the host. */
#include "comm/world.h"
#include "comm_local.h"
#include "train.h"
#include <stdlib.h>

char **host_train(const struct rt_run *run) {
    const struct rt_program *p = run->program;
    struct local *local = local_open(p);
    const struct world messages = {.transport = &host_local, .messages = local, .prepare = local_prepare};
    if (!local)
        rank_error(NULL, "no memory for messages");
    char **arena = train_threads(run, &messages, NULL);
    if (run->result)
        run->result->handoff = local_handoff(local);
    local_close(local);
    return arena;
}

void host_free(const struct rt_program *p, char **arena) {
    for (int i = 0; arena && i < NMEMORIES * p->workers; i++)
        free(arena[i]);
    free(arena);
}
