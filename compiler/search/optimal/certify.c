/* Writes the proof of a lower bound for others to check: compiler/certificates.md. */
#include "ir/program.h"
#include "optimal.h"
#include "state.h"
#include <stdlib.h>

int covering_states(const struct optimum *optimum) {
    int n = 0;
    for (int i = 0; optimum->proof == PROOF_COVER && i < optimum->cover.n; i++)
        n += optimum->cover.kept[i];
    return n;
}

static void put_class(struct text *t, const struct instance *in, int c) {
    const struct class *class = &in->class[c];
    put(t, "class %d %s%d rank %d time %lld items %d take %lld give %lld\n", c, op_name[class->d], class->s,
        class->rank, (long long)class->time, class->items, (long long)class->take, (long long)class->give);
}

static void put_lags(struct text *t, const struct instance *in, int c) {
    const struct class *class = &in->class[c];
    if (!class->nlags)
        return;
    put(t, "%s %d:", class->pool ? "pool" : "after", c);
    for (int l = 0; l < class->nlags; l++)
        put(t, " %d+%lld", class->lag[l].from, (long long)class->lag[l].ticks);
    put_word(t, "\n");
}

/* Writes the ranks that have begun and not ended, and how long ago they began. */
static void put_since(struct text *t, const struct instance *in, const int32_t *row) {
    const int32_t *since = row + in->n + in->ranks;
    const char *before = " | since ";
    for (int r = 0; r < in->ranks; r++) {
        bool goes_on = row[in->n + r] > 0;
        for (int i = in->of_rank_at[r]; i < in->of_rank_at[r + 1]; i++)
            goes_on |= row[in->of_rank[i]] < in->class[in->of_rank[i]].items;
        if (since[r] == 0 || !goes_on)
            continue;
        put(t, "%s%d:%d", before, r, since[r]);
        before = " ";
    }
}

static void put_state(struct text *t, const struct instance *in, const struct visited *v, int i) {
    const int32_t *row = v->word + v->at[i], *recent = row + state_width(in);
    int32_t n = recent[-1];
    put_word(t, "at ");
    put_int(t, v->time[i]);
    put_word(t, ":");
    for (int c = 0; c < in->n; c++) {
        put_word(t, " ");
        put_int(t, row[c]);
    }
    for (int32_t k = 0; k < n; k++) {
        if (k == 0 || recent[2 * k] != recent[2 * k - 2]) {
            put_word(t, " | ");
            put_int(t, recent[2 * k]);
        }
        put_word(t, " ");
        put_int(t, -recent[2 * k + 1]);
    }
    if (in->span)
        put_since(t, in, row);
    put_word(t, "\n");
}

struct covering {
    int64_t time;
    int32_t state;
};

static int by_begin(const void *x, const void *y) {
    const struct covering *a = x, *b = y;
    return a->time != b->time ? (a->time < b->time ? -1 : 1) : (a->state > b->state) - (a->state < b->state);
}

/* Sorts the kept states by time, then by the order in which they were found. The search does not find them in this
 * order, since layers ahead grow meanwhile. */
static struct covering *states_by_time(const struct visited *v, int n) {
    struct covering *list = NEW(struct covering, n);
    for (int32_t i = 0, k = 0; i < v->n; i++)
        if (v->kept[i])
            list[k++] = (struct covering){v->time[i], i};
    sort(list, (size_t)n, sizeof *list, by_begin);
    return list;
}

void emit_certificate(struct text *t, const struct instance *in, const struct optimum *optimum, const char *command) {
    char buf[32];
    put(t, "pianola bound 1\nschedule %s\ntick %s\nlimit %lld\n%sranks %d\n", command, number(in->tick, buf),
        (long long)optimum->lower, in->span ? "objective span\n" : "", in->ranks);
    for (int r = 0; r < in->ranks; r++)
        if (in->room[r] < INT64_MAX)
            put(t, "room %d %lld\n", r, (long long)in->room[r]);
    for (int c = 0; c < in->n; c++)
        put_class(t, in, c);
    for (int c = 0; c < in->n; c++)
        put_lags(t, in, c);
    if (optimum->proof == PROOF_WORK) {
        put_word(t, "proof work\nend\n");
        return;
    }
    int n = covering_states(optimum);
    const struct covering *list = states_by_time(&optimum->cover, n);
    put(t, "proof cover %d\n", n);
    for (int i = 0; i < n; i++)
        put_state(t, in, &optimum->cover, list[i].state);
    put_word(t, "end\n");
}
