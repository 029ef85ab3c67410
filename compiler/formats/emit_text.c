/* Writes the program's text form, for people, `git diff` and read_text.c.
 *
 *     pianola 1
 *     program 1f1b workers 4 stages 4 batches 8        plus `tied 3` if stages 0 and 3 share a token table: set 4
 *     team 0 of 2: F sum sum, B sum sum                    one line per stage with a team: its size, and what the
 *                                                          parts of its jobs exchange
 *     parts B 0.1: 4096-8256 - 0-4096                      if a B or W runs in parts: the bytes of the stage's gradient
 *                                                          that each part contributes, the last one's end excluded
 *     updates 1 1 1 3                                      if updates are jobs: microbatches per update, by stage
 *     period 4 times 10                                    if a part repeats: microbatches, and how often
 *     homes 2 zero 1: 0 1, 2 3                             one line per set, if any is sharded or has zero > 0: set 2
 *                                                          is sharded over 0 and 1, and 2 and 3 are its replica
 *     needs F 1 0: F 0 0, F 1 1                            one line per job, if pred() replaces the default
 *     rank 0 lane compute
 *     F 0 0 w=weight(0) stash=stash(0,0) y=act(0,0)
 *     B 0 0 w=weight(0) stash=stash(0,0) dy=grad(1,0) dw=wgrad(0) wait(RECV_B 1 0 from 1) free(stash(0,0) grad(1,0))
 *     rank 0 lane send 1
 *     SEND_F 0 0 to 1 t=act(0,0) wait(F 0 0) free(act(0,0))
 *     rank 0 lane recv 1
 *     RECV_B 1 0 from 1 t=grad(1,0)
 *     rank 0 issue
 *     0 1 2 0
 *     rank 0 memory 4096
 *     stash(0,0) 0 1024 grows wstash(0,0)
 *
 * Per rank: each lane's instructions in order; the rank's issue order as lane numbers, 0*3 for 0 0 0; and the arena's
 * size with every buffer's offset and size. Instructions have no numbers or times, so a line changes only when its
 * instruction does. Operation, stage, microbatch, instance (#) and peer identify an instruction, and a wait names the
 * instruction of another lane that must have ended. "dw=" writes where "dw+=" adds. A collective also says which
 * algorithm moves its data, "by ring". An operand may be a piece of a buffer, "w=weight(0)[1/4]", and a backward may
 * run in parts, "B 0 3[0/2]" first. A stage with a team of two is two stages, 0.0 and 0.1, one for each member. If
 * updates are jobs, "U 0 3" makes version 4 of stage 0's weights, and a job says which version it reads: "B 0 5 v4".
 * The issue order has a | at the period's begin and at its end. If buffers are in host memory, the size of that arena
 * follows: "memory 4096 host 1024". */
#include "formats.h"
#include <string.h>

static void put_instr(struct text *t, const struct program *p, const struct rank *k, const struct instr *in) {
    put_label(t, &p->names, in);
    if (is_job(in->op) && in->inst >= 0) {
        put_word(t, " v");
        put_int(t, in->inst);
    }
    if (is_group(in->op)) {
        put_word(t, " by ");
        put_word(t, algorithm_name[in->algorithm]);
    }
    for (uint32_t a = in->arg; a < in->arg + in->narg; a++) {
        int role = k->arg[a].role;
        put_word(t, " ");
        put_word(t, role_name[role]);
        put_word(t, op_accumulates(in->op, role) && !is_first(in, role) ? "+=" : "=");
        put_arg(t, &p->names, k, &k->arg[a]);
    }
    for (uint32_t i = 0; i < in->nwait; i++) {
        put_word(t, i ? ", " : " wait(");
        put_label(t, &p->names, &k->ins[k->wait[in->wait + i]]);
    }
    put_word(t, in->nwait ? ")" : "");
    for (uint32_t i = 0; i < in->nfree; i++) {
        put_word(t, i ? " " : " free(");
        put_buf(t, &p->names, &k->buf[k->freed[in->free + i]]);
    }
    put_word(t, in->nfree ? ")\n" : "\n");
}

