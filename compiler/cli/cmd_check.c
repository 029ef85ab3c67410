/* `pianola check`: compiles, which includes the proof. */
#include "base/put_json.h"
#include "command.h"
#include "compile.h"

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
    if (c.spec->model && !is_costs(c.spec))
        printf(json ? ", \"parameters\": %lld" : ", %lld parameters", parameters);
    if (json)
        print_claims(NULL);
    printf(json ? "}\n" : ", machine model %s\n", MACHINE_MODEL);
    return 0;
}
