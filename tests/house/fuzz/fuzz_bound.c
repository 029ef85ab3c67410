/* Certificates of lower bounds: a readable one gets a verdict, and a refuted one a reason. */
#include "fuzz.h"
#include "search/bound/bound.h"

struct reading {
    const char *src, *why, *by;
    struct bound *bound;
};

static void read_it(void *with) {
    struct reading *r = with;
    r->bound = read_bound("fuzzed.bound", r->src);
}

static void prove(void *with) {
    struct reading *r = with;
    r->why = check_bound(r->bound, &r->by);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *src = string_of(data, size);
    struct reading reading = {.src = src};
    if (src && lives(read_it, &reading) && lives(prove, &reading) && (reading.why ? !*reading.why : !*reading.by))
        abort();
    free_all();
    free(src);
    return 0;
}
