/* Writes the schedule as the CSV of PyTorch's pipelining (torch/distributed/pipelining/schedules.py): one row per rank,
 * one cell per job.
 *
 * The form with communication is PyTorch's own lowering of the form without, cell for cell, so PyTorch runs the same
 * program with either. UNSHARD and RESHARD keep the weights of the next three stages available, and REDUCE_GRAD follows
 * a stage's last backward. Sends and receives are placed by visiting the ranks in turn, one cell at a time. A sender
 * inserts its peer's receive at the peer's current position, which is a safe order. It waits for a forward's send after
 * the backward that proves its receipt, and for a backward's send at the end of its row. When PyTorch drops two stages
 * at once, it uses the order of a Python set; here the lower one goes first.
 *
 * This is PyTorch 2.15, which rejects files without waits. Earlier versions reject files with them; give those the form
 * without communication, which describes the same schedule. */
#include "formats.h"
#include <stdlib.h>
#include <string.h>

enum { UNSHARD = NDIRS, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD };
enum { ACTIVE = 3, STAGES_AT_HAND = ACTIVE + 1 }; /* a pair may add one more */

struct cell {
    int what; /* OP_F .. OP_W, or an action on a stage, from UNSHARD on */
    int s, b;
    int32_t first, second; /* the jobs; -1: none */
};

struct row {
    struct cell *cell;
    size_t n, cap;
    struct text out, last; /* last: cells for the end of the row */
};

struct torch {
    const struct spec *sp;
    int *rank; /* per stage */
    struct row *row;
};

/* ---- what PyTorch can express ---- */

static void check_expressible(struct torch *torch) {
    const struct spec *sp = torch->sp;
    if (sp->updates.every)
        die("%s: PyTorch's CSV is for schedules with one update at the end of a step, but here updates are jobs: "
            "update = \"flush\" makes it one",
            sp->file);
    const char *why = sp->pred       ? "the schedule has dependencies of its own"
                      : is_graph(sp) ? "the model is not a chain of stages"
                                     : NULL;
    if (why)
        die("%s: PyTorch's CSV is for a chain of stages, but %s", sp->file, why);
    for (int s = 0; s < sp->stages; s++)
        torch->rank[s] = -1;
    for (const struct job *j = sp->job; j < sp->job + sp->njobs; j++) {
        const char *name = job_name(NULL, j->s, j->b, j->d);
        if (j->d == OP_R)
            die("%s: PyTorch's CSV has no recompute, but this schedule has %s", sp->file, name);
        if (torch->rank[j->s] >= 0 && torch->rank[j->s] != j->rank)
            die("%s: PyTorch's CSV is for schedules that run a stage on one rank, but ranks %d and %d both run stage "
                "%d",
                sp->file, torch->rank[j->s], j->rank, j->s);
        if (j->home >= sp->workers)
            die("%s: PyTorch's CSV cannot express that the weights of stage %d are sharded over ranks", sp->file, j->s);
        if (j->home != j->rank)
            die("%s: PyTorch's CSV cannot express that %s runs on rank %d with weights of rank %d", sp->file, name,
                j->rank, j->home);
        torch->rank[j->s] = j->rank;
    }
    for (int i = 0; i < sp->npairs; i++) {
        const struct pair *pair = &sp->pair[i];
        const struct job *a = &sp->job[pair->first], *b = &sp->job[pair->second];
        bool fb = a->d == OP_F && (b->d == OP_B || b->d == OP_I), bf = b->d == OP_F && (a->d == OP_B || a->d == OP_I);
        if (!fb && !bf)
            die("%s: PyTorch's CSV overlaps a forward and a backward, but here %s and %s overlap", sp->file,
                job_name(NULL, a->s, a->b, a->d), job_name(NULL, b->s, b->b, b->d));
    }
}

/* ---- cells ---- */

static void add_cell(struct row *row, struct cell cell) {
    GROW(row->cell, row->cap, row->n + 1);
    row->cell[row->n++] = cell;
}

static void add_stage_cell(struct row *row, int what, int s) { add_cell(row, (struct cell){what, s, -1, -1, -1}); }

static void list_jobs(struct torch *torch, const struct sched *sc) {
    const struct spec *sp = torch->sp;
    for (int r = 0; r < sp->workers; r++)
        for (int i = 0; i < sc->norder[r]; i++) {
            int32_t j = sc->order[r][i], other = partner_of(sp, j);
            const struct job *job = &sp->job[j];
            if (job->pair && other < 0)
                continue; /* it is in the cell of its pair's first job */
            add_cell(&torch->row[r], (struct cell){job->d, job->s, job->b, j, other});
        }
}

