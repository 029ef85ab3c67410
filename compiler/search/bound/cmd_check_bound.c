/* `pianola check-bound`: proves a lower bound on the makespan from its certificate, and that it holds for a script. */
#include "base/put_json.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "cli/pipeline.h"
#include "bound.h"
#include <string.h>

/* Returns the text as a name: schedules/1f1b.lua -D workers=4 becomes 1f1b. */
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

static void print_bound_json(const struct bound *b, const struct spec *sp, const char *why) {
    char tick[32];
    printf("{\"schema\": 1, ");
    if (sp)
        printf("\"schedule\": %s, ", quoted(sp->name));
    printf("\"accepted\": %s, \"limit\": %lld, \"tick\": %s, \"proof\": \"%s\"", why ? "false" : "true",
           (long long)b->limit, number(b->tick, tick), bound_proof_word[b->proof]);
    if (b->spans)
        printf(", \"objective\": \"span\"");
    if (b->proof == BOUND_COVER)
        printf(", \"states\": %d", (int)b->cover.n);
    if (why)
        printf(", \"why\": %s", quoted(why));
    printf("}\n");
}

/* Prints the verdict. whose: the schedules that the bound holds for, if the script is known. A cover uses whole ticks,
 * so it proves less about spans: a rank that begins between ticks may have a span up to a tick shorter. */
static void print_verdict(const struct bound *b, const char *name, const char *whose, const char *why, const char *by) {
    char tick[32], time[32];
    const char *claim = b->spans ? format("no schedule%s%s has spans below", whose,
                                          b->proof == BOUND_COVER ? " that starts its jobs at whole ticks" : "")
                                 : format("no schedule%s ends before", whose);
    if (why)
        printf("%s: refuted: that %s %lld\n%s\n", name, claim, (long long)b->limit, why);
    else if (b->tick == 1)
        printf("%s: %s %lld (%s)\n", name, claim, (long long)b->limit, by);
    else
        printf("%s: %s %s (%lld ticks of %s; %s)\n", name, claim, number((double)b->limit * b->tick, time),
               (long long)b->limit, number(b->tick, tick), by);
}

bool is_accepted(const char *certificate) {
    const char *by;
    return check_bound(read_bound("certificate", certificate), &by) == NULL;
}

/* Proves the bound and, given a script, that it holds for the script's schedules. */
int cmd_check_bound(const struct settings *settings) {
    const char *path = settings->file[0], *by, *why = NULL;
    struct compile c = {.args = settings->args};
    if (settings->nfiles > 2)
        die("`check-bound` takes one certificate and one schedule, but got '%s' too", settings->file[2]);
    struct bound *b = read_bound(path, file_text(path));
    if (settings->nfiles > 1) {
        c.args.schedule = settings->file[1];
        compile_until(&c, GRAPH);
        why = check_script(b, &c);
    } else if (settings->args.nset || settings->args.model || settings->args.cluster || settings->args.recompute)
        die("`check-bound` takes -D, --model, --cluster and --recompute only with a schedule: add one after %s", path);
    why = why ? why : check_bound(b, &by);
    if (settings->json)
        print_bound_json(b, c.spec, why);
    else if (c.spec)
        print_verdict(b, c.spec->name, format(" of %s", command_line(&c.args)), why, by);
    else
        print_verdict(b, name_in(b->schedule), "", why, by);
    return why != NULL;
}
