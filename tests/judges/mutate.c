/* Breaks a program in one place. The result still has a text form (except for duplicate labels), but no compiler would
 * make it. */
#include "mutate_parts.h"

#define X(name, family, what) #name,
const char *const mutation_name[NMUTATIONS] = {MUTATIONS(X)};
#undef X
#define X(name, family, what) what,
const char *const mutation_what[NMUTATIONS] = {MUTATIONS(X)};
#undef X

#define mutate_text           NULL /* mutates the text, not the struct */
#define X(name, family, what) mutate_##family,
static const char *(*const family_of[NMUTATIONS])(struct place *m, enum mutation how) = {MUTATIONS(X)};
#undef X
#undef mutate_text

const char *label_of(const struct rank *k, int32_t i) {
    struct text t = {0};
    put_label(&t, NULL, &k->ins[i]);
    return t.s;
}

const char *mutate(struct program *p, enum mutation how, uint64_t *random) {
    for (int tries = 0; tries < 40; tries++) {
        struct place m = {.p = p, .random = random, .r = random_below(random, p->workers)};
        m.k = &p->rank[m.r];
        if (!m.k->nins || !m.k->nbufs)
            continue;
        m.i = random_below(random, m.k->nins);
        m.x = &m.k->ins[m.i];
        const char *where = format("rank %d: %s", m.r, label_of(m.k, m.i)), *did = family_of[how](&m, how);
        if (!did)
            continue;
        number_messages(p, true);
        return format("%s (%s; %s)", mutation_what[how], where, did);
    }
    return NULL;
}
