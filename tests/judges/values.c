/* Computes the symbols that each instruction makes (symbols.h), regardless of when it runs. */
#include "symbols.h"

bool sums_have_order;

struct span span_of(const struct rank *k, int32_t buf) {
    const struct buf *b = &k->buf[buf];
    if (!b->bytes)
        return (struct span){k->arena + k->host + buf, 1};
    return (struct span){b->off + (memory_of(b) == MEMORY_HOST ? k->arena : 0), b->bytes};
}

const char *memory_error(const struct rank *k, const struct instr *x, int a) {
    bool out = x->op == OP_OFFLOAD_S || x->op == OP_OFFLOAD_O, back = x->op == OP_RELOAD_S || x->op == OP_RELOAD_O;
    bool host = (out && operand(k, x, a).role == ROLE_t) || (back && operand(k, x, a).role == ROLE_src);
    return host == (memory_of(&k->buf[operand(k, x, a).buf]) == MEMORY_HOST) ? NULL
                                                                             : "an operand is in the wrong memory";
}

int access_of(const struct rank *k, const struct instr *x, int a) {
    int role = operand(k, x, a).role, access = role == ROLE_work ? 0 : op_access(x->op, role); /* see workspace_of */
    return op_accumulates(x->op, role) && is_first(x, role) ? access & ~ACC_READ : access;
}

int operand_of(const struct rank *k, const struct instr *x, int role) {
    for (int a = 0; a < x->narg; a++)
        if (operand(k, x, a).role == role)
            return a;
    return -1;
}

int32_t workspace_of(const struct rank *k, const struct instr *x) {
    int own = x->op <= OP_W ? operand_of(k, x, ROLE_work) : -1;
    for (int32_t b = 0; x->op <= OP_W && own < 0 && b < k->nbufs; b++)
        if (k->buf[b].kind == K_work && k->buf[b].inst < 0)
            return b;
    return own < 0 ? -1 : operand(k, x, own).buf;
}

bool works_apart(const struct rank *k, const struct instr *x) {
    int32_t work = workspace_of(k, x);
    return work >= 0 && k->buf[work].inst >= 0;
}

int64_t kept_of_stash(const struct rank *k, const struct instr *x, int a) {
    int stash = operand(k, x, a).role == ROLE_wstash ? operand_of(k, x, ROLE_stash) : -1;
    return stash >= 0 && grows_here(k, x, stash) ? span_of(k, operand(k, x, stash).buf).n : 0;
}

bool grows_here(const struct rank *k, const struct instr *x, int a) {
    int grown = x->op == OP_I && operand(k, x, a).role == ROLE_stash ? operand_of(k, x, ROLE_wstash) : -1;
    return grown >= 0 && k->buf[operand(k, x, grown).buf].off == k->buf[operand(k, x, a).buf].off;
}

/* ---- jobs in parts ---- */

static bool is_part_of(const struct instr *x, const struct instr *y) {
    return x->op == y->op && x->stage == y->stage && x->batch == y->batch && x->last && y->last;
}

/* Returns whether an earlier (later) part of the job writes the same bytes. */
static bool written_elsewhere(const struct rank *k, const struct instr *x, int a, bool later) {
    struct arg o = operand(k, x, a);
    if (x->op > OP_W || !x->last || !(op_access(x->op, o.role) & ACC_WRITE) || o.role == ROLE_work)
        return false;
    for (const struct instr *y = k->ins; y < k->ins + k->nins; y++)
        for (int b = 0; is_part_of(x, y) && (later ? y->part > x->part : y->part < x->part) && b < y->narg; b++)
            if (operand(k, y, b).role == o.role && operand(k, y, b).buf == o.buf && operand(k, y, b).piece == o.piece &&
                operand(k, y, b).last == o.last)
                return true;
    return false;
}

bool is_half_before(const struct rank *k, const struct instr *x, int a) { return written_elsewhere(k, x, a, false); }
bool is_half_after(const struct rank *k, const struct instr *x, int a) { return written_elsewhere(k, x, a, true); }

