/* Chooses the programs to break, and compiles each. Skips settings that do not fit a schedule, or that deadlock. */
#include "bases.h"
#include "base/read_file.h"
#include "cli/pipeline.h"
#include "random_spec.h"
#include <glob.h>
#include <stdlib.h>

/* Shrinks tensors: symbolic memory works byte by byte, and in few bytes a tensor still overlaps parts of others. */
static void shrink(struct stage *st) {
    bool wide = st->bytes[K_wgrad] > st->bytes[K_weight];
    for (int k = 0; k < NKINDS; k++)
        st->bytes[k] = st->bytes[k] > 5 ? 1 + st->bytes[k] % 5 : st->bytes[k];
    st->bytes[K_grad] = st->bytes[K_input] = 5;
    st->bytes[K_wgrad] = st->bytes[K_weight] * (wide ? 2 : 1);
    if (st->bytes[K_wstash] < st->bytes[K_stash])
        st->bytes[K_wstash] = st->bytes[K_stash] + 1;
}

/* Divides the gradient, one piece that travels whole, among the parts of a backward. */
static void touch_all(struct stage *st, int d, int stops) {
    if (stops == 0 && st->parts > 0)
        return;
    int64_t bytes = st->bytes[K_wgrad];
    struct touched *touched = NEW(struct touched, stops + 1);
    struct byte_range *range = NEW(struct byte_range, stops + 1);
    st->pieces = 1;
    st->parts = stops + 1 > st->parts ? stops + 1 : st->parts;
    for (int part = 0; part <= stops; part++) {
        range[part] =
            (struct byte_range){bytes * (stops - part) / (stops + 1), bytes * (stops - part + 1) / (stops + 1)};
        touched[part] = (struct touched){0, bytes && range[part].from == range[part].to ? -1 : 0};
    }
    st->touched[d] = touched;
    st->range[d] = range;
}

/* Sets the bytes that each part of a backward contributes to its pieces. No two parts share a piece of one byte. */
static void divide_pieces(struct stage *st) {
    int64_t piece = st->pieces ? st->bytes[K_wgrad] / st->pieces : 0, end = st->bytes[K_wgrad];
    struct touched *touched = NEW(struct touched, st->parts);
    memcpy(touched, st->touched[OP_B], sizeof *touched * (size_t)st->parts);
    struct byte_range *range = NEW(struct byte_range, st->parts);
    for (int part = 0; part < st->parts; part++) {
        bool shares = part + 1 < st->parts && touched[part + 1].high == touched[part].low;
        if (shares && piece == 1)
            touched[part + 1].high--;
        range[part] = (struct byte_range){touched[part].low * piece + (shares && piece > 1 ? 1 : 0), end};
        end = range[part].from;
    }
    st->touched[OP_B] = st->touched[OP_W] = touched;
    st->range[OP_B] = st->range[OP_W] = range;
}

/* Gives teams exchanges of a few bytes, the same for all members. */
static void add_stops(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    struct stage *st = costs->stage;
    for (int s = 0; s < sp->stages && costs->exchange; s++)
        for (int d = 0; d < NDIRS; d++) {
            const struct exchanges *exchange = &costs->exchange[(int64_t)s * NDIRS + d];
            bool first = sp->names.member[s].place <= 0;
            st[s].nstops[d] = exchange->n;
            st[s].stop[d] = first ? NEW(struct stop, exchange->n) : st[s - 1].stop[d];
            st[s].share[d] = NEW(double, exchange->n + 1);
            for (int part = 0; part <= exchange->n; part++)
                st[s].share[d][part] = 1.0 / (exchange->n + 1);
            if (d == OP_B || d == OP_W)
                touch_all(&st[s], d, exchange->n);
            for (int n = 0; n < exchange->n && first; n++) {
                int each = exchange->at[n].op == OP_ALL_REDUCE_A ? 1 : sp->names.member[s].size;
                st[s].stop[d][n] = (struct stop){.exchange = exchange->at[n], .bytes = below(5) * each};
            }
        }
}