static void put_rank_lanes(struct text *t, const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    struct lane_lists lists = lane_lists(k);
    for (int l = 0; l < k->nlanes; l++) {
        put(t, "rank %d lane ", r);
        put_lane(t, p, &k->lane[l]);
        put_word(t, "\n");
        for (int32_t i = lists.at[l]; i < lists.at[l + 1]; i++)
            put_instr(t, p, k, &k->ins[lists.ins[i]]);
    }
}

/* Writes a token of the issue order, breaking lines at 100 columns. */
static void put_token(struct text *t, const char *token, size_t *column) {
    size_t n = strlen(token);
    if (*column > 0 && *column + 1 + n > 100) {
        put_word(t, "\n");
        *column = 0;
    }
    put_word(t, *column ? " " : "");
    put_word(t, token);
    *column += n + (*column > 0);
}

static void put_issue(struct text *t, const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    put(t, "rank %d issue\n", r);
    size_t column = 0;
    for (int i = 0, run; i <= k->nins; i += run) {
        for (int mark = 0; mark < 2 && p->period; mark++)
            if (i == (mark ? k->period.end : k->period.begin))
                put_token(t, "|", &column);
        if (i == k->nins)
            break;
        for (run = 1;
             i + run < k->nins && k->ins[i + run].lane == k->ins[i].lane && section_of(k, i + run) == section_of(k, i);)
            run++;
        char token[32];
        snprintf(token, sizeof token, run > 1 ? "%d*%d" : "%d", k->ins[i].lane, run);
        put_token(t, token, &column);
    }
    put_word(t, column ? "\n" : "");
}

static void put_buffers(struct text *t, const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    put(t, "rank %d memory %lld", r, (long long)k->arena);
    if (k->host)
        put(t, " host %lld", (long long)k->host);
    put_word(t, "\n");
    for (int i = 0; i < k->nbufs; i++) {
        const struct buf *b = &k->buf[i];
        put_buf(t, &p->names, b);
        put_word(t, " ");
        if (b->off >= 0)
            put_int(t, b->off);
        else
            put_word(t, "-");
        put_word(t, " ");
        put_int(t, b->bytes);
        if (b->grows >= 0) {
            put_word(t, " grows ");
            put_buf(t, &p->names, &k->buf[b->grows]);
        }
        put_word(t, "\n");
    }
}

/* Writes a file name, which may contain anything: bytes outside a printable word as %HH, an empty name as %00. */
static void put_file_name(struct text *t, const char *name) {
    for (const unsigned char *s = (const unsigned char *)name; *s; s++)
        if (*s > ' ' && *s != '%' && *s != 0x7f)
            put_bytes(t, (const char *)s, 1);
        else
            put(t, "%%%02X", *s);
    put_word(t, *name ? "" : "%00");
}

static void put_homes(struct text *t, const struct program *p) {
    bool any = false;
    for (int s = 0; p->homes && s < sets_in(p); s++)
        any |= p->homes[s].size > 1 || p->homes[s].zero > 0 || p->names.shared;
    for (int s = 0; any && s < sets_in(p); s++) {
        const struct homes *homes = &p->homes[s];
        if (!has_weights(p, s))
            continue;
        put_word(t, "homes ");
        put_stage(t, &p->names, s);
        if (homes->zero)
            put(t, " zero %d", homes->zero);
        for (int i = 0; i < homes->lists * homes->size; i++)
            put(t, "%s %d", i == 0 ? ":" : i % homes->size ? "" : ",", homes->rank[i]);
        put_word(t, "\n");
    }
}

/* Writes the team whose first member is stage s: its size, and what it exchanges. */
static void put_team(struct text *t, const struct program *p, int s) {
    put(t, "team %d of %d%s", p->names.member[s].stage, p->names.member[s].size,
        p->names.whole && p->names.whole[s] ? "" : " divided");
    const char *between = ": ";
    for (int d = 0; d < NDIRS && p->exchange; d++) {
        const struct exchanges *exchange = &p->exchange[(int64_t)s * NDIRS + d];
        if (!exchange->n)
            continue;
        put_word(t, between);
        put_word(t, op_name[d]);
        for (int i = 0; i < exchange->n; i++) {
            const struct exchange *at = &exchange->at[i];
            put(t, " %s%s", at->op == OP_none ? "-" : exchange_name[at->op - OP_ALL_REDUCE_A], at->late ? " late" : "");
        }
        between = ", ";
    }
    put_word(t, "\n");
}