/* ---- values ---- */

static bool is_sum(const struct instr *x, int role) {
    return role == ROLE_norm || role == ROLE_dw || role == ROLE_dv || role == ROLE_du ||
           (x->op == OP_U && role == ROLE_w);
}

/* Collects the values read, by role. Sums of gradients, and weights updated byte by byte, are not a single value. */
static const char *values_read(const struct rank *k, const struct instr *x, uint64_t **seen, uint64_t in[NROLES]) {
    for (int a = 0; a < x->narg; a++) {
        int role = operand(k, x, a).role;
        struct span s = span_at(k, x, a);
        if (!(access_of(k, x, a) & ACC_READ) || is_sum(x, role) || role == ROLE_got)
            continue;
        for (int64_t n = 1; n < s.n; n++)
            if (seen[a][n] != byte_of(seen[a][0], n))
                return format("%s is made of two tensors", role_name[role]);
        in[role] = read_too(role, in[role], seen[a][0]);
    }
    return NULL;
}

int32_t home_buffer(const struct rank *k, int kind, int set) {
    for (int32_t b = 0; b < k->nbufs; b++)
        if (k->buf[b].kind == kind && k->buf[b].stage == set && (k->buf[b].inst < 0 || kind == K_opt))
            return b;
    return -1;
}

/* Returns the size of the gradient that one rank updates. */
static int64_t own_gradient(const struct promise *want, int r, int set) {
    const struct rank *k = &want->program->rank[r];
    const struct homes *h = &want->homes[set];
    int shares = h->zero ? h->lists : 1;
    int32_t own = home_buffer(k, K_gown, set), shard = home_buffer(k, K_gshard, set);
    int32_t all = home_buffer(k, K_wgrad, set);
    return own >= 0     ? k->buf[own].bytes
           : shard >= 0 ? k->buf[shard].bytes / shares
           : all >= 0   ? k->buf[all].bytes / (h->size * shares)
                        : 0;
}

/* ---- norms: byte n of one holds 2 n + 1 times the sum of the worths of all gradient bytes ---- */

static uint64_t worth(int set, int64_t at, uint64_t symbol) {
    return mix(value(K_norm, set, -1, (uint64_t)at, symbol));
}

/* Returns the worth of the n bytes from `first` on of a set's gradient, if they are right. */
static uint64_t worth_of(const struct promise *want, int set, int64_t first, int64_t n) {
    uint64_t sum = 0, slope = (uint64_t)want->parts[set] * STEP;
    for (int64_t at = first; at < first + n; at++)
        sum += worth(set, at, (want->sum[set] + (uint64_t)at * slope) & ~STAMP);
    return sum;
}

/* Returns the bytes that rank r updates, or one cell if there are none. */
static int64_t own_cells(const struct promise *want, int r, int set) {
    int64_t bytes = own_gradient(want, r, set);
    return bytes ? bytes : 1;
}

/* Returns byte n of the norm over all sets, counting each part once. */
uint64_t norm_symbol(const struct promise *want, int64_t n) {
    uint64_t sum = 0;
    for (int set = 0; set < sets_of(want); set++) {
        const struct homes *h = &want->homes[set];
        int64_t cells = h->lists ? own_cells(want, h->rank[0], set) : 0;
        sum += worth_of(want, set, 0, cells * h->size * (h->zero ? h->lists : 1));
    }
    return (uint64_t)(2 * n + 1) * sum & ~STAMP;
}

/* With post-validation, ranks begin with their parts of the previous step's norm. Only the sum of these is known. */
static uint64_t last_worth(const struct promise *want, int r) {
    uint64_t before = 0;
    for (int k = 0; k < r; k++)
        before += mix(value(K_norm, -1, k, 0, 0));
    return r < want->sp->workers - 1 ? mix(value(K_norm, -1, r, 0, 0)) : mix(value(K_norm, -1, r, 0, 1)) - before;
}
static uint64_t last_norm_symbol(const struct promise *want, int64_t n) {
    return (uint64_t)(2 * n + 1) * mix(value(K_norm, -1, want->sp->workers - 1, 0, 1)) & ~STAMP;
}

