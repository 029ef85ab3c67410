/* The record of variations. Each points to the one before it. So when a search drops a variation of a compile, the
 * record of that variation's own trials is dropped with it, and its memory may be freed. */
#include "plan.h"
#include <math.h>
#include <string.h>

void tried_add(struct compile *c, const char *search, const char *variation, double makespan, const char *why) {
    struct tried *tried = NEW(struct tried, 1);
    *tried = (struct tried){c->tried, search, variation, makespan, why, false};
    c->tried = tried;
}

void tried_ships(struct compile *c, const char *variation) {
    struct tried *tried = c->tried;
    while (strcmp(tried->variation, variation) != 0)
        tried = tried->before;
    tried->ships = true;
}

static void put_tried(struct text *out, const struct tried *tried) {
    if (tried->before)
        put_tried(out, tried->before);
    put(out, "%s: %s: ", tried->search, tried->variation);
    if (tried->why)
        put_word(out, tried->why);
    else if (!isnan(tried->makespan))
        put(out, "takes %.10g", tried->makespan);
    else
        put_word(out, "fits");
    put_word(out, tried->ships ? "; ships\n" : "\n");
}

void tried_put(struct text *out, const struct compile *c) {
    if (c->tried)
        put_tried(out, c->tried);
}
