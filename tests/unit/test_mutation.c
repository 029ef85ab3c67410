/* Programs of all schedules, broken in one to three places. The verifier and the independent, exact judge (judge.c)
 * must agree on each: wrong ones are refuted, right ones proved. If a mutant is right but makes a false statement about
 * itself (judge.h: FORMAL), the verifier may say either.
 *
 * The judge is tested too: a mutant that it does not call wrong must pass random runs of an executor (executor.c),
 * which only runs programs, with every value right.
 *
 *   MUTANTS=n      tries more, or fewer MUTANT=b:k     tries a single one: the k-th of base b, as a failure names it */
#include "bases.h"
#include "executor.h"
#include "judge.h"
#include "mutate.h"
#include "random_spec.h"
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
enum { DEFAULT_MUTANTS = 6000, ROUND = 100 };
#else
enum { DEFAULT_MUTANTS = 120000, ROUND = 200 };
#endif
enum { RUNS = 6, MOST_BASES = 250, MOST_TOLD = 12 };

/* ---- a mutant ---- */

struct mutant {
    int base, k, first; /* first: kind of its first mutation */
    struct program *program;
    bool by_text, unreadable; /* by_text: it went through the text form; unreadable: its text cannot be read */
    const char *did;
};

struct reading {
    const char *text;
    struct program *made;
};
static void read_it(void *with) {
    struct reading *r = with;
    r->made = read_text("mutant", r->text);
}

/* Prints it, breaks the text if a mutation requires that, and reads it back. */
static void through_text(struct mutant *m, const uint8_t *how, int n, uint64_t *random, struct text *did) {
    struct text t = {0};
    emit_text(&t, m->program);
    char *text = t.s;
    for (int i = 0; i < n; i++)
        for (int tries = 0; how[i] >= FIRST_TEXT_MUTATION && tries < 20; tries++) {
            char *now = mutate_text(text, how[i], random);
            if (!now)
                continue;
            text = now;
            put(did, "%s%s", did->n ? "; " : "", mutation_what[how[i]]);
            break;
        }
    struct reading r = {text, NULL};
    m->by_text = true;
    m->unreadable = death_of(read_it, &r);
    m->program = m->unreadable ? m->program : r.made;
}

/* Makes the k-th mutant of a base: kinds take turns, with others added. Returns false if there was no place for any. */
static bool make_mutant(const struct compiled *c, int base, int k, struct mutant *m) {
    uint64_t random = (uint64_t)base * 1000003 + (uint64_t)k;
    random_next(&random);
    int dice = random_below(&random, 20), n = dice < 12 ? 1 : dice < 17 ? 2 : 3;
    uint8_t how[3] = {(uint8_t)((k + base) % NMUTATIONS)};
    bool of_team = how[0] >= MUT_TEAM_WAIT && how[0] <= MUT_TEAM_MEMBER;
    if (c->program->contributed && k % 8 == 0) /* few programs declare what parts contribute */
        how[0] = k % 16 ? MUT_TEXT_RANGES : MUT_MOVE_PIECE;
    else if ((of_team && !c->program->exchange) || (how[0] == MUT_TEXT_RANGES && !c->program->contributed))
        how[0] = (uint8_t)random_below(&random, MUT_TEAM_WAIT);
    bool text = how[0] >= FIRST_TEXT_MUTATION || random_below(&random, 4) == 0;
    struct text did = {0};
    *m = (struct mutant){base, k, how[0], copy_program(c->program), !c->spec, false, NULL};
    for (int i = 1; i < n; i++)
        how[i] = (uint8_t)random_below(&random, text ? NMUTATIONS : FIRST_TEXT_MUTATION);
    for (int i = 0; i < n; i++) {
        const char *what = how[i] < FIRST_TEXT_MUTATION ? mutate(m->program, how[i], &random) : NULL;
        put(&did, "%s%s", what && did.n ? "; " : "", what ? what : "");
    }
    if (text)
        through_text(m, how, n, &random, &did);
    m->did = did.s;
    return did.n > 0;
}

/* ---- verdicts ---- */