static int32_t norm_buffer(const struct rank *k) {
    for (int32_t b = 0; b < k->nbufs; b++)
        if (k->buf[b].kind == K_norm)
            return b;
    return -1;
}

void fill_norm(const struct promise *want, int r, uint64_t *mem) {
    int32_t b = norm_buffer(&want->program->rank[r]);
    struct span at = b < 0 ? (struct span){0, 0} : span_of(&want->program->rank[r], b);
    for (int64_t n = 0; n < at.n && want->costs->post_validation; n++)
        mem[at.at + n] = (uint64_t)(2 * n + 1) * last_worth(want, r) & ~STAMP;
}

const char *last_norms_error(const struct promise *want, const uint64_t *(*mem)(void *of, int r), void *of) {
    uint64_t sum[NORM_BYTES] = {0};
    for (int r = 0; r < want->sp->workers; r++) {
        int32_t b = norm_buffer(&want->program->rank[r]);
        struct span at = b < 0 ? (struct span){0, 0} : span_of(&want->program->rank[r], b);
        for (int64_t n = 0; n < NORM_BYTES; n++)
            if (at.n != NORM_BYTES || mem(of, r)[at.at + n] & STAMP)
                return format("rank %d has no norm for the next step", r);
            else
                sum[n] += mem(of, r)[at.at + n];
    }
    for (int64_t n = 0; n < NORM_BYTES; n++)
        if ((sum[n] & ~STAMP) != norm_symbol(want, n))
            return "the norm that the next step finds is not that of all gradients";
    return NULL;
}

/* Returns what this rank's gradient, in operand `dw`, adds to the norm. */
static uint64_t norm_added(const struct promise *want, const struct rank *k, const struct instr *x, int dw,
                           uint64_t **seen) {
    uint64_t sum = 0;
    if (dw < 0 || x->stage < 0 || x->stage >= sets_of(want))
        return 0;
    int64_t n = span_at(k, x, dw).n, first = own_part(want, (int)(k - want->program->rank), x->stage).from * n;
    for (int64_t i = 0; i < n; i++)
        sum += worth(x->stage, first + i, seen[dw][i]);
    return sum;
}

static const char *norm_error(const struct promise *want, const struct rank *k, const struct instr *x,
                              uint64_t **seen) {
    int norm = operand_of(k, x, ROLE_norm);
    if ((norm >= 0) != want->costs->clip)
        return norm >= 0 ? "it takes a norm, and nothing is clipped" : "it is not clipped";
    for (int64_t n = 0; norm >= 0 && n < span_at(k, x, norm).n && !sums_have_order; n++)
        if (seen[norm][n] != (want->costs->post_validation ? last_norm_symbol : norm_symbol)(want, n))
            return "its norm is not that of all gradients";
    return NULL;
}

/* Returns byte n of operand a. from: the addend, or what the update takes, or NULL. */
static uint64_t byte_made(const struct instr *x, int role, uint64_t before, const uint64_t *from, int64_t n,
                          const uint64_t in[NROLES], const uint64_t out[NROLES]) {
    switch (x->op) {
    case OP_ADD:
    case OP_TAKE: return added(before, from ? from[n] : 0);
    case OP_OFFLOAD_S:
    case OP_RELOAD_S:
    case OP_OFFLOAD_O:
    case OP_RELOAD_O:
    case OP_COPY: return from ? from[n] : 0;
    case OP_ZERO: return 0;
    case OP_U:
        if (x->batch >= 0)
            return byte_of((role == ROLE_opt ? opt_version : version_value)(x->stage, x->batch + 1), n);
        if (role == ROLE_opt)
            return byte_of(value(K_opt, x->stage, 0, in[ROLE_opt], from ? from[0] : 0), n);
        return updated(x->stage, before, from ? from[n] : 0, in[ROLE_opt]);
    case OP_NORM: return (before + (uint64_t)(2 * n + 1) * out[role]) & ~STAMP;
    default: return added(byte_of(out[role], sums_have_order && is_sum(x, role) ? 0 : n), is_sum(x, role) ? before : 0);
    }
}

