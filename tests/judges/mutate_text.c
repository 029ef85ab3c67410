/* Breaks the text form as an editor could: head, needs, numbers, words, lines. */
#include "mutate.h"
#include "random.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A text cut into lines. */
struct lines {
    const char **at; /* n + 1 line starts */
    int n;
};
static struct lines lines_of(const char *text) {
    struct lines z = {NEW(const char *, strlen(text) + 2), 0};
    for (const char *s = text; *s; s = strchr(s, '\n') + 1)
        z.at[z.n++] = s;
    z.at[z.n] = text + strlen(text);
    return z;
}

/* Draws one of the lines that begin this way, or returns -1. */
static int line_of(const struct lines *z, const char *begin, uint64_t *random) {
    int found = -1, n = 0;
    for (int i = 0; i < z->n; i++)
        if (!strncmp(z->at[i], begin, strlen(begin)) && random_below(random, ++n) == 0)
            found = i;
    return found;
}

/* Returns the text with [from, to) replaced. */
static char *replaced(const char *text, const char *from, const char *to, const char *by) {
    return format("%.*s%s%s", (int)(from - text), text, by, to);
}

/* Changes one of the numbers in [s, end): one more or less, or a small number. */
static char *other_number(const char *text, const char *s, const char *end, uint64_t *random) {
    const char *found = NULL;
    int n = 0;
    for (; s < end; s++)
        if (isdigit((unsigned char)*s) && !isdigit((unsigned char)s[-1]) && random_below(random, ++n) == 0)
            found = s;
    if (!found)
        return NULL;
    char *rest;
    long old = strtol(found, &rest, 10),
         now = random_below(random, 3) ? random_below(random, 5) : old - 1 + 2 * random_below(random, 2);
    return now < 0 || now == old ? NULL : replaced(text, found, rest, format("%ld", now));
}

static char *head(const char *text, const char *word, uint64_t *random) {
    const char *s = strstr(text, word), *end = strchr(strchr(text, '\n') + 1, '\n');
    if (!s || s > end)
        return strcmp(word, " tied ") ? NULL : replaced(text, end, end, format(" tied %d", random_below(random, 3)));
    const char *number = s + strlen(word);
    if (!strcmp(word, " tied ") && random_below(random, 2))
        return replaced(text, s, end, "");
    return other_number(text, number, number + strspn(number, "0123456789"), random);
}

/* Flips whether a team's line says that its members have parameters whole. */
static char *divided(const char *text, const struct lines *z, uint64_t *random) {
    static const char word[] = " divided";
    int l = line_of(z, "team ", random);
    const char *end = l < 0 ? NULL : z->at[l] + strcspn(z->at[l], ":\n");
    if (!end)
        return NULL;
    bool said = !strncmp(end - strlen(word), word, strlen(word));
    return replaced(text, said ? end - strlen(word) : end, end, said ? "" : word);
}

/* Changes the bytes of a part: other bytes, another part's, or none; or swaps two parts, or deletes the line. */
static char *ranges(const char *text, const struct lines *z, uint64_t *random) {
    const char *at[256];
    int l = line_of(z, "parts ", random), n = 0;
    if (l < 0)
        return NULL;
    for (const char *s = strchr(z->at[l], ':') + 1; *s == ' ' && n < 256; s += strcspn(s + 1, " \n") + 1)
        at[n++] = s + 1;
    const char *one = at[random_below(random, n)], *other = at[random_below(random, n)];
    int size = (int)strcspn(one, " \n"), its = (int)strcspn(other, " \n");
    switch (random_below(random, 8)) {
    case 0: return replaced(text, z->at[l], z->at[l + 1], "");
    case 1: return *one == '-' ? NULL : replaced(text, one, one + size, "-");
    case 2: return one == other ? NULL : replaced(text, one, one + size, format("%.*s", its, other));
    case 3:
        return one >= other
                   ? NULL
                   : replaced(text, one, other + its,
                              format("%.*s%.*s%.*s", its, other, (int)(other - one) - size, one + size, size, one));
    default: return other_number(text, one, one + size, random);
    }
}

/* Lists the jobs that a line of needs names after its colon. */
static int jobs_of(const char *line, const char *end, const char **at, int most) {
    int n = 0;
    for (const char *s = strchr(line, ':') + 1; s < end && *s == ' ' && n < most; s += strcspn(s, ",\n") + 1)
        at[n++] = s + 1;
    return n;
}

