/* Cuts a model's units into stages: as the model specifies, evenly by FLOP, or by cost on ranks of unequal speeds. */
#include "cost.h"
#include "layers.h"
#include <assert.h>
#include <float.h>
#include <math.h>

/* Returns the least number of groups of neighbours, none of which costs more than limit. */
static int groups_under(const double *cost, int n, double limit) {
    int groups = 1;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (sum + cost[i] > limit) {
            groups++;
            sum = 0;
        }
        sum += cost[i];
    }
    return groups;
}

/* Returns the smallest limit under which n units make at most k groups. Costs are integers, so bisection finds it. */
static double least_limit(const double *cost, int n, int k) {
    double low = 0, high = 0;
    for (int i = 0; i < n; i++) {
        low = cost[i] > low ? cost[i] : low;
        high += cost[i];
    }
    for (int i = 0; i < 64 && low < high; i++) {
        double mid = floor((low + high) / 2);
        if (groups_under(cost, n, mid) <= k)
            high = mid;
        else
            low = mid + 1;
    }
    return high;
}

/* Sets open[s] to the first unit of stage s, and open[k] = n. The largest stage is as small as possible. Within that
 * limit, each stage's cost is as close as possible to an even share of what remains, so that slack does not accumulate
 * at one end. */
static void cut_evenly(const double *cost, int n, int k, int *open) {
    double limit = least_limit(cost, n, k), rest = 0;
    int *need = NEW(int, n + 1), end = n; /* need[u]: least number of groups of units u.. */
    double sum = 0;
    for (int u = n - 1; u >= 0; u--) {
        rest += cost[u];
        sum += cost[u];
        if (sum > limit) {
            sum = cost[u];
            end = u + 1;
        }
        need[u] = need[end] + 1;
    }
    open[0] = 0;
    for (int s = 0; s < k; s++) {
        int left = k - s - 1, u = open[s];
        double share = rest / (left + 1), gap = DBL_MAX, taken = 0;
        sum = 0;
        while (u < n - left && sum + cost[u] <= limit) {
            sum += cost[u++];
            if (need[u] <= left && fabs(sum - share) < gap) {
                gap = fabs(sum - share);
                open[s + 1] = u;
                taken = sum;
            }
        }
        rest -= taken;
    }
}

/* Fills the stages one after the other, each for at most `limit` at its speed; returns whether all units found room. */
static bool fill_stages(const double *cost, int n, int k, const double *speed, double limit, int *open) {
    int u = 0;
    for (int s = 0; s < k; s++) {
        double sum = 0;
        open[s] = u;
        do
            sum += cost[u++];
        while (u < n - (k - s - 1) && sum + cost[u] <= limit * speed[s]);
        if (sum > limit * speed[s])
            return false;
    }
    open[k] = u;
    return u == n;
}

/* Cuts so that the slowest stage is as fast as possible, where ranks have unequal speeds. */
static void cut_by_speed(const double *cost, int n, int k, const double *speed, int *open) {
    double low = 0, high = 0, slowest = INFINITY;
    for (int u = 0; u < n; u++)
        high += cost[u];
    for (int s = 0; s < k; s++)
        slowest = fmin(slowest, speed[s]);
    high /= slowest;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        if (fill_stages(cost, n, k, speed, middle, open))
            high = middle;
        else
            low = middle;
    }
    fill_stages(cost, n, k, speed, high, open);
}

/* Returns, per stage numbered as in scripts, the speed of the slowest rank that computes it; NULL: all are equal. */
static double *stage_speeds(const struct spec *sp, int stages) {
    double *speed = NEW(double, stages);
    bool alike = true;
    for (int s = 0; s < stages; s++)
        speed[s] = INFINITY;
    for (const struct job *j = sp->job; sp->machine.speed && j < sp->job + sp->njobs; j++) {
        double *of = &speed[sp->names.member ? sp->names.member[j->s].stage : j->s];
        *of = fmin(*of, sp->machine.speed[j->rank]);
    }
    for (int s = 1; s < stages; s++)
        alike &= speed[s] == speed[0];
    return alike ? NULL : speed;
}

static void cut_as_told(const struct model *m, int stages, int *open) {
    assert(m->ncut == stages - 1);
    open[0] = 0;
    open[stages] = m->nitems;
    for (int s = 1; s < stages; s++) {
        open[s] = m->cut[s - 1];
        assert(open[s] > open[s - 1] && open[s] < m->nitems);
    }
}

/* Scales seconds to integers that add up to about 2^50. */
static void whole_costs(const struct model *m, double *cost) {
    double all = 0;
    for (int u = 0; u < m->nitems; u++)
        all += m->cost[u].forward + m->cost[u].backward;
    for (int u = 0; u < m->nitems && all > 0; u++)
        cost[u] = round((m->cost[u].forward + m->cost[u].backward) / all * 0x1p50);
}

int *cut_stages(const struct spec *sp, const struct rt_layer *all, int stages) {
    const struct model *m = sp->model;
    if (stages > m->nitems)
        die("the model has %d blocks (a block is a layer or a whole residual), too few for %d stages; use at most %d "
            "stages, or more layers",
            m->nitems, stages, m->nitems);
    double *cost = NEW(double, m->nitems);
    for (int i = 0; i < m->nlayers; i++) {
        struct flop flop = flop_of(&all[i]);
        cost[m->layer[i].item] += flop.f + flop.i + flop.w;
    }
    if (m->cost)
        whole_costs(m, cost);
    int *open = NEW(int, stages + 1);
    const double *speed = m->cut ? NULL : stage_speeds(sp, stages);
    if (m->cut)
        cut_as_told(m, stages, open);
    else if (speed)
        cut_by_speed(cost, m->nitems, stages, speed, open);
    else
        cut_evenly(cost, m->nitems, stages, open);
    return open;
}