static bool among(const int *list, int n, int s) {
    for (int i = 0; i < n; i++)
        if (list[i] == s)
            return true;
    return false;
}

/* Returns, for each cell of a rank, the stages needed from it on, nearest first: ahead[i * STAGES_AT_HAND ..], padded
 * with -1. Walks once from the end; each stage encountered moves to the front. */
static int *look_ahead(const struct torch *torch, const struct row *row) {
    int *ahead = NEW(int, STAGES_AT_HAND * row->n), *stage = NEW(int, torch->sp->stages), n = 0;
    size_t *at = NEW(size_t, torch->sp->stages); /* per stage: the next cell that needs it */
    for (size_t i = row->n; i-- > 0;) {
        const struct cell *cell = &row->cell[i];
        int met[2] = {cell->second >= 0 ? torch->sp->job[cell->second].s : cell->s, cell->s};
        for (int m = 0; m < 2; m++) {
            int from = 0;
            while (from < n && stage[from] != met[m])
                from++;
            n += from == n;
            memmove(stage + 1, stage, sizeof *stage * (size_t)from);
            stage[0] = met[m];
            at[met[m]] = i;
        }
        int count = n < ACTIVE ? n : ACTIVE;
        if (n > ACTIVE && at[stage[ACTIVE]] == at[stage[ACTIVE - 1]])
            count++; /* both of a pair */
        for (int k = 0; k < STAGES_AT_HAND; k++)
            ahead[i * STAGES_AT_HAND + (size_t)k] = k < count ? stage[k] : -1;
    }
    return ahead;
}