/* Pretends that each team's members have some parameters whole. */
static void keep_whole(struct spec *sp) {
    bool *whole = NEW(bool, sp->stages);
    for (int s = 0; s < sp->stages; s++)
        whole[s] = sp->names.member[s].place >= 0;
    costs_of(sp)->whole = whole;
}

static struct costs *stages_of(const struct base *b, struct spec *sp) {
    const struct costs before = *costs_of(sp);
    random_state = b->seed;
    if (sp->names.member && b->seed % 2 == 0)
        keep_whole(sp);
    struct costs *costs = b->sizes ? draw_stages(sp) : unit_stages(sp);
    for (int s = 0; s < stage_entries(costs); s++) {
        if (b->sizes) {
            shrink(&costs->stage[s]);
            costs->stage[s].pieces = costs->stage[s].parts = 0; /* find_shards computes them again */
        }
        if (b->no_token)
            costs->stage[s].bytes[K_token] = 0;
    }
    if (b->sizes)
        find_shards(costs);
    for (int s = 0; s < sp->stages; s++)
        if (costs->stage[s].touched[OP_B])
            divide_pieces(&costs->stage[s]);
    add_stops(costs);
    for (int s = sp->stages + sp->names.sets; s < stage_entries(costs); s++) {
        costs->stage[s].bytes[K_hstash] = costs->stage[s].bytes[K_rstash] = costs->stage[s].bytes[K_stash];
        costs->stage[s].bytes[K_hinput] = costs->stage[s].bytes[K_rinput] = costs->stage[s].bytes[K_input];
    }
    if (b->file) /* jobs take as long as before, although the jobs of a script give no cost */
        take_job_costs(costs, &before);
    return costs;
}

/* Compiles a period, as the pipeline does. */
static void compile_steady(const struct base *b, const struct script_args *args, struct compiled *c) {
    struct compile all = {.args = *args};
    compile_until(&all, TRIED_PERIODS | SCHED);
    struct spec *sp = costed(all.spec);
    *c = (struct compiled){sp, all.graph, lower_of(sp, stages_of(b, sp), all.graph, all.sched)};
    mem_of(sp, c->program);
    lanes_sync(c->program);
}

struct compiling {
    const struct base *base;
    struct compiled *made;
};
static void compile(void *with) {
    const struct base *b = ((struct compiling *)with)->base;
    struct compiled *c = ((struct compiling *)with)->made;
    if (b->text) {
        *c = (struct compiled){.program = read_text(b->file, file_text(b->file))};
        return;
    }
    struct script_args args = {.schedule = b->file, .model = b->model, .set = (const char **)b->set, .nset = b->nset};
    args.lanes = (enum lanes_per)b->lanes;
    args.recompute = b->recompute;
    if (b->steady) {
        compile_steady(b, &args, c);
        return;
    }
    c->spec = b->file ? script_load(&args)
                      : draw_spec(b->seed, CAPS | BANDWIDTH | ORDERS | COARSE | (b->tied ? TIED : 0) |
                                               (b->sharded ? SHARDED : 0) | (b->rounds ? ROUNDS : 0) |
                                               (b->host ? HOST : 0) | (b->slices ? SLICES : 0) | (b->bare ? BARE : 0));
    if (b->shared)
        name_spec_sets(c->spec, c->spec->names.tables > 0, true);
    if (b->file) /* costs, which determine the order, are the usual ones */
        c->spec = costed(c->spec);
    struct costs *costs = costs_of(c->spec);
    costs->clip = b->clip;
    costs->post_validation = b->clip && b->post_validation && c->spec->workers > 1;
    stages_of(b, c->spec);
    c->graph = graph_of(c->spec);
    c->program = lower_of(c->spec, costs, c->graph, sched_of(c->spec, costs, c->graph));
    mem_of(c->spec, c->program);
    lanes_sync(c->program);
}

bool compile_base(const struct base *b, struct compiled *c) { return !death_of(compile, &(struct compiling){b, c}); }

