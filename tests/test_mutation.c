/* Programs of all schedules, broken in one place at a time. Every mutant must be refuted by the verifier, or else come
 * through many random interleavings of an executor that knows nothing of the verifier (executor.c) with every value
 * right. A mutant that does neither has escaped: the proof has a hole. MUTANTS=n tries more. */
#include "executor.h"
#include "mutate.h"
#include "random_spec.h"
#include <criterion/criterion.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
enum { DEFAULT_MUTANTS = 4000, ROUND = 100 };
#else
enum { DEFAULT_MUTANTS = 24000, ROUND = 200 };
#endif
enum { INTERLEAVINGS = 50, DRAWN = 150 };

/* A program to break: a schedule file with settings, or a drawn spec. */
struct source {
    const char *file; /* NULL: drawn from the seed */
    const char *set[4];
    int nset;
    uint64_t seed;
    bool sizes; /* tensors of several bytes, drawn, instead of one each */
    int tied;   /* TIED: drawn with a token table */
};

struct compiled {
    struct spec *spec;
    struct graph *graph;
    struct program *program;
};

/* The executor goes byte by byte: a few of them are enough for one tensor to overlap parts of others. */
static void shrink(struct stage *st) {
    bool wide = st->bytes[K_wgrad] > st->bytes[K_weight];
    for (int k = 0; k < NKINDS; k++)
        st->bytes[k] = st->bytes[k] > 5 ? 1 + st->bytes[k] % 5 : st->bytes[k];
    st->bytes[K_wgrad] = st->bytes[K_weight] * (wide ? 2 : 1);
    if (st->bytes[K_wstash] < st->bytes[K_stash])
        st->bytes[K_wstash] = st->bytes[K_stash] + 1;
}

static void compile(const struct source *s, struct compiled *c) {
    struct script_args args = {.schedule = s->file, .set = (const char **)s->set, .nset = s->nset};
    c->spec = s->file ? script_load(&args) : draw_spec(s->seed, CAPS | BANDWIDTH | ORDERS | COARSE | s->tied);
    struct stage *st = s->file ? cost_stages(c->spec) : unit_stages(c->spec);
    random_state = s->seed;
    if (s->sizes) {
        st = draw_stages(c->spec);
        for (int i = 0; i < c->spec->stages + c->spec->tied; i++)
            shrink(&st[i]);
    }
    c->spec->stage = st;
    c->graph = graph_build(c->spec);
    c->program = lower(c->spec, st, c->graph, sched_run(c->spec, st, c->graph));
    mem_plan(c->spec, c->program);
    lanes_sync(c->program);
}

struct compiling {
    const struct source *source;
    struct compiled *made;
};
static void compile_it(void *with) {
    struct compiling *c = with;
    compile(c->source, c->made);
}

/* False: these settings do not suit the schedule, or it deadlocks. */
static bool compiles(const struct source *s, struct compiled *c) {
    return !death_of(compile_it, &(struct compiling){s, c});
}

static const char *describe(const struct source *s) {
    struct text t = {0};
    if (s->file)
        put(&t, "%s", s->file);
    else
        put(&t, "draw_spec(%llu)", (unsigned long long)s->seed);
    for (int i = 0; i < s->nset; i++)
        put(&t, " -D %s", s->set[i]);
    put(&t, "%s%s", s->tied ? ", tied" : "", s->sizes ? ", sizes drawn" : "");
    return t.s;
}

/* What went wrong in some order, or NULL. */
static const char *harm(const struct promise *want, const struct program *p) {
    const char *why = execute(want, p, SERIALLY, 0);
    for (uint64_t seed = 0; !why && seed < INTERLEAVINGS; seed++)
        why = execute(want, p, BY_LANES, seed);
    return why;
}

static void save(const struct program *p, char *path) {
    struct text t = {0};
    emit_text(&t, p);
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, t.s, t.n) == (ssize_t)t.n && close(fd) == 0);
}

static void print_difference(const struct program *from, const struct program *to) {
    char a[] = "mutation_a_XXXXXX", b[] = "mutation_b_XXXXXX", line[4096];
    save(from, a);
    save(to, b);
    FILE *f = popen(format("diff -U0 %s %s | tail -n +3 | head -n 30", a, b), "r");
    while (f && fgets(line, sizeof line, f))
        fputs(line, stderr);
    if (f)
        pclose(f);
    unlink(a);
    unlink(b);
}