enum outcome { AGREED, CRASHED, ESCAPED, TOO_STRICT, JUDGE_WRONG, NOUTCOMES };
static const char *const outcome_name[] = {"agreed", "THE VERIFIER CRASHES", "ESCAPED: proved, and wrong",
                                           "TOO STRICT: refuted, and right", "THE JUDGE IS WRONG: a run goes wrong"};
static const char *const claim_name[] = {"jobs", "gradients", "races", "memory", "serial", "lanes", "period"};
static struct {
    int mutants, unreadable, refuted, wrong, malformed, formal, rightly, runs, run_wrong, by_claim[NCLAIMS],
        outcome[NOUTCOMES];
    int kind[NMUTATIONS][4]; /* mutants, refuted, harmless, escaped or too strict */
} count;

static struct judgement judged(const struct promise *want, const struct mutant *m, struct promise *own) {
    *own = *want;
    const char *why;
    if (m->by_text && !promise_of_text(m->program, own, &why))
        return (struct judgement){WRONG, why};
    return judge(own, m->program);
}

/* Runs in several orders and returns the first error, or NULL. */
static const char *harm_straight(const struct promise *want, const struct program *p, int runs) {
    const char *why = execute(want, p, SERIALLY, 0);
    for (int seed = 0; !why && seed < runs; seed++)
        why = execute(want, p, BY_LANES, (uint64_t)seed);
    return why;
}