/* Checks an update that is a job: it takes the previous version and the sum of its microbatches, each once. */
static const char *check_update(const struct promise *want, const struct rank *k, const struct instr *x,
                                uint64_t **seen) {
    const struct spec *sp = want->sp;
    int32_t n = x->batch, s = x->stage;
    if (s < 0 || s >= sets_of(want) || n < 0 || n >= sp->batches / sp->updates.every[s])
        return "there is no such update";
    uint64_t parts =
        (uint64_t)(want->parts[s] / (sp->batches / sp->updates.every[s])); /* contributions to its gradient */
    for (int a = 0; a < x->narg; a++) {
        struct arg o = operand(k, x, a);
        struct span at = span_at(k, x, a);
        uint64_t sum = want->update_sum[s][n];
        for (int64_t i = 0; i < at.n; i++) {
            int64_t byte = (int64_t)o.piece * at.n + i;
            uint64_t must = o.role == ROLE_dw  ? (sum + (uint64_t)byte * parts * STEP) & ~STAMP
                            : o.role == ROLE_w ? byte_of(version_value(s, n), byte)
                                               : byte_of(opt_version(s, n), byte);
            if (seen[a][i] != must && !(sums_have_order && o.role == ROLE_dw))
                return format("updates from what is not its %s", role_name[o.role]);
        }
    }
    return NULL;
}

static const char *check_job(const struct promise *want, const struct instr *x, const uint64_t in[NROLES]) {
    static const uint8_t role[] = {ROLE_w,     ROLE_v,  ROLE_u,      ROLE_x,  ROLE_stash,
                                   ROLE_input, ROLE_dy, ROLE_wstash, ROLE_kv, ROLE_dkv};
    int32_t j = job_at(want->sp, x->stage, x->batch, x->op);
    for (size_t i = 0; i < sizeof role; i++)
        if (in[role[i]] != want->in[j][role[i]])
            return format("reads the wrong %s", role_name[role[i]]);
    return NULL;
}

static int64_t bytes_at(const struct rank *k, const struct instr *x, int a) {
    struct arg o = operand(k, x, a);
    return arg_bytes(k, &o);
}

static const uint8_t adds_to[] = {ROLE_dw, ROLE_dv, ROLE_du};

static int script_stage(const struct promise *want, int s) {
    return want->sp->names.member ? want->sp->names.member[s].stage : s;
}