static const char *const claim_name[] = {"jobs", "gradients", "races", "memory", "serial", "lanes"};
static struct {
    int mutants, harmless, escaped, by_claim[6];
    int rerun, harmful;      /* refuted mutants that were executed all the same, and what came to harm */
    int kind[NMUTATIONS][3]; /* mutants, refuted, escaped */
} count;

static void try_mutant(const struct source *s, const struct compiled *c, const struct promise *want, int how,
                       uint64_t *random) {
    uint64_t seed = *random;
    struct program *p = copy_program(c->program);
    const char *what = mutate(p, (enum mutation)how, random), *why;
    if (!what)
        return;
    count.mutants++;
    count.kind[how][0]++;
    struct refutation *no = verify(c->spec, c->graph, p, CLAIM_ALL);
    if (no) {
        count.kind[how][1]++;
        for (int i = 0; i < 6; i++)
            count.by_claim[i] += no->claim == 1 << i;
        if (count.mutants % 20 == 0) {
            count.rerun++;
            count.harmful += harm(want, p) != NULL;
        }
        return;
    }
    if (!(why = harm(want, p))) {
        count.harmless++;
        return;
    }
    count.kind[how][2]++;
    if (count.escaped++ < 20) {
        fprintf(stderr, "ESCAPED: %s, %s, random %llu: %s\n  %s\n", describe(s), mutation_name[how],
                (unsigned long long)seed, what, why);
        print_difference(c->program, p);
    }
}

static void try_program(const struct source *s, int mutants) {
    uint64_t random = s->seed;
    for (int done = 0; done < mutants;) {
        struct compiled c;
        cr_assert(compiles(s, &c), "%s: %s", describe(s), diag_text);
        struct promise want = promise_of(c.spec, c.graph);
        struct refutation *no = done ? NULL : verify(c.spec, c.graph, c.program, CLAIM_ALL);
        cr_assert(!no, "%s: refuted: %s", describe(s), no ? no->why : "");
        const char *why = done ? NULL : harm(&want, c.program);
        cr_assert(!why, "%s: %s", describe(s), why);
        for (int i = 0; i < ROUND && done < mutants; i++, done++)
            try_mutant(s, &c, &want, done % NMUTATIONS, &random);
        free_all();
    }
}

/* Every schedule with those of these settings that suit it; random ones; drawn specs. */
static int sources(struct source *out, int most, const glob_t *files) {
    static const struct source settings[] = {
        {.set = {"workers=2", "batches=3"}, .nset = 2},
        {.set = {"workers=3", "batches=4", "stages=3"}, .nset = 3},
        {.set = {"workers=4", "batches=4", "group=2"}, .nset = 3},
        {.set = {"workers=4", "batches=3", "stages=2"}, .nset = 3},
        {.set = {"batches=3"}, .nset = 1},
        {.nset = 0},
    };
    int n = 0;
    for (size_t f = 0; f < files->gl_pathc; f++) {
        int before = n;
        for (size_t i = 0; i < sizeof settings / sizeof *settings && n < before + 3; i++) {
            struct source s = settings[i];
            struct compiled c;
            s.file = files->gl_pathv[f];
            s.seed = (uint64_t)n;
            s.sizes = n % 2;
            if (compiles(&s, &c) && (c.spec->workers <= 4 || n == before))
                out[n++] = s;
            free_all();
        }
        cr_assert_gt(n, before, "%s compiles with none of the settings", files->gl_pathv[f]);
    }
    for (uint64_t seed = 1; seed <= DRAWN && n < most; seed++) {
        struct source s = {.seed = seed, .sizes = seed % 2, .tied = seed % 8 >= 6 ? TIED : 0};
        struct compiled c;
        static char set[DRAWN + 1][16];
        if (seed % 4 < 2)
            s.file = "tests/schedules/random.lua";
        snprintf(set[seed], sizeof set[seed], "seed=%d", (int)seed);
        if (s.file) {
            s.set[0] = set[seed];
            s.nset = 1;
        }
        if (compiles(&s, &c) && c.spec->njobs <= 50)
            out[n++] = s;
        free_all();
    }
    return n;
}

