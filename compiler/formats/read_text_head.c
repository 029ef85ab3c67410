/* The head of the program's text form: what comes before the ranks' sections. */
#include "read_text.h"
#include <string.h>

/* A schedule's name: one word, in which %HH stands for any byte. */
static const char *schedule_name(struct reader *in) {
    static const char hex[] = "0123456789ABCDEF";
    struct text t = {0};
    put_bytes(&t, "", 0);
    for (; (unsigned char)*in->p > ' '; in->p++) {
        char c = *in->p;
        const char *high = NULL, *low = NULL;
        if (c == '%') {
            high = in->p[1] ? strchr(hex, in->p[1]) : NULL;
            low = high && in->p[2] ? strchr(hex, in->p[2]) : NULL;
            if (!low)
                FAIL(in, in->p, "expected two of 0-9 A-F behind %%");
            c = (char)((high - hex) * 16 + (low - hex));
            in->p += 2;
        }
        put_bytes(&t, &c, 1);
    }
    return t.s;
}

static struct job_name job(struct reader *in) {
    struct job_name name = {.d = (uint8_t)read_name(in, "a job", op_name, NDIRS)};
    read_word(in, " ");
    name.s = (int32_t)read_integer(in, "a stage", 0, in->prog->stages - 1);
    read_word(in, " ");
    name.b = (int32_t)read_integer(in, "a microbatch", 0, in->prog->batches - 1);
    return name;
}

/* The homes of each set, if any is sharded: `homes 2 zero 1: 0 1, 2 3`. */
static void read_homes(struct reader *in) {
    struct program *p = in->prog;
    size_t cap_homes = 0;
    for (int s = 0; s < p->stages + p->tied && !strncmp(in->p, "homes ", 6); s++) {
        struct homes homes = {.zero = 0};
        size_t cap = 0;
        int n = 0;
        read_word(in, "homes ");
        read_integer(in, "the next set", s, s);
        if (read_if(in, " zero "))
            homes.zero = (int)read_integer(in, "zero", 1, 2);
        in->listed++;
        for (read_word(in, ":"); *in->p == ' ' || *in->p == ',';) {
            const char *at = in->p;
            if (read_if(in, ",")) {
                homes.size = homes.lists++ ? homes.size : n;
                if (n != homes.lists * homes.size)
                    FAIL(in, at, "lists that are replicas have the same length");
            }
            read_word(in, " ");
            GROW(homes.rank, cap, (size_t)n + 1);
            homes.rank[n++] = read_new_rank(in);
        }
        homes.size = homes.lists++ ? homes.size : n;
        if (!n || n != homes.lists * homes.size)
            FAIL(in, in->p, n ? "lists that are replicas have the same length" : "expected a rank");
        read_end(in);
        GROW(p->homes, cap_homes, (size_t)s + 1);
        p->homes[s] = homes;
        if (s + 1 < p->stages + p->tied && strncmp(in->p, "homes ", 6))
            FAIL(in, in->p, "expected \"homes %d\": where one set has such a line, all have", s + 1);
    }
}

/* Reads what each job needs, if pred() set it: `needs F 1 3: F 0 3, F 0 2`. */
static void read_needs(struct reader *in) {
    struct program *p = in->prog;
    size_t cap = 0, pred_cap = 0, npreds = 0;
    while (read_if(in, "needs ")) {
        GROW(p->need, cap, (size_t)p->nneeds + 2);
        p->need[p->nneeds++] = (struct need){job(in), (int32_t)npreds};
        read_word(in, ":");
        while (read_if(in, npreds > (size_t)p->need[p->nneeds - 1].pred ? ", " : " ")) {
            GROW(p->pred, pred_cap, npreds + 1);
            p->pred[npreds++] = job(in);
        }
        read_end(in);
        p->need[p->nneeds].pred = (int32_t)npreds;
    }
}

/* Updates that are jobs, and the period: `updates 1 1 3`, `period 12 times 100`. */
static void read_updates(struct reader *in) {
    struct program *p = in->prog;
    size_t cap = 0;
    p->repeats = 1;
    if (!read_if(in, "updates"))
        return;
    for (int s = 0; s < p->stages; s++) {
        read_word(in, " ");
        const char *at = in->p;
        int m = (int)read_integer(in, "the microbatches of an update", 1, p->batches);
        if (p->batches % m)
            FAIL(in, at, "%d microbatches are not whole updates of %d", p->batches, m);
        GROW(p->update, cap, (size_t)s + 1);
        p->update[s] = m;
    }
    read_end(in);
    if (!read_if(in, "period "))
        return;
    const char *at = in->p;
    p->period = (int)read_integer(in, "the microbatches of a period", 1, p->batches);
    for (int s = 0; s < p->stages; s++)
        if (p->period % p->update[s])
            FAIL(in, at, "a period of %d microbatches has no whole updates of stage %d, of %d each", p->period, s,
                 p->update[s]);
    read_word(in, " times ");
    p->repeats = read_integer(in, "how often the period runs", 1, (INT64_MAX - p->batches) / p->period);
    read_end(in);
}

void read_head(struct reader *in) {
    struct program *p = in->prog;
    if (!read_if(in, "pianola 1"))
        FAIL(in, in->p, "expected \"pianola 1\", the first line of a program's text form");
    read_end(in);
    read_word(in, "program ");
    p->name = schedule_name(in);
    read_word(in, " workers ");
    int sections = 0;
    for (const char *s = in->p; (s = strstr(s, "\nrank ")); s++)
        sections++;
    const char *at = in->p;
    p->workers = (int)read_integer(in, "how many workers", 1, INT32_MAX);
    if (p->workers > sections / 3) /* also bounds the memory taken for them */
        FAIL(in, at, "%d workers have three sections each, lane, issue and memory; the file has %d in all", p->workers,
             sections);
    read_word(in, " stages ");
    p->stages = (int)read_integer(in, "how many stages", 1, INT32_MAX);
    read_word(in, " batches ");
    p->batches = (int)read_integer(in, "how many microbatches", 1, INT32_MAX);
    p->tied = read_if(in, " tied ");
    if (p->tied)
        p->unembedding = (int)read_integer(in, "the stage of the unembedding", 0, p->stages - 1);
    read_end(in);
    p->rank = NEW(struct rank, p->workers);
    p->group = NEW(struct group, sections);
    in->groups = map_new((size_t)sections);
    in->grouped = NEW(int32_t, sections);
    in->gathered = NEW(int32_t, sections);
    in->in_list = NEW(int32_t, p->workers);
    in->sent = NEW(int32_t, p->workers);
    in->received = NEW(int32_t, p->workers);
    read_updates(in);
    read_homes(in);
    read_needs(in);
}