/* Writes the sets without weights. */
static void put_bare(struct text *t, const struct program *p) {
    if (!p->bare)
        return;
    put_word(t, "bare");
    for (int set = 0; set < sets_in(p); set++)
        if (p->bare[set]) {
            put_word(t, " ");
            put_stage(t, &p->names, set);
        }
    put_word(t, "\n");
}

/* Writes the bytes of its stage's gradient that each part of a backward contributes. */
static void put_ranges(struct text *t, const struct program *p, int s, int d) {
    const struct ranges *ranges = &p->contributed[(int64_t)s * NDIRS + d];
    if (!ranges->n)
        return;
    put(t, "parts %s ", op_name[d]);
    put_stage(t, &p->names, s);
    for (int i = 0; i < ranges->n; i++) {
        const struct byte_range *at = &ranges->at[i];
        put_word(t, i ? " " : ": ");
        if (at->from < at->to)
            put(t, "%lld-%lld", (long long)at->from, (long long)at->to);
        else
            put_word(t, "-");
    }
    put_word(t, "\n");
}

static void put_updates(struct text *t, const struct program *p) {
    put_word(t, "updates");
    for (int s = 0; s < p->stages; s++)
        if (!p->names.member || p->names.member[s].place <= 0)
            put(t, " %d", p->update[s] / slices_of(&p->names));
    put_word(t, "\n");
}

/* Writes the stages on which slices read each other's keys and values, unless all do. */
static void put_attention(struct text *t, const struct program *p) {
    bool any = false;
    if (!p->attends)
        return;
    put_word(t, "attention");
    for (int s = 0; s < p->stages; s++)
        if (p->attends[s]) {
            put_word(t, " ");
            put_stage(t, &p->names, s);
            any = true;
        }
    put_word(t, any ? "\n" : " none\n");
}

static void put_job_name(struct text *t, const struct program *p, const struct job_name *job) {
    put_label(t, &p->names, &(struct instr){.op = job->d, .stage = job->s, .batch = job->b, .inst = -1, .peer = -1});
}

void emit_text_head(struct text *out, const struct program *p) {
    put_word(out, "pianola 1\nprogram ");
    put_file_name(out, p->name);
    put(out, " workers %d stages %d batches %d", p->workers, script_stages(&p->names, p->stages),
        p->batches / slices_of(&p->names));
    if (p->names.slices)
        put(out, " slices %d", p->names.slices);
    if (p->tied)
        put(out, " tied %d", p->names.member ? p->names.member[p->unembedding].stage : p->unembedding);
    put_word(out, p->names.shared ? " shared\n" : "\n");
    for (int s = 0; p->names.member && s < p->stages; s++)
        if (p->names.member[s].place == 0)
            put_team(out, p, s);
    put_bare(out, p);
    for (int s = 0; p->contributed && s < p->stages; s++)
        for (int d = 0; d < NDIRS; d++)
            put_ranges(out, p, s, d);
    put_attention(out, p);
    if (p->update)
        put_updates(out, p);
    if (p->period)
        put(out, "period %d times %lld\n", p->period / slices_of(&p->names), (long long)p->repeats);
    put_homes(out, p);
    for (int i = 0; i < p->nneeds; i++) { /* only if pred() replaces the default dependencies */
        put_word(out, "needs ");
        put_job_name(out, p, &p->need[i].job);
        put_word(out, ":");
        for (int32_t e = p->need[i].pred; e < p->need[i + 1].pred; e++) {
            put_word(out, e > p->need[i].pred ? ", " : " ");
            put_job_name(out, p, &p->pred[e]);
        }
        put_word(out, "\n");
    }
}

void emit_text(struct text *out, const struct program *p) {
    emit_text_head(out, p);
    for (int r = 0; r < p->workers; r++) {
        put_rank_lanes(out, p, r);
        put_issue(out, p, r);
        put_buffers(out, p, r);
    }
}