Test(mutation, every_mutant_is_refuted_or_harmless) {
    enum { MOST = 200 };
    static struct source source[MOST];
    const char *asked = getenv("MUTANTS");
    glob_t files;
    /* not pianola.d.lua, which is no schedule */
    cr_assert_eq(glob("schedules/*[!.]?.lua", 0, NULL, &files), 0);
    int n = sources(source, MOST, &files), total = asked ? atoi(asked) : DEFAULT_MUTANTS;
    for (int i = 0; i < n; i++)
        try_program(&source[i], total / n + 1);
    globfree(&files);
    fprintf(stderr, "%d programs, %d mutants, %d refuted:", n, count.mutants,
            count.mutants - count.harmless - count.escaped);
    for (int i = 0; i < 6; i++)
        fprintf(stderr, " %s %d", claim_name[i], count.by_claim[i]);
    fprintf(stderr, "; %d harmless, %d escaped\n", count.harmless, count.escaped);
    for (int k = 0; k < NMUTATIONS; k++)
        fprintf(stderr, "  %-15s%6d mutants%6d refuted%6d harmless%6d escaped\n", mutation_name[k], count.kind[k][0],
                count.kind[k][1], count.kind[k][0] - count.kind[k][1] - count.kind[k][2], count.kind[k][2]);
    cr_assert_eq(count.escaped, 0);
    /* An executor that finds nothing wrong would let everything pass. Some of what is refuted does no harm: a free that
     * is missing, bytes that nobody reads again. */
    fprintf(stderr, "%d refuted ones executed, %d came to harm\n", count.rerun, count.harmful);
    cr_assert_gt(count.harmful * 10, count.rerun * 7);
    cr_assert(asked || count.mutants >= DEFAULT_MUTANTS * 5 / 6, "%d mutants are too few", count.mutants);
}

/* Contributions to a shared table's gradient, one by one: each one dropped, written where it should add or added where
 * it should write, put into another gradient, or made by a job that has none to make is refuted. */
static int refuse_contribution(const struct compiled *c, int r, int32_t i) {
    int tried = 0;
    for (int how = 0; how < 3; how++) {
        struct program *p = copy_program(c->program);
        struct rank *k = &p->rank[r];
        struct instr *x = &k->ins[i];
        uint32_t dw = x->narg, dv = x->narg;
        for (uint32_t a = 0; a < x->narg; a++) {
            dw = k->arg[x->arg + a].role == ROLE_dw ? a : dw;
            dv = k->arg[x->arg + a].role == ROLE_dv ? a : dv;
        }
        if (dw == x->narg || (dv == x->narg && how > 0))
            continue;
        if (dv == x->narg) /* a job of another stage: dw becomes a dv */
            k->arg[x->arg + dw].role = ROLE_dv;
        else if (how == 0) {
            memmove(&k->arg[x->arg + dv], &k->arg[x->arg + dv + 1], sizeof *k->arg * (x->narg - dv - 1));
            x->narg--;
        } else if (how == 1)
            x->vfirst = !x->vfirst;
        else
            k->arg[x->arg + dv].buf = k->arg[x->arg + dw].buf;
        struct refutation *no = verify(c->spec, c->graph, p, CLAIM_ALL);
        cr_assert(no && no->claim != CLAIM_SERIAL, "rank %d instruction %d, %d: %s", r, i, how,
                  no ? no->why : "proved");
        tried++;
    }
    return tried;
}

Test(mutation, every_contribution_to_a_table_counts) {
    int tried = 0, programs = 0;
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct source s = {.seed = seed, .tied = TIED};
        struct compiled c;
        if (compiles(&s, &c) && c.spec->njobs <= 60) {
            cr_assert(c.program->tied && !verify(c.spec, c.graph, c.program, CLAIM_ALL));
            programs++;
            for (int r = 0; r < c.program->workers; r++)
                for (int32_t i = 0; i < c.program->rank[r].nins; i++)
                    tried += c.program->rank[r].ins[i].op < NDIRS ? refuse_contribution(&c, r, i) : 0;
        }
        free_all();
    }
    fprintf(stderr, "%d programs with a table, %d contributions changed\n", programs, tried);
    cr_assert(programs > 20 && tried > 500);
}
