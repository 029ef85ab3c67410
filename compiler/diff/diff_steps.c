/* Finds differences between sides that are no larger than those between the steps of a measured side.
 *
 * Two measured sides: the rank-sum test (Mann & Whitney 1947), exact for few steps without ties, otherwise by the
 * normal distribution. Among many operations, some would differ by chance alone, so the false discovery rate is limited
 * to 5 % (Benjamini & Hochberg 1995).
 *
 * A prediction against measured steps: the sign test of whether the steps lie on both sides of the prediction, for each
 * operation by itself. */
#include "diff.h"
#include <math.h>
#include <stdlib.h>

static const double CHANCE = 0.05;
enum { EXACT = 20 }; /* upper bound on the steps of each side */

/* Returns the number of ways to put n of one kind and m of another in a row with u pairs out of order. */
static double orders(int n, int m, int u) {
    static double count[EXACT + 1][EXACT + 1][EXACT * EXACT + 1];
    static bool filled;
    for (int i = 0; !filled && i <= EXACT; i++)
        for (int j = 0; j <= EXACT; j++)
            for (int k = 0; k <= i * j; k++) /* the last in the row is of the second kind, or of the first */
                count[i][j][k] =
                    !i || !j ? 1 : (k <= i * (j - 1) ? count[i][j - 1][k] : 0) + (k >= j ? count[i - 1][j][k - j] : 0);
    filled = true;
    return count[n][m][u];
}

static double exact_p(int n, int m, double u) {
    double all = 0, low = 0, least = fmin(u, (double)n * m - u);
    for (int k = 0; k <= n * m; k++) {
        all += orders(n, m, k);
        low += k <= least ? orders(n, m, k) : 0;
    }
    return fmin(1, 2 * low / all);
}

double rank_sum_test(double *x, int n, double *y, int m) {
    sort(x, (size_t)n, sizeof *x, by_value);
    sort(y, (size_t)m, sizeof *y, by_value);
    double u = 0, ties = 0, all = n + m;
    for (int i = 0, j = 0; i < n || j < m;) {
        double least = j == m || (i < n && x[i] < y[j]) ? x[i] : y[j];
        int from_x = 0, from_y = 0;
        while (i < n && x[i] == least)
            i++, from_x++;
        while (j < m && y[j] == least)
            j++, from_y++;
        u += from_x * (j - from_y + from_y / 2.0); /* pairs in which x is the larger */
        ties += pow(from_x + from_y, 3) - (from_x + from_y);
    }
    if (ties == 0 && n <= EXACT && m <= EXACT)
        return exact_p(n, m, u);
    double variance = (double)n * m / 12 * (all + 1 - ties / (all * (all - 1)));
    double off = fmax(fabs(u - (double)n * m / 2) - 0.5, 0);
    return variance > 0 ? erfc(off / sqrt(2 * variance)) : 1;
}

double sign_test(double x, const double *y, int m) {
    int below = 0, above = 0;
    double least = 1e-9 * fabs(x); /* as for diff->least: sums in another order */
    for (int i = 0; i < m; i++) {
        below += y[i] < x - least;
        above += y[i] > x + least;
    }
    int n = below + above, fewer = below < above ? below : above;
    double sum = 0, ways = 1;
    if (n > 1000) /* 2^n would be infinite */
        return erfc(fmax((double)n / 2 - fewer - 0.5, 0) / sqrt((double)n / 2));
    for (int i = 0; i <= fewer; ways = ways * (n - i) / (i + 1), i++)
        sum += ways;
    return fmin(1, 2 * sum / pow(2, n));
}

double diff_p(double *x, int n, double *y, int m) {
    if (n > 1 && m > 1)
        return rank_sum_test(x, n, y, m);
    return n > 1 ? sign_test(*y, x, n) : m > 1 ? sign_test(*x, y, m) : NAN;
}

/* ---- samples ---- */

int side_nsteps(const struct side *side) { return side->steps ? side->steps->nsteps : 1; }