const char *make_values(const struct promise *want, const struct rank *k, const struct instr *x, uint64_t **seen,
                        uint64_t **made) {
    uint64_t in[NROLES] = {0}, out[NROLES] = {0};
    const char *why = x->op <= OP_W || x->op == OP_U ? values_read(k, x, seen, in) : NULL;
    bool adds = x->op == OP_ADD || x->op == OP_TAKE || x->op == OP_COPY || is_copy(x->op);
    int from = operand_of(k, x, adds ? ROLE_src : ROLE_dw);
    int64_t enough = from < 0 ? INT64_MAX : bytes_at(k, x, from);
    if (x->op == OP_U && want->sp->updates.every)
        why = why ? why : check_update(want, k, x, seen);
    if (x->op == OP_U)
        why = why ? why : norm_error(want, k, x, seen);
    if (x->op <= OP_W) {
        why = why ? why : check_job(want, x, in);
        why = why ? why : exchange_error(want, k, x, seen);
        job_values(x->op, x->stage, x->batch, in, out);
        for (int i = 0; i < 3 && sums_have_order; i++)
            out[adds_to[i]] = value(K_wgrad, script_stage(want, x->stage), x->batch, (uint64_t)i, 0);
        out[ROLE_give] = given_by(want, job_at(want->sp, x->stage, x->batch, x->op), x->part);
    } else if (x->op == OP_NORM)
        out[ROLE_norm] = norm_added(want, k, x, from, seen);
    else if (from < 0 && x->op != OP_ZERO)
        why = why ? why : "it has nothing to take";
    for (int a = 0; a < x->narg && !why; a++) {
        int role = operand(k, x, a).role;
        struct span s = span_at(k, x, a);
        bool reads = access_of(k, x, a) & ACC_READ;
        if (!(access_of(k, x, a) & ACC_WRITE))
            continue;
        if (x->op == OP_U && role == ROLE_w && bytes_at(k, x, a) > enough)
            return "a gradient has fewer bytes than what takes it";
        if (adds && bytes_at(k, x, a) != enough)
            return "its operands have different sizes";
        bool half = is_half_after(k, x, a);
        int64_t kept = half ? kept_of_stash(k, x, a) : 0;
        int stash = operand_of(k, x, ROLE_stash);
        int64_t first = x->op <= OP_W ? (int64_t)operand(k, x, a).piece * s.n : 0;
        for (int64_t n = 0; n < s.n; n++) {
            uint64_t before =
                reads ? seen[a][n] & ~STAMP : 0; /* a half-made sum is its earlier content plus the stamp */
            made[a][n] = n < kept ? seen[stash][n]
                         : half   ? (reads ? STAMP | before : half_made(x, role, first + n))
                                  : byte_made(x, role, before, from >= 0 ? seen[from] : NULL, first + n, in, out);
        }
    }
    return why;
}

/* ---- sizes, and what is at home ---- */

/* Returns whether the sizes of two kinds agree, if both are known: n of one make up the other. */
static bool make_up(const int64_t size[NKINDS], int part, int whole, int64_t n) {
    return !size[part] || !size[whole] || (size[part] - 1) * n == size[whole] - 1;
}

const char *size_error(const struct promise *want, const struct rank *k, int32_t buf, int64_t (*size)[NKINDS]) {
    const struct buf *b = &k->buf[buf];
    int64_t arena = memory_of(b) == MEMORY_HOST ? k->host : k->arena;
    if (b->off < 0 || b->bytes < 0 || b->off > arena - b->bytes)
        return "a buffer lies outside the arena";
    if (b->kind == K_norm && b->bytes != NORM_BYTES)
        return "a norm has another size";
    if (b->stage < 0 || b->stage >= sets_of(want) || b->kind == K_mid) /* mid_error checks these */
        return NULL;
    int slices = want->sp->names.slices; /* each slice has its own sizes */
    bool sliced = slices && kind_has_batch[b->kind] && b->batch >= 0;
    int64_t(*own)[NKINDS] = sliced ? size + sets_of(want) + b->stage * slices + b->batch % slices : size + b->stage;
    int64_t must = want->costs->stage ? stage_at(want->costs, b->stage, sliced ? b->batch : -1)->bytes[b->kind]
                                      : (*own)[b->kind] - 1;
    if (must >= 0 && must != b->bytes)
        return format("a buffer of %s(%d) has %lld bytes, not %lld", kind_name[b->kind], b->stage, (long long)b->bytes,
                      (long long)must);
    int64_t *of = *own;
    const struct homes *h = &want->homes[b->stage];
    int shares = h->zero ? h->lists : 1;
    of[b->kind] = b->bytes + 1;
    if (!make_up(of, K_wshard, K_weight, h->size) || !make_up(of, K_gshard, K_wgrad, h->size) ||
        !make_up(of, K_gown, K_wgrad, h->size * shares) || !make_up(of, K_gown, K_gshard, shares))
        return format("the shards of set %d do not make it up", b->stage);
    return NULL;
}

int32_t home_weights(const struct promise *want, int r, int set) {
    return home_buffer(&want->program->rank[r], want->homes[set].size > 1 ? K_wshard : K_weight, set);
}

