#include "owners.h"
#include <string.h>

void find_owners(int32_t *owner, const struct owner_range *range, int size, int apart) {
    int n = 0, first = 0;
    for (int r = 0; r < size; r++) {
        const struct owner_range *own = &range[(int64_t)r * apart];
        int at = 0;
        while (at < n && range[(int64_t)owner[at] * apart].first < own->first)
            at++;
        if (own->count <= 0 || (at < n && range[(int64_t)owner[at] * apart].first == own->first))
            continue;
        memmove(&owner[at + 1], &owner[at], sizeof *owner * (size_t)(n++ - at));
        owner[at] = r;
    }
    while (n == 0 && first < size && range[(int64_t)first * apart].count < 0)
        first++; /* homes without elements */
    if (n == 0 && first < size)
        owner[n++] = first;
    owner[n] = -1;
}