void diff_sample(const struct side *side, int i, bool ends, double *out) {
    const struct diff_op *op = &side->op[i];
    bool receives = is_recv(op->op);
    for (int k = 0; k < side_nsteps(side); k++) {
        const struct timeline_row *row = side->steps ? &side->steps->row[(size_t)k * (size_t)side->n] : NULL;
        double end = row ? row[i].end : side->end[i], start = row ? row[i].start : side->start[i];
        if (receives)
            start = fmin(start, row ? row[op->ring].start : side->start[op->ring]);
        out[k] = ends ? end : end - start;
    }
}

/* Writes, for each step, when it ended, or what share of the ranks' time was not work. Overlapping jobs count as work
 * once. */
static void sample_step(const struct side *side, bool bubble, double *out) {
    for (int k = 0; k < side_nsteps(side); k++) {
        const struct timeline_row *row = side->steps ? &side->steps->row[(size_t)k * (size_t)side->n] : NULL;
        double last = 0, work = 0, until = 0;
        for (int i = 0; i < side->n; i++) {
            double end = row ? row[i].end : side->end[i], start = row ? row[i].start : side->start[i];
            last = fmax(last, end);
            if (i == 0 || side->op[i].lane != side->op[i - 1].lane)
                until = 0;
            if (is_job(side->op[i].op) && end > until) {
                work += end - fmax(start, until);
                until = end;
            }
        }
        out[k] = !bubble ? last : last > 0 ? 1 - work / (last * side->workers) : 0;
    }
}

/* ---- which differences are more than chance ---- */

struct finding {
    double p;
    int32_t op;
};

static int by_p(const void *x, const void *y) {
    const struct finding *a = x, *b = y;
    return a->p != b->p ? (a->p > b->p) - (a->p < b->p) : a->op - b->op;
}

/* Returns how many of the n findings count as changes. shared: the largest count for which the last one's p is at most
 * its share of CHANCE. */
static int count_chosen(struct finding *finding, int n, bool shared) {
    sort(finding, (size_t)n, sizeof *finding, by_p);
    for (int i = n; i > 0; i--)
        if (finding[i - 1].p <= (shared ? CHANCE * i / n : CHANCE))
            return i;
    return 0;
}

static bool is_significant(int n, int m) {
    if (n > 1 && m > 1)
        return n > EXACT || m > EXACT || exact_p(n, m, 0) <= CHANCE;
    return 2 / pow(2, n > m ? n : m) <= CHANCE;
}

/* Clears `longer` of operations whose durations differ by chance alone; with ends, sets `steady` of those whose ends
 * do. */
static void test_ops(struct diff *diff, bool ends, double *x, double *y) {
    struct side *a = diff->side[0], *b = diff->side[1];
    struct finding *finding = NEW(struct finding, a->n);
    int n = 0;
    for (int i = 0; i < a->n; i++) {
        if (!diff_compares(&a->op[i]))
            continue;
        diff_sample(a, i, ends, x);
        diff_sample(b, a->op[i].match, ends, y);
        finding[n++] = (struct finding){diff_p(x, side_nsteps(a), y, side_nsteps(b)), i};
    }
    for (int k = count_chosen(finding, n, a->steps && b->steps); k < n; k++) {
        struct diff_op *op = &a->op[finding[k].op], *other = &b->op[op->match];
        if (ends)
            op->steady = other->steady = true;
        else
            op->longer = other->longer = false;
    }
}

bool diff_by_chance(double p) { return p > CHANCE; }

void diff_significance(struct diff *diff) {
    int n = side_nsteps(diff->side[0]), m = side_nsteps(diff->side[1]);
    double *x = NEW(double, n), *y = NEW(double, m);
    for (int f = 0; f < NFIGURES; f++)
        diff->p[f] = NAN;
    if (n == 1 && m == 1)
        return;
    diff->tells = is_significant(n, m);
    for (int f = F_MAKESPAN; f <= F_BUBBLE; f++) {
        sample_step(diff->side[0], f == F_BUBBLE, x);
        sample_step(diff->side[1], f == F_BUBBLE, y);
        diff->p[f] = diff_p(x, n, y, m);
    }
    if (diff->tells) {
        test_ops(diff, false, x, y);
        test_ops(diff, true, x, y);
    }
}
