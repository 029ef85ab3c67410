/* Orders that repeat. A rank's jobs form a word of letters, which are its stages' directions. The word may contain a
 * period in which each letter occurs once per microbatch of the period. */
#include "closed.h"
#include "ir/program.h"
#include <string.h>

enum { ANY = 1 << 20 }; /* letter of a weight gradient that belongs to the rank's oldest pending input gradient */

struct word {
    int32_t *letter, *stage; /* the rank's stages, ascending */
    int n, nstages;
    int begin, length, times; /* the period: letter[begin .. begin + length), repeated `times` times; times 0: none */
};

static void list_stages(struct word *word, const struct spec *sp, int r) {
    word->stage = NEW(int32_t, sp->stages);
    for (int s = 0; s < sp->stages; s++)
        if (sp->job[job_at(sp, s, 0, OP_F)].rank == r)
            word->stage[word->nstages++] = s;
}

static int place_in_word(const struct word *word, int32_t s) {
    int x = 0;
    while (word->stage[x] != s)
        x++;
    return x;
}

/* Returns whether each weight gradient belongs to the oldest input gradient without one. */
static bool takes_oldest(const struct spec *sp, const int32_t *list, int n) {
    int32_t *oldest = NEW(int32_t, n);
    int inputs = 0, weights = 0;
    for (int i = 0; i < n; i++) {
        const struct job *job = &sp->job[list[i]];
        if (job->d == OP_I)
            oldest[inputs++] = list[i];
        if (job->d != OP_W)
            continue;
        const struct job *first = weights < inputs ? &sp->job[oldest[weights]] : NULL;
        weights++;
        if (!first || first->s != job->s || first->b != job->b)
            return false;
    }
    return true;
}

/* Spells a rank's jobs as a word. Returns false if a stage's jobs of one direction are not in the order of
 * microbatches. */
static bool spell(struct word *word, const struct spec *sp, const int32_t *list, int n) {
    int *count = NEW(int, word->nstages *NDIRS);
    bool oldest = takes_oldest(sp, list, n);
    word->n = n;
    word->letter = NEW(int32_t, n);
    for (int i = 0; i < n; i++) {
        const struct job *job = &sp->job[list[i]];
        int letter = place_in_word(word, job->s) * NDIRS + job->d;
        bool any = oldest && job->d == OP_W;
        if (!any && job->b != count[letter]++)
            return false;
        word->letter[i] = any ? ANY : letter;
    }
    return true;
}

/* Returns whether the period's letters from i on have each of the rank's letters once per microbatch of the period. All
 * letters occur equally often in a word except ANY, which stands for several stages. */
static bool is_balanced(const struct word *word, int i, int batches, int period) {
    int *count = NEW(int, word->nstages *NDIRS + 1), *all = NEW(int, word->nstages *NDIRS + 1);
    for (int k = 0; k < word->n; k++) {
        int letter = word->letter[k] == ANY ? word->nstages * NDIRS : word->letter[k];
        all[letter]++;
        count[letter] += k >= i && k < i + word->length;
    }
    for (int x = 0; x <= word->nstages * NDIRS; x++)
        if ((int64_t)count[x] * batches != (int64_t)all[x] * period)
            return false;
    return true;
}

static void find_repeat(struct word *word, int batches, int period) {
    word->length = word->n / batches * period;
    for (int i = 0, run; i + 2 * word->length <= word->n; i += run + 1) {
        for (run = 0; i + run + word->length < word->n;)
            if (word->letter[i + run] == word->letter[i + run + word->length])
                run++;
            else
                break;
        int times = run / word->length + 1;
        if (times >= 2 && times > word->times && is_balanced(word, i, batches, period)) {
            word->begin = i;
            word->times = times;
        }
    }
}

/* ---- as text ---- */

static void put_letters(struct text *t, const int32_t *letter, int n) {
    for (int i = 0; i < n; i++) {
        put(t, "%s%s", i ? " " : "", letter[i] == ANY ? "W" : op_name[letter[i] % NDIRS]);
        if (letter[i] != ANY)
            put(t, "%d", letter[i] / NDIRS);
    }
}

/* Returns how often the first `length` letters repeat from the beginning. */
static int repetitions(const int32_t *letter, int n, int length) {
    int same = length;
    while (same < n && letter[same] == letter[same - length])
        same++;
    return same / length;
}