const char *describe_base(const struct base *b) {
    static const char *const lanes[] = {"edge", "peer", "rank"};
    struct text t = {0};
    if (b->text)
        return b->file;
    if (b->file)
        put(&t, "%s --lanes %s", b->file, lanes[b->lanes]);
    else
        put(&t, "draw_spec(%llu)", (unsigned long long)b->seed);
    put(&t, "%s%s", b->model ? " --model " : "", b->model ? b->model : "");
    for (int i = 0; i < b->nset; i++)
        put(&t, " -D %s", b->set[i]);
    put(&t, "%s%s%s%s%s%s%s%s%s%s%s", b->recompute ? " --recompute" : "", b->tied ? ", tied" : "",
        b->sharded ? ", sharded" : "", b->rounds ? ", in rounds and pieces" : "", b->host ? ", in host memory" : "",
        b->slices ? ", in slices" : "", b->bare ? ", bare" : "", b->shared ? ", shared" : "",
        b->clip ? b->post_validation ? ", clipped afterwards" : ", clipped" : "", b->sizes ? ", sizes drawn" : "",
        b->no_token ? ", tokens of no bytes" : "");
    return t.s;
}

/* ---- the choice ---- */

enum { MOST_INSTRUCTIONS = 160, MOST_DRAWN = 100 };

static int instructions(const struct program *p) {
    int n = 0;
    for (int r = 0; r < p->workers; r++)
        n += p->rank[r].nins;
    return n;
}

/* Adds the base if it compiles to few enough instructions. */
static bool add_base(struct base *out, int *n, struct base b, int most) {
    struct compiled c;
    b.sizes = *n % 2;
    b.no_token = *n % 3 == 1;
    bool fits = compile_base(&b, &c) && instructions(c.program) <= most && instructions(c.program) >= 8;
    if (fits)
        out[(*n)++] = b;
    free_all();
    return fits;
}

/* Adds a schedule with one or two of the settings that fit it. */
static void add_schedule(struct base *out, int *n, const char *file) {
    static const struct base settings[] = {
        {.set = {"workers=2", "batches=2"}, .nset = 2},
        {.set = {"workers=3", "batches=2", "stages=3"}, .nset = 3},
        {.set = {"workers=3", "batches=3"}, .nset = 2},
        {.set = {"workers=4", "batches=4", "group=2"}, .nset = 3},
        {.set = {"workers=4", "batches=3", "stages=2"}, .nset = 3},
        {.set = {"batches=2"}, .nset = 1},
        {.nset = 0},
    };
    int before = *n;
    for (size_t i = 0; i < sizeof settings / sizeof *settings && *n < before + 2; i++)
        for (int recompute = *n % 5 == 0; recompute >= 0; recompute--) {
            struct base b = settings[i];
            b.file = file;
            b.seed = (uint64_t)*n;
            b.lanes = *n % 3;
            b.recompute = recompute;
            if (add_base(out, n, b, *n == before ? 400 : MOST_INSTRUCTIONS))
                break;
        }
}

/* Adds programs with stashes or inputs, and optimizer state, in host memory. */
static void add_offloading(struct base *out, int *n) {
    static const struct base settings[] = {
        {.set = {"workers=2", "batches=2"}, .nset = 2},
        {.set = {"workers=2", "batches=2", "split=true"}, .nset = 3},
        {.set = {"workers=2", "batches=3", "away=1", "state=true"}, .nset = 4},
        {.set = {"workers=2", "batches=2", "split=true", "state=true"}, .nset = 4, .recompute = true},
        {.set = {"workers=3", "stages=2", "batches=2", "state=true"}, .nset = 4},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct base b = settings[i];
        b.file = "tests/judges/offload.lua";
        b.seed = (uint64_t)(i * 7 + 1);
        b.lanes = *n % 3;
        if (!add_base(out, n, b, MOST_INSTRUCTIONS))
            fprintf(stderr, "%s: %s\n", describe_base(&b), diag_text);
    }
}