int32_t home_state(const struct rank *k, int set) {
    int32_t in_host = home_buffer(k, K_hopt, set);
    return in_host >= 0 ? in_host : home_buffer(k, K_opt, set);
}

/* Returns the first byte of the set in rank r's part of n bytes. */
static int64_t first_held(const struct promise *want, int r, int set, int64_t n) {
    const struct homes *h = &want->homes[set];
    return h->size > 1 ? place_in(h, r) % h->size * n : 0;
}

static void fill(const struct rank *k, int32_t buf, uint64_t v, int64_t first, uint64_t *mem) {
    struct span s = buf < 0 ? (struct span){0, 0} : span_of(k, buf);
    for (int64_t n = 0; n < s.n; n++)
        mem[s.at + n] = byte_of(v, first + n);
}

void fill_home(const struct promise *want, int r, int set, uint64_t *mem) {
    const struct rank *k = &want->program->rank[r];
    int32_t w = home_weights(want, r, set);
    fill(k, w, weight_value(set), w < 0 ? 0 : first_held(want, r, set, k->buf[w].bytes), mem);
    fill(k, home_state(k, set), opt_value(set), 0, mem);
}

/* Reports weights or state of a stage that lack an update, or NULL. */
static const char *last_version_error(const struct promise *want, const struct rank *k, int s, const uint64_t *mem) {
    const struct spec *sp = want->sp;
    int32_t buf[] = {home_buffer(k, K_weight, s), home_state(k, s)};
    for (int i = 0; i < 2; i++) {
        struct span at = buf[i] < 0 ? (struct span){0, 0} : span_of(k, buf[i]);
        int32_t last = sp->batches / sp->updates.every[s];
        for (int64_t n = 0; n < at.n; n++)
            if (mem[at.at + n] != byte_of(i ? opt_version(s, last) : version_value(s, last), n))
                return format("byte %lld of %s(%d) is not that of version %d", (long long)n, i ? "opt" : "weight", s,
                              last);
    }
    return NULL;
}

const char *home_error(const struct promise *want, int r, int set, const uint64_t *mem) {
    const struct rank *k = &want->program->rank[r];
    const struct homes *h = &want->homes[set];
    int32_t w = home_weights(want, r, set), o = home_state(k, set);
    uint64_t opt = o >= 0 ? mix(opt_value(set)) : 0, slope = (uint64_t)want->parts[set] * STEP, dw = want->sum[set];
    struct span at = span_of(k, w);
    if (want->sp->updates.every)
        return last_version_error(want, k, set, mem);
    int64_t first = first_held(want, r, set, k->buf[w].bytes), gradient = own_gradient(want, r, set);
    int64_t piece = at.n / (h->zero ? h->lists : 1);
    for (int64_t n = 0; n < at.n; n++) { /* byte g of the gradient updates byte m of the weights */
        int64_t m = first + n, g = piece ? m / piece * gradient + m % piece : m;
        int64_t shard = first_held(want, r, set, 1) * gradient; /* it also updates the cell of weights without bytes */
        if (k->buf[w].bytes == 0 &&
            mem[at.at] == updated(set, byte_of(weight_value(set), m), (dw + (uint64_t)shard * slope) & ~STAMP, opt))
            continue;
        if (mem[at.at + n] != updated(set, byte_of(weight_value(set), m), (dw + (uint64_t)g * slope) & ~STAMP, opt))
            return format("byte %lld of the weights of set %d is wrong", (long long)n, set);
    }
    dw += (uint64_t)(own_part(want, r, set).from * gradient) * slope;
    at = o >= 0 ? span_of(k, o) : (struct span){0, 0};
    for (int64_t n = 0; n < at.n; n++)
        if (mem[at.at + n] != byte_of(value(K_opt, set, 0, opt, dw & ~STAMP), n))
            return format("byte %lld of opt(%d) is wrong", (long long)n, set);
    return NULL;
}