/* Runs a period once, and twice. */
static const char *harm(const struct promise *want, const struct program *p, int runs) {
    if (!p->period)
        return harm_straight(want, p, runs);
    const char *why = harm_straight(want, unroll(p, 1), runs);
    struct program *twice = why ? NULL : unroll(p, 2);
    struct promise promised;
    return why || !promise_of_unrolled(want, twice, p, &promised, &why) ? why : harm_straight(&promised, twice, runs);
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

static void tell(const struct base *b, const struct compiled *c, const struct mutant *m, enum outcome what,
                 const struct refutation *no, const struct judgement *j, const char *run) {
    static const char *const verdict[] = {"right", "right but for what it says", "has no text form", "wrong"};
    static int told[NOUTCOMES];
    if (told[what]++ >= MOST_TOLD && !getenv("MUTANT"))
        return;
    fprintf(stderr, "%s\n  base %d: %s\n  %s%s\n", outcome_name[what], m->base, describe_base(b), m->did,
            m->by_text ? " (through the text form)" : "");
    fprintf(stderr, "  the verifier: %s\n  the judge: %s%s%s\n", no ? no->why : "proved", verdict[j->is],
            j->why ? ": " : "", j->why ? j->why : "");
    if (run)
        fprintf(stderr, "  a run: %s\n", run);
    fprintf(stderr, "  alone: MUTANT=%d:%d build/tests/unit/test_mutation --filter mutation/every_mutant*\n", m->base,
            m->k);
    print_difference(c->program, m->program);
}

/* An assert that fails in the verifier ends one mutant's trial, not all. */
static sigjmp_buf after_crash;
static void crashed(int signal_number) { siglongjmp(after_crash, signal_number); }

struct verifying {
    const struct compiled *c;
    const struct mutant *m;
    struct refutation *no;
};
static void verify_it(void *with) {
    struct verifying *v = with;
    v->no = v->m->by_text ? verify_text(v->m->program)
                          : verify(costs_of(v->c->spec), v->c->graph, v->m->program, CLAIM_ALL);
}

/* Returns the verifier's verdict; if it dies, that is a refusal. */
static bool verdict_of(const struct compiled *c, const struct mutant *m, struct refutation **no) {
    static struct verifying v;
    static struct refutation refusal;
    v = (struct verifying){c, m, NULL};
    if (sigsetjmp(after_crash, 1)) {
        diag_trap = NULL;
        return false;
    }
    const char *died = death_of(verify_it, &v);
    refusal.why = died ? copy_string(died) : NULL;
    *no = died ? &refusal : v.no;
    return true;
}

/* Runs mutants that are not called wrong, which must pass, and sometimes wrong ones, to see that runs detect errors. */
static const char *run_some(const struct promise *want, const struct mutant *m, const struct judgement *j) {
    bool known = !m->by_text && m->k % 50 == 0; /* the promise of a wrong text may be unknown */
    if (j->is == MALFORMED || (j->is == WRONG && !known))
        return NULL;
    const char *run = harm(want, m->program, RUNS);
    count.runs += j->is == WRONG;
    count.run_wrong += run && j->is == WRONG;
    return run;
}

/* Classifies a mutant. own: its own promise. */
static enum outcome outcome_of(const struct promise *own, const struct refutation *no, const struct judgement *j,
                               bool crashed, bool runs_wrong) {
    if (j->is == MALFORMED)
        return AGREED;
    if (crashed)
        return CRASHED;
    if (runs_wrong && j->is != WRONG)
        return JUDGE_WRONG;
    if (!no && j->is == WRONG)
        return ESCAPED;
    /* a line of needs that names a job twice may count as one need, or as an error */
    return no && j->is == RIGHT && !own->repeats ? TOO_STRICT : AGREED;
}

static void note(const struct mutant *m, const struct refutation *no, enum verdict is, enum outcome what) {
    int *kind = count.kind[m->first];
    kind[1] += no != NULL;
    kind[2] += is < MALFORMED;
    kind[3] += what != AGREED;
    count.refuted += no != NULL;
    count.rightly += no && is == WRONG;
    count.wrong += is == WRONG;
    count.formal += is == FORMAL;
    count.malformed += is == MALFORMED;
    count.outcome[what]++;
    for (int i = 0; i < NCLAIMS && no; i++)
        count.by_claim[i] += no->claim == 1 << i;
}

static void try_mutant(const struct base *b, const struct compiled *c, const struct promise *want, int base, int k) {
    struct mutant m;
    struct promise own;
    if (!make_mutant(c, base, k, &m))
        return;
    count.mutants++;
    count.kind[m.first][0]++;
    if (m.unreadable) {
        count.unreadable++;
        count.kind[m.first][1]++;
        return;
    }
    struct refutation *no = NULL;
    bool crashed = !verdict_of(c, &m, &no);
    struct judgement j = judged(want, &m, &own);
    const char *run = run_some(&own, &m, &j);
    enum outcome what = outcome_of(&own, no, &j, crashed, run);
    note(&m, no, j.is, what);
    if (what != AGREED)
        tell(b, c, &m, what, no, &j, run);
}

/* Checks that the program as compiled is right, is proved, and passes all runs. */
static void try_base(const struct base *b, const struct compiled *c, const struct promise *want) {
    struct refutation *no =
        b->text ? verify_text(c->program) : verify(costs_of(c->spec), c->graph, c->program, CLAIM_ALL);
    cr_assert(!no, "%s: refuted: %s", describe_base(b), no ? no->why : "");
    struct judgement j = judge(want, c->program);
    cr_assert(j.is == RIGHT, "%s: judged: %s", describe_base(b), j.why);
    const char *why = harm(want, c->program, 50);
    cr_assert(!why, "%s: %s", describe_base(b), why);
}

static void try_mutants(const struct base *b, int base, int from, int to) {
    for (int k = from; k < to; free_all()) {
        struct compiled c;
        cr_assert(compile_base(b, &c), "%s: %s", describe_base(b), diag_text);
        struct promise want;
        const char *why;
        if (b->text)
            cr_assert(promise_of_text(c.program, &want, &why), "%s: %s", describe_base(b), why);
        else
            want = promise_of(costs_of(c.spec), c.graph);
        if (k == from)
            try_base(b, &c, &want);
        for (int end = k + ROUND < to ? k + ROUND : to; k < end; k++) {
            try_mutant(b, &c, &want, base, k);
        }
    }
}

static void print_table(int bases, double seconds) {
    fprintf(stderr, "%d programs, %d mutants in %.0f s: %d unreadable, %d refuted:", bases, count.mutants, seconds,
            count.unreadable, count.refuted);
    for (int i = 0; i < NCLAIMS; i++)
        fprintf(stderr, " %s %d", claim_name[i], count.by_claim[i]);
    fprintf(stderr, "\n%d judged wrong, %d malformed, %d right, of these %d say something that is not so\n",
            count.wrong, count.malformed, count.mutants - count.unreadable - count.wrong - count.malformed,
            count.formal);
    for (int o = 1; o < NOUTCOMES; o++)
        fprintf(stderr, "%d %s\n", count.outcome[o], outcome_name[o]);
    fprintf(stderr, "  %-18s%9s%9s%9s%9s\n", "", "mutants", "refuted", "harmless", "failed");
    for (int k = 0; k < NMUTATIONS; k++)
        fprintf(stderr, "  %-18s%9d%9d%9d%9d\n", mutation_name[k], count.kind[k][0], count.kind[k][1], count.kind[k][2],
                count.kind[k][3]);
}

Test(mutation, every_mutant_is_judged_alike) {
    static struct base base[MOST_BASES];
    const char *asked = getenv("MUTANTS"), *one = getenv("MUTANT");
    int n = all_bases(base, MOST_BASES), total = asked ? atoi(asked) : DEFAULT_MUTANTS;
    clock_t begin = clock();
    signal(SIGABRT, crashed);
    if (one) {
        int b = atoi(one), k = strchr(one, ':') ? atoi(strchr(one, ':') + 1) : 0;
        cr_assert(b >= 0 && b < n && k >= 0, "MUTANT=base:number, of %d bases", n);
        try_mutants(&base[b], b, k, k + 1);
    }
    for (int b = 0; b < n && !one; b++)
        try_mutants(&base[b], b, 0, total / n + 1);
    print_table(n, (double)(clock() - begin) / CLOCKS_PER_SEC);
    for (int o = 1; o < NOUTCOMES; o++)
        cr_expect(count.outcome[o] == 0, "%d %s", count.outcome[o], outcome_name[o]);
    if (asked || one)
        return;
    /* A judge or an executor that reports nothing, or everything, would let all mutants pass. */
    fprintf(stderr, "%d of %d refuted ones are judged wrong; of %d of these that were run, %d came to harm\n",
            count.rightly, count.refuted, count.runs, count.run_wrong);
    cr_expect(count.rightly * 10 > count.refuted * 8 && count.run_wrong * 10 > count.runs * 6);
    cr_expect((count.mutants - count.wrong - count.malformed - count.unreadable - count.formal) * 50 > count.mutants);
    cr_expect(n >= 45 && count.mutants >= DEFAULT_MUTANTS * 5 / 6, "%d mutants of %d programs are too few",
              count.mutants, n);
}

/* Changes contributions to a shared table's gradient one by one. Each is refuted if it is dropped, written instead of
 * added or the reverse, put into another gradient, or made by a job that has none to make. */
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
        if (dv == x->narg) /* a job of another stage: turns dw into dv */
            k->arg[x->arg + dw].role = ROLE_dv;
        else if (how == 0) {
            memmove(&k->arg[x->arg + dv], &k->arg[x->arg + dv + 1], sizeof *k->arg * (x->narg - dv - 1));
            x->narg--;
        } else if (how == 1)
            x->vfirst = !x->vfirst;
        else
            k->arg[x->arg + dv].buf = k->arg[x->arg + dw].buf;
        struct refutation *no = verify(costs_of(c->spec), c->graph, p, CLAIM_ALL);
        cr_assert(no && no->claim != CLAIM_SERIAL, "rank %d instruction %d, %d: %s", r, i, how,
                  no ? no->why : "proved");
        tried++;
    }
    return tried;
}

Test(mutation, every_contribution_to_a_table_counts) {
    int tried = 0, programs = 0;
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct base s = {.seed = seed, .tied = true};
        struct compiled c;
        if (compile_base(&s, &c) && c.spec->njobs <= 60) {
            cr_assert(c.program->tied && !verify(costs_of(c.spec), c.graph, c.program, CLAIM_ALL));
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