/* Adds stages that read several others, beside the same chain, split, and with recompute. */
static void add_graphs(struct base *out, int *n) {
    static const struct base graphs[] = {
        {.model = "schedules/models/legs.lua", .set = {"workers=3", "batches=2"}, .nset = 2},
        {.model = "schedules/models/legs.lua", .set = {"workers=3", "batches=2", "split=true"}, .nset = 3},
        {.model = "schedules/models/unet.lua", .set = {"workers=4", "batches=2", "depth=2"}, .nset = 3},
        {.model = "schedules/models/unet.lua", .set = {"workers=4", "batches=1", "depth=2", "split=true"}, .nset = 4},
        {.model = "schedules/models/legs.lua", .set = {"workers=3", "batches=1"}, .nset = 2, .recompute = true},
    };
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        struct base b = graphs[i];
        b.file = "schedules/graph.lua";
        b.seed = (uint64_t)*n;
        b.lanes = *n % 3;
        add_base(out, n, b, MOST_INSTRUCTIONS);
    }
}

/* Adds teams of two on all ranks of a schedule, also for a model whose members divide a token table. */
static void add_teams(struct base *out, int *n) {
    static const char small[] = "tests/judges/tied.lua";
    static const struct base teams[] = {
        {.file = "schedules/serial.lua", .set = {"stages=1", "batches=2"}, .nset = 2},
        {.file = "schedules/1f1b.lua", .set = {"workers=2", "batches=1"}, .nset = 2},
        {.file = "schedules/1f1b.lua", .set = {"workers=2", "batches=2"}, .nset = 2},
        {.file = "schedules/1f1b.lua", .set = {"workers=2", "batches=1"}, .nset = 2, .recompute = true},
        {.file = "schedules/zb_h1.lua", .set = {"workers=2", "batches=1"}, .nset = 2},
        {.file = "schedules/2bp.lua", .set = {"workers=1", "batches=3"}, .nset = 2},
        {.file = "schedules/ddp.lua", .set = {"workers=2", "batches=2", "stages=1"}, .nset = 3},
        {.file = "schedules/fsdp.lua", .set = {"workers=2", "batches=2", "stages=1"}, .nset = 3},
        {.file = "schedules/serial.lua", .model = small, .set = {"stages=1", "batches=1"}, .nset = 2},
        {.file = "schedules/1f1b.lua", .model = small, .set = {"workers=2", "batches=1"}, .nset = 2},
    };
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++) {
        struct base b = teams[i];
        b.model = b.model ? b.model : "schedules/models/integers.lua";
        b.set[b.nset++] = "tensor=2";
        b.set[b.nset++] = "layers=2";
        b.seed = (uint64_t)(i + 3);
        b.lanes = *n % 3;
        for (int after = 0; after < 2; after++) {
            b.post_validation = after;
            if (!add_base(out, n, b, 300))
                fprintf(stderr, "%s: %s\n", describe_base(&b), diag_text);
        }
    }
}

/* Adds teams that share weights: each member at home with its own, or all on one rank; sharded, fetched, replicated. */
static void add_shared(struct base *out, int *n) {
    static const struct base shared[] = {
        {.file = "schedules/1f1b.lua", .set = {"workers=2", "batches=2"}, .nset = 2},
        {.file = "schedules/1f1b.lua", .set = {"workers=2", "batches=2"}, .nset = 2, .recompute = true},
        {.file = "schedules/zb_h1.lua", .set = {"workers=2", "batches=1"}, .nset = 2},
        {.file = "schedules/ddp.lua", .set = {"workers=2", "batches=2", "stages=1"}, .nset = 3},
        {.file = "schedules/zero1.lua", .set = {"workers=2", "batches=2", "stages=1"}, .nset = 3},
        {.file = "schedules/zero2.lua", .set = {"workers=2", "batches=2", "stages=1"}, .nset = 3},
        {.file = "schedules/fsdp.lua", .set = {"workers=2", "batches=2", "stages=1"}, .nset = 3},
        {.file = "schedules/serial.lua", .set = {"stages=2", "batches=2"}, .nset = 2},
    };
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        struct base b = shared[i];
        b.shared = true;
        b.set[b.nset++] = "tensor=2";
        b.seed = (uint64_t)(i + 5);
        b.lanes = *n % 3;
        if (!add_base(out, n, b, 300))
            fprintf(stderr, "%s: %s\n", describe_base(&b), diag_text);
    }
}

