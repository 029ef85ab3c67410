/* The ranks that write a set's checkpoint: for each range of elements, the first home that updates it. */
#ifndef PIANOLA_OWNERS_H
#define PIANOLA_OWNERS_H
#include "rt.h"

struct owner_range { /* the set's elements that a rank updates; count -1: none, because it is no home */
    int64_t first, count;
};
static inline struct owner_range owner_range(const struct rt_program *p, const struct rt_home *home) {
    struct rt_learned learned = learned_at(p->model, &p->stage[home->stage], home);
    struct owner_range range = {learned.first, learned.count};
    return range;
}
/* Writes the owners, in the order of their elements and ended by -1, to owner[size + 1]: at least one, if any rank is a
 * home. range: one for each rank, `apart` places after the one before. */
void find_owners(int32_t *owner, const struct owner_range *range, int size, int apart);
#endif
