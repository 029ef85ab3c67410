#include "units.h"
#include "passes/layers.h"

static const char *kind_of(const struct spec *sp, const struct stage *st, int s) {
    if (is_costs(sp))
        return sp->model->cost[s].name;
    return st->rt.nlayers > 1 ? "residual" : layer_name[st->rt.layer[0].kind];
}

struct profile *profile_of(const struct costs *costs, const char *name) {
    const struct spec *sp = costs->spec;
    const struct stage *st = costs->stage;
    struct profile *profile = NEW(struct profile, 1);
    *profile = (struct profile){name, sp->stages, sp->stages - 1, NEW(struct profiled, sp->stages),
                                NEW(struct edge, sp->stages)};
    for (int s = 0; s < sp->stages; s++) {
        profile->layer[s] = (struct profiled){
            .id = is_costs(sp) ? sp->model->cost[s].name : format("layers[%d]", s + 1),
            .what = kind_of(sp, &st[s], s),
            .forward = st[s].cost[OP_F],
            .backward = st[s].cost[OP_B],
            .output = (double)st[s].bytes[K_act],
            .kept = (double)st[s].bytes[K_stash],
            .weights = (double)st[s].bytes[K_weight],
        };
        profile->edge[s] = (struct edge){s, s + 1};
    }
    if (sp->names.tables > 0)
        profile->layer[0].weights += (double)st[sp->stages].bytes[K_weight];
    return profile;
}
