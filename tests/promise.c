/* What must be in the homes' weights after a step, from the job graph alone: every job's values follow from those of
 * the jobs it depends on, and a stage's gradient is the sum over its jobs. */
#include "symbols.h"

static const uint8_t role_read[NKINDS] = {[K_act] = ROLE_x,       [K_grad] = ROLE_dy,       [K_stash] = ROLE_stash,
                                          [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};
static const uint8_t role_made[NKINDS] = {[K_act] = ROLE_y,       [K_grad] = ROLE_dx,       [K_stash] = ROLE_stash,
                                          [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};

static void promise_job(struct promise *p, uint64_t (*made)[NROLES], bool *known, int32_t j) {
    const struct job *job = &p->sp->job[j];
    bool unembeds = p->sp->tied && job->s == p->sp->unembedding, embeds = p->sp->tied && job->s == 0;
    uint64_t in[NROLES] = {[ROLE_w] = job->d == OP_W ? 0 : mix(weight_value(job->s))};
    if ((unembeds && job->d != OP_W) || (embeds && (job->d == OP_F || job->d == OP_R)))
        in[ROLE_v] = mix(weight_value(p->sp->stages));
    for (int32_t e = p->g->pred_at[j]; e < p->g->pred_at[j + 1]; e++) {
        int32_t from = p->g->pred[e];
        int kind = edge_kind(&p->sp->job[from], job);
        if (!known[from])
            promise_job(p, made, known, from);
        if (kind != K_token)
            in[role_read[kind]] += mix(made[from][role_made[kind]]);
    }
    job_values(job->d, job->s, job->b, in, made[j]);
    known[j] = true;
    if (job->d == OP_B || job->d == OP_W) {
        p->sum[job->s] += made[j][ROLE_dw];
        p->parts[job->s]++;
        if (unembeds || embeds) {
            p->sum[p->sp->stages] += made[j][ROLE_dv];
            p->parts[p->sp->stages]++;
        }
    }
}

struct promise promise_of(const struct spec *sp, const struct graph *g) {
    struct promise p = {sp, g, NEW(uint64_t, sp->stages + 1), NEW(int, sp->stages + 1)};
    uint64_t(*made)[NROLES] = alloc(sizeof *made * (size_t)sp->njobs);
    bool *known = NEW(bool, sp->njobs);
    for (int32_t j = 0; j < sp->njobs; j++)
        if (!known[j])
            promise_job(&p, made, known, j);
    return p;
}
