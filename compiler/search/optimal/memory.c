/* Memory in bytes: the room that a rank has for what microbatches keep, and whether an order's plan fits. */
#include "memory.h"
#include "ir/program.h"
#include "passes/passes.h"
#include <limits.h>
#include <math.h>

bool counts_bytes(const struct spec *sp) {
    bool capped = false;
    for (int r = 0; sp->limits.cap && r < sp->workers; r++)
        capped |= sp->limits.cap[r] < INT_MAX;
    return !capped && sp->model && isfinite(sp->machine.memory) && !sp->choices.offload;
}

/* Compiles an order up to its program, without a limit to memory. */
static struct program *program_of_order(const struct compile *c, struct lists lists) {
    struct compile with = vary_order(c, lists, false);
    compile_until(&with, TRIED_ROOM | TRIED_PREFETCH | OFFSETS);
    return with.program;
}

int64_t *bytes_that_stay(const struct compile *c, struct lists lists) {
    const struct program *p = program_of_order(c, lists);
    int64_t *stay = NEW(int64_t, c->spec->workers);
    for (int r = 0; r < c->spec->workers; r++)
        stay[r] = p->rank[r].base;
    return stay;
}

int64_t *room_in_bytes(const struct compile *c, struct lists lists) {
    int64_t *room = bytes_that_stay(c, lists);
    for (int r = 0; r < c->spec->workers; r++) {
        double left = fmin(c->spec->machine.memory, 0x1p52) - (double)room[r];
        room[r] = left > 0 ? (int64_t)left : 0;
    }
    return room;
}

int64_t excess_of_plan(const struct compile *c, struct lists lists) {
    const struct program *p = program_of_order(c, lists);
    double most = 0;
    for (int r = 0; r < c->spec->workers; r++)
        most = fmax(most, (double)p->rank[r].least - c->spec->machine.memory);
    return (int64_t)ceil(most);
}
