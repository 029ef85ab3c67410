/* `pianola check`: compiles, which includes the proof. */
#include "base/put_json.h"
#include "command.h"
#include "compile.h"

/* Of the model: what every member of a team has whole counts once, with the first. Sets behind the stages
 * are stages of their own. */
static long long parameters_of_model(const struct compile *c) {
    const struct spec *sp = c->spec;
    long long n = 0;
    for (int s = 0; sp->model && s < sp->stages + sp->names.sets; s++)
        for (const struct rt_layer *l = c->stage[s].rt.layer; l < c->stage[s].rt.layer + c->stage[s].rt.nlayers; l++) {
            struct rt_parameters all = parameters_of(&sp->model->rt, l, sp->tied && s < sp->stages);
            for (int i = 0; i < all.n && l->set == SET_OWN; i++)
                n += all.at[i].split || !sp->names.member || sp->names.member[s].place <= 0 ? all.at[i].count : 0;
        }
    return n;
}

int cmd_check(const struct settings *settings) {
    struct compile c = {.args = settings->args};
    compile_all(&c, settings->dump);
    bool json = settings->json;
    long long n = 0;
    for (int k = 0; k < c.program->workers; k++)
        n += c.program->rank[k].nins;
    printf(json ? "{\"schema\": 1, \"schedule\": %s" : "%s", json ? quoted(c.spec->name) : c.spec->name);
    printf(json ? ", \"proved\": true, \"jobs\": %d, \"instructions\": %lld, \"workers\": %d"
                : ": proved: %d jobs, %lld instructions on %d ranks",
           c.spec->njobs, n, c.spec->workers);
    if (c.spec->model && !is_costs(c.spec))
        printf(json ? ", \"parameters\": %lld" : ", %lld parameters", parameters_of_model(&c));
    if (json)
        print_claims(NULL);
    printf(json ? "}\n" : ", machine model %s\n", MACHINE_MODEL);
    return 0;
}