static int by_number(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

/* Closes a stage if this job is its last backward, B or W. */
static void count_backward(const struct torch *torch, struct row *out, int32_t j, int *left) {
    const struct job *job = j >= 0 ? &torch->sp->job[j] : NULL;
    if (job && (job->d == OP_B || job->d == OP_W) && --left[job->s] == 0) {
        add_stage_cell(out, REDUCE_GRAD, job->s);
        add_stage_cell(out, WAIT_REDUCE_GRAD, job->s);
    }
}

static void add_weights(const struct torch *torch, struct row *row, int *left) {
    const int *ahead = look_ahead(torch, row);
    struct row out = {0};
    int held[STAGES_AT_HAND], nheld = 0; /* ascending */
    for (size_t i = 0; i <= row->n; i++) {
        const int *next = ahead + i * STAGES_AT_HAND;
        int n = 0;
        while (i < row->n && n < STAGES_AT_HAND && next[n] >= 0)
            n++;
        for (int k = 0; k < nheld; k++)
            if (!among(next, n, held[k]))
                add_stage_cell(&out, RESHARD, held[k]);
        for (int k = 0; k < n; k++)
            if (!among(held, nheld, next[k]))
                add_stage_cell(&out, UNSHARD, next[k]);
        if (i == row->n)
            break;
        memcpy(held, next, sizeof *held * (size_t)n);
        nheld = n;
        sort(held, (size_t)n, sizeof *held, by_number);
        add_cell(&out, row->cell[i]);
        count_backward(torch, &out, row->cell[i].first, left);
        count_backward(torch, &out, row->cell[i].second, left);
    }
    *row = out;
}

/* ---- text ---- */

static void put_cell(struct row *row, const char *text) { put(&row->out, "%s%s", row->out.n ? "," : "", text); }

static void put_action(const struct torch *torch, struct row *row, const struct cell *cell) {
    static const char *const name[] = {[UNSHARD] = "UNSHARD",
                                       [RESHARD] = "RESHARD",
                                       [REDUCE_GRAD] = "REDUCE_GRAD",
                                       [WAIT_REDUCE_GRAD] = "WAIT_REDUCE_GRAD"};
    const struct job *other = cell->second >= 0 ? &torch->sp->job[cell->second] : NULL;
    if (cell->what >= NDIRS)
        put_cell(row, format("%d%s", cell->s, name[cell->what]));
    else if (other)
        put_cell(row, format("(%s;%s)OVERLAP_F_B", job_name(NULL, cell->s, cell->b, cell->what),
                             job_name(NULL, other->s, other->b, other->d)));
    else
        put_cell(row, job_name(NULL, cell->s, cell->b, cell->what));
}

/* Returns the stage that reads job j's output; -1: none. */
static int reader(const struct torch *torch, const struct job *j) {
    if (j->d == OP_F)
        return j->s + 1 < torch->sp->stages ? j->s + 1 : -1;
    return j->d == OP_B || j->d == OP_I ? j->s - 1 : -1;
}

static bool has_inputs(const struct torch *torch, const bool *done, int32_t j) {
    if (j < 0 || torch->sp->job[j].d == OP_W)
        return true;
    const struct job *job = &torch->sp->job[j];
    bool forward = job->d == OP_F;
    int from = forward ? job->s - 1 : job->s + 1;
    if (from < 0 || from == torch->sp->stages)
        return true;
    int32_t need = job_at(torch->sp, from, job->b, forward ? OP_F : OP_B);
    return done[need >= 0 ? need : job_at(torch->sp, from, job->b, OP_I)];
}

/* Writes the wait for a forward's send, after the matching backward. */
static void put_wait(const struct torch *torch, int32_t j) {
    const struct job *job = j >= 0 ? &torch->sp->job[j] : NULL;
    if (job && (job->d == OP_B || job->d == OP_I) && job->s + 1 < torch->sp->stages &&
        torch->rank[job->s + 1] != job->rank)
        put_cell(&torch->row[job->rank], format("%dWAIT_SEND_F%d", job->s, job->b));
}

static void finish_job(const struct torch *torch, bool *done, int32_t j) {
    if (j < 0)
        return;
    const struct job *job = &torch->sp->job[j];
    int to = reader(torch, job);
    char way = job->d == OP_F ? 'F' : 'B';
    done[j] = true;
    if (to < 0 || torch->rank[to] == job->rank)
        return;
    put_cell(&torch->row[job->rank], format("%dSEND_%c%d", job->s, way, job->b));
    put_cell(&torch->row[torch->rank[to]], format("%dRECV_%c%d", to, way, job->b));
    if (way == 'B')
        put(&torch->row[job->rank].last, ",%dWAIT_SEND_B%d", job->s, job->b);
}

static void put_with_messages(const struct torch *torch) {
    bool *done = NEW(bool, torch->sp->njobs);
    size_t *at = NEW(size_t, torch->sp->workers);
    for (bool more = true; more;) { /* terminates: the scheduler has run these jobs in this order */
        more = false;
        for (int r = 0; r < torch->sp->workers; r++) {
            struct row *row = &torch->row[r];
            const struct cell *cell = &row->cell[at[r]];
            if (at[r] == row->n || !has_inputs(torch, done, cell->first) || !has_inputs(torch, done, cell->second))
                continue;
            put_action(torch, row, cell);
            put_wait(torch, cell->first);
            put_wait(torch, cell->second);
            finish_job(torch, done, cell->first);
            finish_job(torch, done, cell->second);
            at[r]++;
            more = true;
        }
    }
}

void emit_torch(struct text *out, const struct spec *sp, const struct sched *sc, bool comms) {
    struct torch torch = {sp, NEW(int, sp->stages), NEW(struct row, sp->workers)};
    int *left = NEW(int, sp->stages);
    if (sp->names.slices)
        die("%s: PyTorch's CSV has no slices: its jobs are for whole microbatches; leave 'slices' out", sp->file);
    if (sp->names.member)
        die("%s: PyTorch's CSV cannot express that ranks compute a job together: leave teams out", sp->file);
    check_expressible(&torch);
    list_jobs(&torch, sc);
    for (int s = 0; s < sp->stages; s++)
        left[s] = sp->batches;
    for (int r = 0; r < sp->workers; r++)
        if (torch.row[r].n == 0)
            die("%s: PyTorch's CSV has jobs for every rank, but rank %d has none", sp->file, r);
    for (int r = 0; comms && r < sp->workers; r++)
        add_weights(&torch, &torch.row[r], left);
    if (comms)
        put_with_messages(&torch);
    for (int r = 0; r < sp->workers; r++) {
        for (size_t i = 0; !comms && i < torch.row[r].n; i++)
            put_action(&torch, &torch.row[r], &torch.row[r].cell[i]);
        put_bytes(out, torch.row[r].out.s, torch.row[r].out.n);
        if (torch.row[r].last.n)
            put_bytes(out, torch.row[r].last.s, torch.row[r].last.n);
        put(out, "\n");
    }
}