static void put_pattern(struct text *t, int times, const int32_t *letter, int n) {
    if (n == 0)
        return;
    put(t, " { %d, \"", times);
    put_letters(t, letter, n);
    put_word(t, "\" },");
}

/* Writes what comes before or after the period, each repetition in it once. */
static void put_around_period(struct text *t, const int32_t *letter, int n) {
    enum { LONGEST = 12 };
    int plain = 0; /* letters that repeat nothing */
    for (int i = 0; i < n;) {
        int times = 1, length = 1;
        for (int l = 1; l <= LONGEST && l <= n - i; l++) {
            int k = repetitions(letter + i, n - i, l);
            if (k > 1 && k * l > times * length)
                times = k, length = l;
        }
        if (times > 1) {
            put_pattern(t, 1, letter + i - plain, plain);
            put_pattern(t, times, letter + i, length);
        }
        plain = times > 1 ? 0 : plain + 1;
        i += times * length;
    }
    put_pattern(t, 1, letter + n - plain, plain);
}

static void put_word_of(struct text *t, const struct word *word, int batches, int period) {
    int end = word->begin + word->times * word->length, rest = batches - word->times * period;
    put_word(t, "    unroll({");
    put_around_period(t, word->letter, word->begin);
    put_word(t, word->begin ? "\n      { " : " { ");
    if (rest > 0)
        put(t, period > 1 ? "(M - %d)" : "M - %d", rest);
    else
        put_word(t, "M");
    if (period > 1)
        put(t, " // %d", period);
    put_word(t, ", \"");
    put_letters(t, word->letter + word->begin, word->length);
    put_word(t, end < word->n ? "\" },\n     " : "\" },");
    put_around_period(t, word->letter + end, word->n - end);
    put_word(t, " }, of {");
    for (int i = 0; i < word->nstages; i++)
        put(t, "%s %d", i ? "," : "", word->stage[i]);
    put_word(t, " }),\n");
}

/* Writes the parameter `batches` and its valid values. */
static void put_batches(struct text *t, int batches, int least, int period, int over) {
    const char *more = over ? format("%d more than ", over) : "";
    put(t, "local M = params { batches = %d }.batches\n", batches);
    if (period == 1)
        put(t, "if M < %d then", least);
    else
        put(t, "if M < %d or M %% %d ~= %d then", least, period, over);
    put(t, "\n  error(\"batches = \" .. M .. \" must be at least %d", least);
    if (period > 1)
        put(t, ", and %sa multiple of %d", more, period);
    put_word(t, "\")\nend\n");
}

bool emit_pattern(struct text *t, const struct costs *costs, struct lists lists, int period, int batches) {
    const struct spec *sp = costs->spec;
    struct word *word = NEW(struct word, sp->workers);
    int least = 0;
    for (int r = 0; r < sp->workers; r++) {
        list_stages(&word[r], sp, r);
        if (word[r].nstages == 0 || !spell(&word[r], sp, lists.job[r], lists.n[r]))
            return false;
        find_repeat(&word[r], sp->batches, period);
        if (word[r].times == 0)
            return false;
        int rest = sp->batches - word[r].times * period;
        least = rest > least ? rest : least;
    }
    put_batches(t, batches, least, period, sp->batches % period);
    put_word(t, "-- The k-th job of a rank's x-th stage in each direction is that of microbatch k.\n"
                "local function of(stages)\n  return function(x, k) return stages[x + 1], k end\nend\n\n");
    emit_before_sequence(t, costs, "M");
    put_word(t, "  sequence = {\n");
    for (int r = 0; r < sp->workers; r++)
        put_word_of(t, &word[r], sp->batches, period);
    put_word(t, "  },\n}\n");
    return true;
}

struct lists stretched(const struct spec *sp, const struct spec *longer, const int64_t *start, int cut, int period,
                       int64_t ticks) {
    int64_t *moved = NEW(int64_t, longer->njobs);
    int extra = longer->batches - sp->batches;
    for (int32_t j = 0; j < longer->njobs; j++) {
        const struct job *job = &longer->job[j];
        int i = job->b - cut - 1, b = job->b; /* i: index among the inserted microbatches */
        int64_t shift = 0;
        if (i >= extra) {
            b = job->b - extra;
            shift = extra / period * ticks;
        } else if (i >= 0) {
            b = cut - period + 1 + i % period;
            shift = (i / period + 1) * ticks;
        }
        moved[j] = start[job_at(sp, job->s, b, job->d)] + shift;
    }
    return lists_by_start(longer, moved);
}
