/* `pianola check`: compiles, which includes the proof. */
#include "base/put_json.h"
#include "command.h"
#include "compile.h"
#include <math.h>

/* Of the ranks with most. No time: on some rank it does not fit into memory. */
static void print_ahead(const struct report *report, const struct measure *measure, int i, bool json) {
    double exposed = 0;
    int64_t peak = 0, beyond = 0;
    char time[32], bytes[32];
    for (int r = 0; r < report->workers; r++) {
        const struct ahead *ahead = &report->rank[r].weights->ahead[i];
        exposed = exposed < ahead->exposed || isnan(ahead->exposed) ? ahead->exposed : exposed;
        peak = ahead->peak > peak ? ahead->peak : peak;
        beyond = ahead->beyond > beyond ? ahead->beyond : beyond;
    }
    const char *name = i ? "two_ahead" : "one_ahead";
    if (json)
        printf(", \"%s\": {\"exposed_weights\": %s, \"peak_bytes\": %lld, \"bytes_beyond_memory\": %lld}", name,
               number_or_null(exposed, time), (long long)peak, (long long)beyond);
    else if (beyond > 0)
        printf("; %s ahead would need %s more than there is", i ? "two" : "one", bytes_text(beyond, bytes));
    else
        printf("; %s ahead %s %s, in %s", i ? "two" : "one", time_text(exposed, measure, time), measure->name,
               bytes_text(peak, bytes));
}

/* What comes in of weights, and what ranks wait for it, with a fixed prefetch too. */
static void print_weights(const struct report *report, bool json) {
    struct measure measure = measure_of(report->makespan, report->unit, true);
    int64_t received = 0, bound = 0, peak = 0;
    double exposed = 0;
    int gathers = 0, apart = 0;
    char a[32], b[32];
    if (!report->rank[0].weights)
        return;
    for (int r = 0; r < report->workers; r++) {
        const struct rank_report *rank = &report->rank[r];
        received += rank->weights->received;
        gathers += rank->gathers;
        apart += rank->gathers_apart;
        bound += rank->weights->bound;
        exposed = rank->exposed[EXPOSED_WEIGHTS] > exposed ? rank->exposed[EXPOSED_WEIGHTS] : exposed;
        peak = rank->peak_bytes > peak ? rank->peak_bytes : peak;
    }
    if (json)
        printf(", \"weights_bytes\": %lld, \"weights_bound\": %lld, \"exposed_weights\": %s, \"peak_bytes\": %lld, "
               "\"gathers\": %d, \"gathers_apart\": %d",
               (long long)received, (long long)bound, number_or_null(exposed, a), (long long)peak, gathers, apart);
    else {
        printf("weights: %s come in, ", bytes_text(received, a));
        printf(received == bound ? "the least" : "at least %s", bytes_text(bound, b));
        printf("; a rank waits %s %s for them at most, in %s", time_text(exposed, &measure, a), measure.name,
               bytes_text(peak, b));
        if (apart > 0) /* the owners of a stage's shards need it at different places */
            printf("; %d of %d gathers go shard by shard", apart, gathers);
    }
    for (int i = 0; i < 2 && report->rank[0].weights->tried; i++)
        print_ahead(report, &measure, i, json);
    printf(json ? "" : "\n");
}

int cmd_check(const struct settings *settings) {
    struct compile c = {.args = settings->args};
    compile_all(&c, settings->dump);
    bool json = settings->json;
    long long n = 0, parameters = 0;
    for (int k = 0; k < c.program->workers; k++)
        n += c.program->rank[k].nins;
    for (int s = 0; s < c.spec->stages + c.spec->tied; s++)
        for (int l = 0; l < c.stage[s].rt.nlayers; l++)
            parameters += c.stage[s].rt.layer[l].nparam;
    printf(json ? "{\"schema\": 1, \"schedule\": %s" : "%s", json ? quoted(c.spec->name) : c.spec->name);
    printf(json ? ", \"proved\": true, \"jobs\": %d, \"instructions\": %lld, \"workers\": %d"
                : ": proved: %d jobs, %lld instructions on %d ranks",
           c.spec->njobs, n, c.spec->workers);
    if (c.spec->model)
        printf(json ? ", \"parameters\": %lld" : ", %lld parameters", parameters);
    if (json) {
        print_claims(NULL);
        print_weights(c.report, true);
    }
    printf(json ? "}\n" : ", machine model %s\n", MACHINE_MODEL);
    if (!json)
        print_weights(c.report, false);
    return 0;
}