/* Adds random slices: with added orders, recompute, backwards on other ranks, and stages without attention. */
static void add_slices(struct base *out, int *n) {
    for (uint64_t seed = 1, before = (uint64_t)*n; seed < 60 && (uint64_t)*n < before + 8; seed++)
        add_base(out, n, (struct base){.seed = seed, .slices = true, .lanes = *n % 3}, MOST_INSTRUCTIONS);
}

/* Adds periods, with many microbatches. */
static void add_steady(struct base *out, int *n) {
    static const struct base steady[] = {
        {.file = "schedules/pipedream.lua", .set = {"replicas=1,1"}, .nset = 1},
        {.file = "schedules/pipedream.lua", .set = {"replicas=2,1"}, .nset = 1},
        {.file = "schedules/pipedream.lua", .set = {"replicas=1,1,1"}, .nset = 1},
        {.file = "schedules/pipedream.lua", .set = {"replicas=1,1"}, .nset = 1, .recompute = true},
        {.file = "schedules/pipedream_vertical.lua", .set = {"workers=2"}, .nset = 1},
        {.file = "schedules/pipedream_vertical.lua", .set = {"workers=3"}, .nset = 1},
        {.file = "schedules/pipedream_naive.lua", .set = {"workers=2"}, .nset = 1},
        {.file = "schedules/pipedream_2bw.lua", .set = {"workers=2", "update=2"}, .nset = 2},
        {.file = "schedules/asp.lua", .set = {"workers=2"}, .nset = 1},
        {.file = "schedules/bsp.lua", .set = {"workers=2"}, .nset = 1},
    };
    for (size_t i = 0; i < sizeof steady / sizeof *steady; i++) {
        struct base b = steady[i];
        b.set[b.nset++] = "batches=240";
        b.steady = true;
        b.lanes = *n % 3;
        if (!add_base(out, n, b, 300))
            fprintf(stderr, "%s: %s\n", describe_base(&b), diag_text);
    }
}

/* Adds teams of two whose weights have versions: their own, and with rows of their own, the weights they share. */
static void add_steady_teams(struct base *out, int *n) {
    static const char small[] = "schedules/models/integers.lua", shared[] = "tests/judges/shared.lua";
    static const struct base teams[] = {
        {.file = "schedules/pipedream.lua", .set = {"replicas=1,1", "batches=24"}, .nset = 2},
        {.file = "schedules/pipedream.lua", .set = {"replicas=2", "batches=24"}, .nset = 2},
        {.file = "schedules/pipedream_2bw.lua", .set = {"workers=2", "update=2", "batches=24"}, .nset = 3},
        {.file = "schedules/pipedream_naive.lua",
         .model = small,
         .set = {"workers=2", "layers=4", "batches=24"},
         .nset = 3},
        {.file = "schedules/pipedream.lua", .model = shared, .set = {"replicas=1,1", "batches=24"}, .nset = 2},
        {.file = "schedules/pipedream.lua", .model = shared, .set = {"replicas=2", "parts=1", "batches=24"}, .nset = 3},
        {.file = "schedules/pipedream_naive.lua", .model = shared, .set = {"workers=2", "batches=24"}, .nset = 2},
        {.file = "schedules/pipedream_vertical.lua", .model = shared, .set = {"workers=2", "batches=24"}, .nset = 2},
        {.file = "schedules/asp.lua",
         .model = shared,
         .set = {"workers=2", "stages=1", "parts=1", "batches=4"},
         .nset = 4},
    };
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++) {
        struct base b = teams[i];
        b.set[b.nset++] = "tensor=2";
        b.steady = true;
        b.lanes = *n % 3;
        if (!add_base(out, n, b, 450))
            fprintf(stderr, "%s: %s\n", describe_base(&b), diag_text);
    }
}

/* Adds handwritten programs: sharded homes, replicas, pieces, all collectives. */
static void add_texts(struct base *out, int *n) {
    static glob_t files; /* bases keep its names */
    if (glob("tests/proof/verify/proved_*.txt", 0, NULL, &files))
        return;
    for (size_t f = 0; f < files.gl_pathc; f++)
        add_base(out, n, (struct base){.file = files.gl_pathv[f], .text = true}, MOST_INSTRUCTIONS);
}