static char *needs(const char *text, const struct lines *z, enum mutation how, uint64_t *random) {
    int l = line_of(z, "needs ", random), other = line_of(z, "needs ", random);
    if (l < 0)
        return NULL;
    const char *line = z->at[l], *end = z->at[l + 1] - 1, *at[256];
    if (how == MUT_TEXT_NEEDS_LESS)
        return replaced(text, line, end + 1, "");
    if (how == MUT_TEXT_NEEDS_TWICE)
        return replaced(text, z->at[other], z->at[other], format("%.*s", (int)(end + 1 - line), line));
    int n = jobs_of(line, end, at, 256);
    if (n == 0)
        return NULL;
    const char *job = at[random_below(random, n)], *rest = job + strcspn(job, ",\n");
    if (how == MUT_TEXT_NEED_TWICE)
        return replaced(text, end, end, format(", %.*s", (int)(rest - job), job));
    if (how == MUT_TEXT_NEED_LESS)
        return job == at[0] ? replaced(text, *rest == ',' ? job : job - 1, *rest == ',' ? rest + 2 : rest, "")
                            : replaced(text, job - 2, rest, "");
    const char *name = z->at[other] + 6;
    return random_below(random, 2) ? other_number(text, job, rest, random)
                                   : replaced(text, job, rest, format("%.*s", (int)strcspn(name, ":"), name));
}

/* Replaces a name with another one that ends at the same sign: a buffer's, or the word of a label. */
static char *other_word(const char *text, uint64_t *random) {
    size_t n = strlen(text);
    const char *s = text + random_below(random, (int)n), *t = text + random_below(random, (int)n);
    static const char stop[] = " \n=:";
    while (s > text && !strchr(stop, s[-1]))
        s--;
    size_t kind = strcspn(s, "(= \n"), length = strcspn(s, stop);
    for (size_t tries = 0; tries < 2 * n; tries++, t = *t ? t + 1 : text) {
        size_t other = strcspn(t, stop);
        if (t > text && strchr(stop, t[-1]) && !strncmp(s, t, kind < 2 ? kind : 2) &&
            (other != length || strncmp(s, t, length)))
            return length ? replaced(text, s, s + length, format("%.*s", (int)other, t)) : NULL;
    }
    return NULL;
}

static char *move_line(const struct lines *z, int from, int to) {
    struct text t = {0};
    for (int i = 0; i < z->n; i++) {
        if (i == to && to < from)
            put(&t, "%.*s", (int)(z->at[from + 1] - z->at[from]), z->at[from]);
        if (i != from)
            put(&t, "%.*s", (int)(z->at[i + 1] - z->at[i]), z->at[i]);
        if (i == to && to > from)
            put(&t, "%.*s", (int)(z->at[from + 1] - z->at[from]), z->at[from]);
    }
    return t.s;
}

static bool is_header(const char *line) { return !strncmp(line, "rank ", 5); }

/* Swaps two neighbours of an issue order. */
static char *issue(const char *text, const struct lines *z, uint64_t *random) {
    const char *at[512];
    int r = random_below(random, z->n - 1), n = 0;
    for (int tries = 0; tries < z->n && strncmp(z->at[r + 1] - 7, " issue\n", 7) != 0; tries++)
        r = (r + 1) % (z->n - 1);
    for (const char *s = z->at[r + 1]; isdigit((unsigned char)*s) && n < 512; s += strcspn(s, " \n") + 1)
        at[n++] = s;
    if (n < 3)
        return NULL;
    int i = random_below(random, n - 1);
    int a = (int)strcspn(at[i], " \n"), b = (int)strcspn(at[i + 1], " \n");
    return replaced(text, at[i], at[i + 1] + b, format("%.*s%c%.*s", b, at[i + 1], at[i + 1][-1], a, at[i]));
}

char *mutate_text(const char *text, enum mutation how, uint64_t *random) {
    struct lines z = lines_of(text);
    int l = random_below(random, z.n - 2) + 1, to;
    switch (how) {
    case MUT_TEXT_STAGES: return head(text, " stages ", random);
    case MUT_TEXT_BATCHES: return head(text, " batches ", random);
    case MUT_TEXT_TIED: return head(text, " tied ", random);
    case MUT_TEXT_DIVIDED: return divided(text, &z, random);
    case MUT_TEXT_RANGES: return ranges(text, &z, random);
    case MUT_TEXT_NUMBER: return other_number(text, z.at[l], z.at[l + 1], random);
    case MUT_TEXT_WORD: return other_word(text, random);
    case MUT_TEXT_LINES: return is_header(z.at[l]) || is_header(z.at[l + 1]) ? NULL : move_line(&z, l, l + 1);
    case MUT_TEXT_MOVE:
        to = l + random_below(random, 9) - 4;
        return to < 1 || to >= z.n || to == l || is_header(z.at[l]) ? NULL : move_line(&z, l, to);
    case MUT_TEXT_ISSUE: return issue(text, &z, random);
    default: return needs(text, &z, how, random);
    }
}
