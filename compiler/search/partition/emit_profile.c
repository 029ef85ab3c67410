#include "partition.h"
#include <math.h>

/* Rounds to nanoseconds, the resolution of clocks. */
static double in_nanoseconds(double seconds) { return round(1e9 * seconds); }

void emit_graph(struct text *out, const struct profile *profile) {
    char buf[32];
    for (int i = 0; i < profile->nlayers; i++) {
        const struct profiled *layer = &profile->layer[i];
        put(out, "node%d -- %s", i + 1, layer->what);
        put(out, " -- forward_compute_time=%s", number(in_nanoseconds(layer->forward) / 1e6, buf));
        put(out, ", backward_compute_time=%s", number(in_nanoseconds(layer->backward) / 1e6, buf));
        put(out, ", activation_size=%s", number(layer->output, buf));
        put(out, ", parameter_size=%s\n", number(layer->weights, buf));
    }
    for (int i = 0; i < profile->nedges; i++)
        put(out, "\tnode%d -- node%d\n", profile->edge[i].from + 1, profile->edge[i].to + 1);
}

void emit_costs(struct text *out, const struct profile *profile, const char *measured) {
    char buf[32];
    put(out,
        "-- %s\n"
        "-- A cost model, of one microbatch: pianola partition --model FILE.lua --workers 4 --bandwidth 1e9\n"
        "local p = params { cut = {} } -- positions in costs at which stages begin; none: evenly\n\n"
        "return model {\n  costs = {\n",
        tame(measured));
    for (int i = 0; i < profile->nlayers; i++) {
        const struct profiled *layer = &profile->layer[i];
        put(out, "    { name = \"%s %s\"", layer->id, layer->what);
        put(out, ", forward = %s", number(in_nanoseconds(layer->forward) / 1e9, buf));
        put(out, ", backward = %s", number(in_nanoseconds(layer->backward) / 1e9, buf));
        put(out, ", activation = %s", number(layer->output, buf));
        put(out, ", stash = %s", number(layer->kept, buf));
        put(out, ", weights = %s },\n", number(layer->weights, buf));
    }
    put(out, "  },\n  cut = #p.cut > 0 and p.cut or nil,\n}\n");
}