/* Adds clipped programs: one model over several ranks, whole replicas, divided replicas, tables and teams. */
static void add_clipped(struct base *out, int *n) {
    static const char small[] = "schedules/models/integers.lua";
    static const struct base clipped[] = {
        {.file = "schedules/serial.lua", .set = {"stages=2", "batches=2"}, .nset = 2},
        {.file = "schedules/1f1b.lua", .set = {"workers=2", "batches=2"}, .nset = 2},
        {.file = "schedules/zb_h1.lua", .set = {"workers=2", "batches=2"}, .nset = 2},
        {.file = "schedules/ddp.lua", .set = {"workers=2", "batches=2", "stages=2"}, .nset = 3},
        {.file = "schedules/zero1.lua", .set = {"workers=2", "batches=2", "stages=2"}, .nset = 3},
        {.file = "schedules/zero2.lua", .set = {"workers=2", "batches=2", "stages=2"}, .nset = 3},
        {.file = "schedules/fsdp.lua", .set = {"workers=2", "batches=2", "stages=2"}, .nset = 3},
        {.file = "schedules/hsdp.lua", .set = {"workers=4", "batches=4", "stages=1"}, .nset = 3},
        {.file = "schedules/chimera.lua", .set = {"workers=2", "batches=2"}, .nset = 2},
        {.file = "schedules/1f1b_ddp.lua", .set = {"workers=4", "batches=2", "stages=2"}, .nset = 3},
        {.file = "tests/judges/offload.lua", .set = {"workers=3", "stages=2", "batches=2", "state=true"}, .nset = 4},
        {.file = "schedules/1f1b.lua", .model = small, .set = {"workers=2", "batches=1", "tensor=2"}, .nset = 3},
        {.file = "schedules/1f1b.lua", .model = "tests/judges/tied.lua", .set = {"workers=2", "batches=1"}, .nset = 2},
        {.file = "schedules/ddp.lua",
         .set = {"workers=2", "batches=2", "stages=1", "tensor=2"},
         .nset = 4,
         .shared = true},
    };
    for (size_t i = 0; i < sizeof clipped / sizeof *clipped; i++) {
        struct base b = clipped[i];
        b.clip = true;
        b.seed = (uint64_t)(i + 5);
        b.lanes = *n % 3;
        if (!add_base(out, n, b, 300))
            fprintf(stderr, "%s: %s\n", describe_base(&b), diag_text);
    }
}

/* Adds random specs, and the script of random schedules; with added orders, away from home, tied. */
static void add_drawn(struct base *out, int *n, int most) {
    static char set[MOST_DRAWN + 1][20];
    for (int seed = 1; seed <= MOST_DRAWN && *n < most; seed++) {
        struct base b = {.seed = (uint64_t)seed, .lanes = seed % 3};
        snprintf(set[seed], sizeof set[seed], "seed=%d", seed);
        if (seed % 4 < 2) {
            b.file = "tests/papers/formulas/random.lua";
            b.set[b.nset++] = set[seed];
        } else
            b.tied = seed % 8 >= 6, b.sharded = seed % 4 == 3, b.rounds = seed % 3 > 0, b.host = seed % 5 < 3,
            b.bare = seed % 7 < 3, b.clip = seed % 4 == 3 || seed % 8 == 6, b.post_validation = seed % 3 == 0;
        add_base(out, n, b, MOST_INSTRUCTIONS);
    }
}

int all_bases(struct base *out, int most) {
    static glob_t files; /* bases keep its names */
    int n = 0;
    if (glob("schedules/*[!.]?.lua", 0, NULL, &files)) /* leaves out pianola.d.lua, which is not a schedule */
        return 0;
    for (size_t f = 0; f < files.gl_pathc && n + 2 < most; f++)
        add_schedule(out, &n, files.gl_pathv[f]);
    add_slices(out, &n);
    add_graphs(out, &n);
    add_offloading(out, &n);
    add_texts(out, &n);
    add_teams(out, &n);
    add_shared(out, &n);
    add_clipped(out, &n);
    add_steady(out, &n);
    add_steady_teams(out, &n);
    add_drawn(out, &n, most);
    return n;
}
