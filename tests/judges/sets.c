/* Finds the sets of weights that jobs use, from compiler/text-form.md alone: a stage's own set, a table that stage 0
 * and the unembedding's stage share member by member, and weights that the members of a team share. */
#include "symbols.h"

/* Returns the set whose name has this stage's and member's number, among those that follow the stages' sets, or -1. */
static int behind(const struct promise *want, int stage, int place) {
    const struct names *names = &want->sp->names;
    for (int set = sets_of(want) - 1; set >= want->sp->stages; set--)
        if (names->member[set].stage == stage && names->member[set].place == place)
            return set;
    return -1;
}

static int table_of(const struct promise *want, int s) {
    const struct spec *sp = want->sp;
    const struct member *m = sp->names.member;
    if (!sp->names.tables ||
        (m ? m[s].stage && m[s].stage != m[want->costs->unembedding].stage : s && s != want->costs->unembedding))
        return -1;
    return m ? behind(want, sp->names.stages, m[s].place) : sp->stages;
}

bool is_without_weights(const struct promise *want, int set) {
    if (want->costs->bare)
        return want->costs->bare[set];
    return false;
}

int set_used(const struct promise *want, int op, int s, int role) {
    const struct member *m = want->sp->names.member;
    bool forward = op == OP_F || op == OP_R, embeds = m ? m[s].stage == 0 : s == 0;
    int unembedding = want->costs->unembedding;
    bool unembeds = m ? m[s].stage == m[unembedding].stage : s == unembedding, adds = op == OP_B || op == OP_W;
    int set = role == ROLE_w || role == ROLE_dw   ? s
              : role == ROLE_v || role == ROLE_dv ? table_of(want, s)
              : want->sp->names.shared            ? (m[s].place < 0 ? -1 : behind(want, m[s].stage, -1))
                                                  : -1;
    bool gradient = role == ROLE_dw || role == ROLE_dv || role == ROLE_du;
    if (op > OP_W || (gradient ? !adds : op == OP_W) || (role == ROLE_v && !unembeds && !(embeds && forward)))
        return -1;
    return set >= 0 && !is_without_weights(want, set) ? set : -1;
}

bool is_home_of(const struct promise *want, int set, int s) {
    const struct spec *sp = want->sp;
    const struct member *m = sp->names.member;
    if (set < sp->stages)
        return s == set;
    if (set < sp->stages + sp->names.tables)
        return table_of(want, s) == set && (m ? m[s].stage == 0 : s == 0);
    return m[set].stage == m[s].stage;
}
