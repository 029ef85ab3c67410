/* `pianola check-bound`: proves a lower bound on the makespan from its certificate alone. */
#include "base/put_json.h"
#include "base/read_file.h"
#include "command.h"
#include "verify/bound.h"
#include <string.h>

/* schedules/1f1b.lua -D workers=4 as 1f1b. */
static const char *name_in(const char *schedule) {
    size_t n = strcspn(schedule, " ");
    const char *at = schedule;
    for (const char *s = schedule; s < schedule + n; s++)
        if (*s == '/' && s + 1 < schedule + n)
            at = s + 1;
    n -= (size_t)(at - schedule);
    if (n > 4 && strncmp(at + n - 4, ".lua", 4) == 0)
        n -= 4;
    return format("%.*s", (int)n, at);
}

static void print_json(const struct bound *b, const char *why) {
    char tick[32];
    printf("{\"schema\": 1, \"accepted\": %s, \"limit\": %lld, \"tick\": %s, \"proof\": \"%s\"", why ? "false" : "true",
           (long long)b->limit, number(b->tick, tick), bound_proof_word[b->proof]);
    if (b->proof == BOUND_COVER)
        printf(", \"states\": %d", (int)b->cover.n);
    if (why)
        printf(", \"why\": %s", quoted(why));
    printf("}\n");
}

static void print_verdict(const struct bound *b, const char *why, const char *by) {
    char tick[32], time[32];
    const char *name = name_in(b->schedule);
    if (why)
        printf("%s: refuted: that no schedule ends before %lld\n%s\n", name, (long long)b->limit, why);
    else if (b->tick == 1)
        printf("%s: no schedule ends before %lld (%s)\n", name, (long long)b->limit, by);
    else
        printf("%s: no schedule ends before %s (%lld ticks of %s; %s)\n", name,
               number((double)b->limit * b->tick, time), (long long)b->limit, number(b->tick, tick), by);
}

int cmd_check_bound(const struct settings *settings) {
    const char *path = settings->file[0], *by;
    struct bound *b = read_bound(path, file_text(path));
    const char *why = check_bound(b, &by);
    if (settings->json)
        print_json(b, why);
    else
        print_verdict(b, why, by);
    return why != NULL;
}
