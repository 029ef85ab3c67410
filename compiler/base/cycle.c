#include "cycle.h"
#include "base.h"
#include <assert.h>
#include <string.h>

/* Follows edges from the first node that has one until a node repeats. Finds some cycle, not the shortest. */
static int some_cycle(int n, const int32_t *at, const int32_t *to, int32_t *out) {
    uint8_t *color = NEW(uint8_t, n);
    int32_t *stack = NEW(int32_t, n), *next = NEW(int32_t, n);
    for (int root = 0; root < n; root++) {
        if (color[root] || at[root] == at[root + 1])
            continue;
        int depth = 0;
        stack[depth++] = root;
        color[root] = 1;
        next[root] = at[root];
        while (depth > 0) {
            int32_t v = stack[depth - 1];
            if (next[v] == at[v + 1]) {
                color[v] = 2;
                depth--;
                continue;
            }
            int32_t u = to[next[v]++];
            if (color[u] == 1) {
                int len = 0;
                for (int i = depth - 1; i >= 0; i--) {
                    len++;
                    if (stack[i] == u)
                        break;
                }
                memcpy(out, stack + depth - len, sizeof *out * (size_t)len);
                return len;
            }
            if (!color[u]) {
                color[u] = 1;
                next[u] = at[u];
                stack[depth++] = u;
            }
        }
    }
    return 0;
}

/* Tries the nodes of some cycle first, then all others within a budget of work: exact in all but huge graphs. */
int32_t *shortest_cycle(int n, const int32_t *at, const int32_t *to, int *len) {
    int32_t *best = NEW(int32_t, n + 1), *from = NEW(int32_t, n), *queue = NEW(int32_t, n), *depth = NEW(int32_t, n);
    *len = some_cycle(n, at, to, best);
    assert(*len > 0);
    int first = *len;
    int64_t work = 100000000;
    int32_t *root = NEW(int32_t, first);
    memcpy(root, best, sizeof *root * (size_t)first);
    memset(from, -1, sizeof *from * (size_t)n);
    for (int64_t r = 0; r < (int64_t)first + n && work > 0; r++) {
        int32_t start = r < first ? root[r] : (int32_t)(r - first), last = -1;
        int head = 0, tail = 0;
        queue[tail++] = start;
        depth[start] = 1;
        while (head < tail && last < 0 && depth[queue[head]] < *len) {
            int32_t v = queue[head++];
            work -= at[v + 1] - at[v] + 1;
            for (int32_t e = at[v]; e < at[v + 1] && last < 0; e++) {
                if (to[e] == start)
                    last = v;
                else if (from[to[e]] < 0) {
                    from[to[e]] = v;
                    depth[to[e]] = depth[v] + 1;
                    queue[tail++] = to[e];
                }
            }
        }
        if (last >= 0) {
            *len = depth[last];
            for (int32_t v = last, i = *len; i > 0; v = from[v])
                best[--i] = v;
        }
        for (int i = 0; i < tail; i++)
            from[queue[i]] = -1;
    }
    return best;
}
