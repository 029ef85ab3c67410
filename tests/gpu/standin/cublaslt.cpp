/* cuBLASLt: D = epilogue(alpha op(A) op(B) + beta C), in fp32. The heuristic's first algorithm sums in the order of k,
 * the others by pieces of k, which gives other bits.
 *
 * STANDIN_LT_FAILS=PLACE:STATUS:WHICH[:AFTER] makes calls fail with a status, except for the first AFTER. PLACE is
 * attribute (where a description gets its epilogue), heuristic, result (of a heuristic that succeeds), check or launch.
 * WHICH is plain, fused (with an epilogue), kept (not the heuristic's first algorithm) or an epilogue's number.
 * STANDIN_FASTEST=K makes launches take 10 s longer by the events' clock, except the heuristics' K-th ones, from 0;
 * kernels take 1 s longer. STANDIN_SLOW=WHICH adds 10 s to launches of these products. STANDIN_LT_LOG=FILE gets a line
 * for each call of the heuristic and each launch: `launch 4` for epilogue 4. */
#include "cublasLt.h"
#include "bf16.h"
#include "standin.h"

/* The contents of the opaque descriptors. */
struct layout {
    uint64_t rows, cols;
    int64_t ld, stride;
    int32_t type, order, batch, unused;
};
struct matmul {
    int32_t compute, scale, transa, transb, mode, aux_type, bias_type;
    uint32_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
};
enum { WORKSPACE = 65536 }; /* bytes of workspace that an algorithm uses, if allowed */
enum { VARIANTS = 3 };      /* algorithms per product: one, two, four pieces of k */
enum { ROUNDS = 8 };        /* flag of a variant: it rounds each piece's sum to D's type, as a reduction scheme may */
struct algorithm {
    uint64_t fingerprint, workspace, aligned[4]; /* aligned: A, B, C, D */
    uint32_t bias, aux;                          /* alignments of bias and aux */
    uint64_t variant;
};
struct preference {
    uint64_t workspace;
    uint32_t alignment[4]; /* minimum for A, B, C and D */
    uint32_t reduction;    /* the allowed reduction schemes */
};
enum { MOST_ALIGNED = 256 }; /* the default alignment, which callers promise */
static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
static_assert(sizeof(algorithm) == sizeof(cublasLtMatmulAlgo_t), "is one");
static_assert(sizeof(matmul) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");

struct problem {
    matmul d;
    layout a, b, c, e; /* e: layout of D */
    const char *A, *B, *C;
    char *D;
    float alpha, beta;
    uint64_t m, n, k, pieces; /* pieces of k, each summed on its own */
    bool rounds;              /* whether each piece's sum is rounded */
};

static size_t bytes_of(int type) { return type == CUDA_R_16BF ? 2 : 4; }
static size_t extent(const layout &l) {
    uint64_t lines = l.order == CUBLASLT_ORDER_COL ? l.cols : l.rows,
             length = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
    return bytes_of(l.type) * ((lines - 1) * (uint64_t)l.ld + length + (uint64_t)(l.batch - 1) * (uint64_t)l.stride);
}
static uint64_t index_of(const layout &l, uint64_t row, uint64_t col) {
    return l.order == CUBLASLT_ORDER_COL ? row + col * (uint64_t)l.ld : row * (uint64_t)l.ld + col;
}
static float get(const void *p, int type, uint64_t i) {
    return type == CUDA_R_16BF ? bf16_widen(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}
static void put(void *p, int type, uint64_t i, float x) {
    if (type == CUDA_R_16BF)
        ((uint16_t *)p)[i] = bf16_narrow(x);
    else
        ((float *)p)[i] = x;
}

/* ---- checks of the arguments ---- */

static bool has(const matmul &d, unsigned bit) { return d.epilogue & bit; }
static bool known_epilogue(unsigned e) {
    for (unsigned k : {1u, 2u, 4u, 6u, 32u, 160u, 36u, 164u, 192u, 208u, 256u, 512u})
        if (k == e)
            return true;
    return false;
}

/* Returns why cuBLASLt rejects the shapes, types or epilogue, or NULL. */
static const char *refused(problem &p) {
    const matmul &d = p.d;
    p.m = d.transa ? p.a.cols : p.a.rows;
    p.k = d.transa ? p.a.rows : p.a.cols;
    p.n = d.transb ? p.b.rows : p.b.cols;
    if ((d.transb ? p.b.cols : p.b.rows) != p.k)
        return "A and B differ in k";
    if (p.e.rows != p.m || p.e.cols != p.n || p.c.rows != p.m || p.c.cols != p.n)
        return "C or D is not of m rows and n columns";
    if (p.a.type != p.b.type || p.c.type != p.e.type)
        return "A and B, or C and D, differ in type";
    if (p.a.type == CUDA_R_32F && p.e.type != CUDA_R_32F)
        return "A is fp32 and D is not";
    if (p.a.batch != p.b.batch || p.a.batch != p.e.batch || p.c.batch != p.e.batch)
        return "batch counts differ";
    if (d.scale != CUDA_R_32F || d.mode != CUBLASLT_POINTER_MODE_HOST)
        return "alpha and beta are not fp32 on the host, which is all the stand-in has";
    for (const layout *l : {&p.a, &p.b, &p.c, &p.e})
        if (l->ld < (int64_t)(l->order == CUBLASLT_ORDER_COL ? l->rows : l->cols) || l->rows == 0 || l->cols == 0)
            return "a leading dimension is smaller than its matrix, or a matrix is empty";
    if (!known_epilogue(d.epilogue))
        return "the epilogue is none that the stand-in has";
    if (d.epilogue != 1 && (p.e.order != CUBLASLT_ORDER_COL || p.e.batch != 1))
        return "an epilogue with a D of rows, or with a batch, which the stand-in lacks";
    /* CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE; IMMA and fp8 are exceptions */
    if ((d.epilogue & (4 | 16 | 256 | 512)) && d.bias_type >= 0 && d.bias_type != p.e.type)
        return "a bias, or a bias gradient, is of another type than D";
    if (has(d, 128) && (d.aux_ld % 8 != 0 || d.aux_ld < (int64_t)p.m))
        return "the auxiliary matrix's leading dimension is not a multiple of 8, or smaller than m";
    return nullptr;
}

/* Returns a hash of the problem for which an algorithm was found. */
static uint64_t fingerprint(const problem &p) {
    uint64_t h = 0xcbf29ce484222325u;
    for (uint64_t x :
         {p.m, p.n, p.k, (uint64_t)p.a.ld, (uint64_t)p.b.ld, (uint64_t)p.c.ld, (uint64_t)p.e.ld, (uint64_t)p.a.type,
          (uint64_t)p.e.type, (uint64_t)p.d.transa, (uint64_t)p.d.transb, (uint64_t)p.d.epilogue, (uint64_t)p.a.batch,
          (uint64_t)p.d.compute, (uint64_t)p.a.order, (uint64_t)p.b.order, (uint64_t)p.e.order})
        h = (h ^ x) * 0x100000001b3u;
    return h;
}

/* Returns a pointer's alignment. An algorithm is found for certain alignments: the matrices' from the preference, the
 * epilogue operands' from their pointers at that moment. */
static uint64_t alignment_of(const void *p) {
    uint64_t low = (uintptr_t)p & -(uintptr_t)p;
    return p && low < MOST_ALIGNED ? low : (uint64_t)MOST_ALIGNED;
}
static void check_alignment(const char *name, const void *p, uint64_t promised) {
    if (p && alignment_of(p) < promised)
        broken("MATMUL", "cublasLtMatmul: %s is at %p, but the algorithm was found for multiples of %d", name, p,
               (int)promised);
}

/* ---- the arithmetic ---- */

static float gelu(float x) { return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }
static float dgelu(float x) {
    float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

static float finish(const problem &p, uint64_t row, uint64_t col, float x) {
    const matmul &d = p.d;
    int aux = d.aux_type < 0 ? p.e.type : d.aux_type, bias = d.bias_type < 0 ? p.e.type : d.bias_type;
    uint64_t at = row + col * (uint64_t)d.aux_ld;
    if (has(d, 4))
        x += get(d.bias, bias, row);
    if (has(d, 64))
        return x * dgelu(get(d.aux, aux, at));
    if (has(d, 32) && has(d, 128))
        put(d.aux, aux, at, x);
    if (has(d, 32))
        return gelu(x);
    return has(d, 2) && x < 0 ? 0 : x;
}

/* Writes the sums of A's rows, B's columns, or D's rows. */
static void bias_gradient(const problem &p, const std::vector<float> &a, const std::vector<float> &b) {
    int type = p.d.bias_type < 0 ? p.e.type : p.d.bias_type;
    uint64_t length = p.d.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
    for (uint64_t i = 0; i < length; i++) {
        float sum = 0;
        if (p.d.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
            for (uint64_t j = 0; j < p.n; j++)
                sum += get(p.D, p.e.type, index_of(p.e, i, j));
        else
            for (uint64_t k = 0; k < p.k; k++)
                sum += p.d.epilogue == CUBLASLT_EPILOGUE_BGRADB ? b[k + i * p.k] : a[i + k * p.m];
        put(p.d.bias, type, i, sum);
    }
}

/* Adds rows [from, to) of the products to each of m sums, in order. Four at a time, for fewer loads and stores. */
__attribute__((optimize("O3"))) static void add_products(float *__restrict sum, const float *__restrict a,
                                                         const float *__restrict b, uint64_t m, uint64_t from,
                                                         uint64_t to) {
    for (; from + 4 <= to; from += 4) {
        const float *a0 = a + from * m, *a1 = a0 + m, *a2 = a1 + m, *a3 = a2 + m;
        float b0 = b[from], b1 = b[from + 1], b2 = b[from + 2], b3 = b[from + 3];
        for (uint64_t i = 0; i < m; i++)
            sum[i] = sum[i] + a0[i] * b0 + a1[i] * b1 + a2[i] * b2 + a3[i] * b3;
    }
    for (; from < to; from++)
        for (uint64_t i = 0; i < m; i++)
            sum[i] += a[i + from * m] * b[from];
}

static void multiply(const problem &p) {
    std::vector<float> a(p.m * p.k), b(p.k * p.n), sum(p.m), piece(p.m);
    for (uint64_t k = 0; k < p.k; k++)
        for (uint64_t i = 0; i < p.m; i++)
            a[i + k * p.m] = get(p.A, p.a.type, p.d.transa ? index_of(p.a, k, i) : index_of(p.a, i, k));
    for (uint64_t j = 0; j < p.n; j++)
        for (uint64_t k = 0; k < p.k; k++)
            b[k + j * p.k] = get(p.B, p.b.type, p.d.transb ? index_of(p.b, j, k) : index_of(p.b, k, j));
    for (uint64_t j = 0; j < p.n; j++) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (uint64_t part = 0; part < p.pieces; part++) {
            std::fill(piece.begin(), piece.end(), 0.0f);
            add_products(piece.data(), a.data(), &b[j * p.k], p.m, p.k * part / p.pieces, p.k * (part + 1) / p.pieces);
            for (uint64_t i = 0; i < p.m; i++) {
                if (p.rounds)
                    put(&piece[i], p.e.type, 0, piece[i]);
                sum[i] += p.rounds ? get(&piece[i], p.e.type, 0) : piece[i];
            }
        }
        for (uint64_t i = 0; i < p.m; i++) {
            float x = p.alpha * sum[i];
            if (p.beta != 0)
                x += p.beta * get(p.C, p.c.type, index_of(p.c, i, j));
            put(p.D, p.e.type, index_of(p.e, i, j), finish(p, i, j, x));
        }
    }
    if (p.d.epilogue & (16 | 256 | 512))
        bias_gradient(p, a, b);
}

static void multiply_all(problem p) {
    for (int32_t i = 0; i < p.e.batch; i++) {
        multiply(p);
        p.A += p.a.stride * (int64_t)bytes_of(p.a.type);
        p.B += p.b.stride * (int64_t)bytes_of(p.b.type);
        p.C += p.c.stride * (int64_t)bytes_of(p.c.type);
        p.D += p.e.stride * (int64_t)bytes_of(p.e.type);
    }
}

/* ---- the calls ---- */

static void aligned(const char *name, const void *p) {
    if ((uintptr_t)p % 16 != 0)
        broken("MATMUL", "cublasLtMatmul: %s is at %p, which is not a multiple of 16", name, p);
}

static std::vector<range> ranges_of(const problem &p, void *workspace, size_t size) {
    const matmul &d = p.d;
    int aux = d.aux_type < 0 ? p.e.type : d.aux_type, bias = d.bias_type < 0 ? p.e.type : d.bias_type;
    std::vector<range> all = {{p.A, extent(p.a), false}, {p.B, extent(p.b), false}, {p.D, extent(p.e), true}};
    if (p.beta != 0)
        all.push_back({p.C, extent(p.c), false});
    if (has(d, 128))
        all.push_back({d.aux, bytes_of(aux) * ((p.n - 1) * (uint64_t)d.aux_ld + p.m), !has(d, 64)});
    if (has(d, 4) || (d.epilogue & (16 | 256 | 512)))
        all.push_back({d.bias, bytes_of(bias) * (d.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m), !has(d, 4)});
    if (size > 0)
        all.push_back({workspace, size, true});
    return all;
}

static bool overlap(const range &a, const range &b) {
    return (const char *)a.at < (const char *)b.at + b.bytes && (const char *)b.at < (const char *)a.at + a.bytes;
}

struct cublasLtContext {
    bool alive;
};
static std::set<cublasLtHandle_t> &handles(void) {
    static auto *all = new std::set<cublasLtHandle_t>;
    return *all;
}

/* ---- failures on request ---- */

static void note(const char *place, uint32_t epilogue) {
    const char *path = getenv("STANDIN_LT_LOG");
    FILE *file = path ? fopen(path, "a") : nullptr;
    if (!file)
        return;
    fprintf(file, "%s %u\n", place, epilogue);
    fclose(file);
}

static bool is_one(const string &which, uint32_t epilogue, bool kept) {
    return which == "plain"   ? epilogue == CUBLASLT_EPILOGUE_DEFAULT
           : which == "fused" ? epilogue != CUBLASLT_EPILOGUE_DEFAULT
           : which == "kept"  ? kept
                              : which == std::to_string(epilogue);
}

/* Returns the status with which a call fails. Also leaves an error in the runtime, as a failed launch does. */
static cublasStatus_t failure(const char *here, uint32_t epilogue, bool kept = false) {
    const char *wish = getenv("STANDIN_LT_FAILS");
    static std::map<string, int> seen; /* calls per request */
    char place[16], which[16];
    int status, after = 0;
    if (!wish)
        return CUBLAS_STATUS_SUCCESS;
    if (sscanf(wish, "%15[^:]:%d:%15[^:]:%d", place, &status, which, &after) < 3)
        broken("MATMUL", "STANDIN_LT_FAILS=%s is not PLACE:STATUS:WHICH[:AFTER]", wish);
    if (strcmp(place, here) != 0 || !is_one(which, epilogue, kept) || seen[wish]++ < after)
        return CUBLAS_STATUS_SUCCESS;
    me()->last = cudaErrorInvalidValue;
    return (cublasStatus_t)status;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) {
    entered here("cublasLtCreate");
    check_creation(call);
    check_not_capturing(call);
    handles().insert(*h = new cublasLtContext{true});
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
    entered here("cublasLtDestroy");
    if (handles().erase(h) == 0)
        broken("MATMUL", "cublasLtDestroy of what is no handle");
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasLtGetStatusName(cublasStatus_t s) {
    switch (s) {
#define NAME(status)                                                                                                   \
    case status: return #status
        NAME(CUBLAS_STATUS_SUCCESS);
        NAME(CUBLAS_STATUS_NOT_INITIALIZED);
        NAME(CUBLAS_STATUS_ALLOC_FAILED);
        NAME(CUBLAS_STATUS_INVALID_VALUE);
        NAME(CUBLAS_STATUS_ARCH_MISMATCH);
        NAME(CUBLAS_STATUS_MAPPING_ERROR);
        NAME(CUBLAS_STATUS_EXECUTION_FAILED);
        NAME(CUBLAS_STATUS_INTERNAL_ERROR);
        NAME(CUBLAS_STATUS_NOT_SUPPORTED);
        NAME(CUBLAS_STATUS_LICENSE_ERROR);
#undef NAME
    }
    return "an unknown status";
}
const char *cublasLtGetStatusString(cublasStatus_t s) { return cublasLtGetStatusName(s); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
    entered here("cublasLtMatrixLayoutCreate");
    check_creation(call);
    if (type != CUDA_R_32F && type != CUDA_R_16BF)
        return CUBLAS_STATUS_INVALID_VALUE;
    *out = new cublasLtMatrixLayoutOpaque_t();
    *(layout *)*out = {rows, cols, ld, 0, type, CUBLASLT_ORDER_COL, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return delete l, CUBLAS_STATUS_SUCCESS; }

static cublasStatus_t set(void *field, size_t size, const void *buf, size_t given) {
    if (given != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, buf, size);
    return CUBLAS_STATUS_SUCCESS;
}
#define SET(field) set(&(field), sizeof(field), buf, n)

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t out, cublasLtMatrixLayoutAttribute_t attr,
                                                const void *buf, size_t n) {
    layout *l = (layout *)out;
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return SET(l->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return SET(l->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return SET(l->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return SET(l->cols);
    case CUBLASLT_MATRIX_LAYOUT_LD: return SET(l->ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return SET(l->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return SET(l->stride);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale) {
    entered here("cublasLtMatmulDescCreate");
    check_creation(call);
    *out = new cublasLtMatmulDescOpaque_t();
    *(matmul *)*out = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, 0, -1, -1, CUBLASLT_EPILOGUE_DEFAULT, nullptr,
                       nullptr, 0};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return delete d, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t out, cublasLtMatmulDescAttributes_t attr,
                                              const void *buf, size_t n) {
    matmul *d = (matmul *)out;
    int32_t ignored;
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return SET(d->compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return SET(d->scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return SET(d->mode);
    case CUBLASLT_MATMUL_DESC_TRANSA: return SET(d->transa);
    case CUBLASLT_MATMUL_DESC_TRANSB: return SET(d->transb);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: {
        cublasStatus_t status = SET(d->epilogue);
        return status == CUBLAS_STATUS_SUCCESS ? failure("attribute", d->epilogue) : status;
    }
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return SET(d->bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return SET(d->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return SET(d->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return SET(d->aux_type);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return SET(d->bias_type);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return SET(ignored);
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    entered here("cublasLtMatmulPreferenceCreate");
    check_creation(call);
    *out = new cublasLtMatmulPreferenceOpaque_t();
    for (uint32_t &a : ((preference *)*out)->alignment)
        a = MOST_ALIGNED;
    ((preference *)*out)->reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return delete p, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t out,
                                                    cublasLtMatmulPreferenceAttributes_t attr, const void *buf,
                                                    size_t n) {
    preference *p = (preference *)out;
    uint32_t ignored;
    float waves;
    uint64_t mask;
    switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return SET(p->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return SET(p->reduction);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return SET(p->alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return SET(p->alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return SET(p->alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return SET(p->alignment[3]);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT: return SET(waves);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK: return SET(mask);
    default: return SET(ignored);
    }
}

size_t cublasLtGetVersion(void) { return 130100; }

static problem asked(cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t e) {
    problem p = {};
    p.d = *(matmul *)d;
    p.a = *(layout *)a;
    p.b = *(layout *)b;
    p.c = *(layout *)c;
    p.e = *(layout *)e;
    return p;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t e, cublasLtMatmulPreference_t pref, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    entered here("cublasLtMatmulAlgoGetHeuristic");
    check_creation(call);
    problem p = asked(d, a, b, c, e);
    *found = 0;
    note("heuristic", p.d.epilogue);
    if (handles().count(h) == 0 || wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (refused(p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    cublasStatus_t fails = failure("heuristic", p.d.epilogue);
    if (fails != CUBLAS_STATUS_SUCCESS)
        return fails;
    /* A call may succeed although a result failed: "inspect heuristicResultsArray[...].state" (cublasLt.h). */
    if (has(p.d, 32 | 64) && getenv("STANDIN_NO_GELU"))
        fails = CUBLAS_STATUS_NOT_SUPPORTED;
    else
        fails = failure("result", p.d.epilogue);
    if (fails != CUBLAS_STATUS_SUCCESS) {
        memset(results, 0xa5, sizeof *results);
        results->state = fails;
        *found = 1;
        return CUBLAS_STATUS_SUCCESS;
    }
    for (*found = 0; *found < std::min(wanted, (int)VARIANTS); ++*found) {
        cublasLtMatmulHeuristicResult_t *result = &results[*found];
        const preference *wish = (const preference *)pref;
        memset(result, 0, sizeof *result);
        algorithm *algo = (algorithm *)&result->algo;
        algo->fingerprint = fingerprint(p);
        algo->workspace = result->workspaceSize = std::min(wish->workspace, (uint64_t)WORKSPACE);
        for (int i = 0; i < 4; i++)
            algo->aligned[i] = wish->alignment[i];
        algo->bias = (uint32_t)alignment_of(p.d.bias);
        algo->aux = (uint32_t)alignment_of(p.d.aux);
        algo->variant = (uint64_t)(getenv("STANDIN_SPLIT") ? VARIANTS - 1 - *found : *found);
        if (wish->reduction & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE))
            algo->variant |= ROUNDS;
        result->wavesCount = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* "algo field is never updated" (cublasLt.h). */
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t e,
                                       const cublasLtMatmulAlgo_t *of, cublasLtMatmulHeuristicResult_t *result) {
    entered here("cublasLtMatmulAlgoCheck");
    problem p = asked(d, a, b, c, e);
    const algorithm *algo = (const algorithm *)of;
    if (handles().count(h) == 0 || refused(p) || algo->fingerprint != fingerprint(p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((algo->variant & ~(uint64_t)ROUNDS) >= VARIANTS)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    cublasStatus_t fails = failure("check", p.d.epilogue, algo->variant > 0);
    if (fails != CUBLAS_STATUS_SUCCESS)
        return fails;
    result->workspaceSize = algo->workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta,
                              const void *C, cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t e,
                              const cublasLtMatmulAlgo_t *given, void *workspace, size_t size, cudaStream_t stream) {
    entered here("cublasLtMatmul");
    const algorithm *algo = (const algorithm *)given;
    problem p = asked(d, a, b, c, e);
    p.A = (const char *)A;
    p.B = (const char *)B;
    p.C = (const char *)C;
    p.D = (char *)D;
    p.alpha = *(const float *)alpha;
    p.beta = *(const float *)beta;
    p.pieces = algo ? 1ull << (algo->variant & ~(uint64_t)ROUNDS) : 1;
    p.rounds = algo && (algo->variant & ROUNDS);
    if (handles().count(h) == 0)
        broken("MATMUL", "cublasLtMatmul with what is no handle");
    if (const char *why = refused(p))
        broken("MATMUL", "cublasLtMatmul: %s", why);
    if (algo && algo->fingerprint != fingerprint(p))
        broken("MATMUL",
               "cublasLtMatmul with an algorithm that was found for other shapes, types or an other epilogue");
    if (algo && algo->workspace > size)
        broken("MATMUL", "cublasLtMatmul with %zu bytes of workspace, but the algorithm needs %zu", size,
               (size_t)algo->workspace);
    aligned("the workspace", workspace);
    aligned("the auxiliary matrix", has(p.d, 128) ? p.d.aux : nullptr);
    for (auto &x : {std::make_pair("A", A), {"B", B}, {"C", p.beta != 0 ? C : nullptr}, {"D", D}})
        if (!algo) /* else it was found for certain alignments */
            aligned(x.first, x.second);
    if (algo) {
        const void *used[] = {A,
                              B,
                              p.beta != 0 ? C : nullptr,
                              D,
                              has(p.d, 4 | 16 | 256 | 512) ? p.d.bias : nullptr,
                              has(p.d, 128) ? p.d.aux : nullptr};
        static const char *const name[] = {"A", "B", "C", "D", "the bias", "the auxiliary matrix"};
        for (int i = 0; i < 6; i++)
            check_alignment(name[i], used[i], i < 4 ? algo->aligned[i] : i == 4 ? algo->bias : algo->aux);
    }
    work w;
    w.what = text("cublasLtMatmul of m %zu, n %zu, k %zu", (size_t)p.m, (size_t)p.n, (size_t)p.k);
    check_range({workspace, size, true}, "cublasLtMatmul, with its workspace,");
    size = std::min(size, algo ? (size_t)algo->workspace : (size_t)WORKSPACE); /* the workspace that it uses */
    w.touches = ranges_of(p, workspace, size);
    for (auto &r : w.touches) {
        check_range(r, w.what.c_str());
        for (auto &o : w.touches)
            if (&o != &r && r.write && overlap(o, r) && !(r.at == D && o.at == C && o.bytes == r.bytes))
                broken("MATMUL", "%s: what it writes at %p overlaps what it uses at %p", w.what.c_str(), r.at, o.at);
    }
    note("launch", p.d.epilogue);
    cublasStatus_t fails = failure("launch", p.d.epilogue, algo && algo->variant > 0);
    if (fails == CUBLAS_STATUS_EXECUTION_FAILED && p.beta == 0) { /* the launch has begun */
        w.run = [=] { memset(D, 0xff, extent(p.e)); };
        enqueue(stream, std::move(w));
    }
    if (fails != CUBLAS_STATUS_SUCCESS)
        return fails;
    const char *fastest = getenv("STANDIN_FASTEST"), *slow = getenv("STANDIN_SLOW");
    w.delay += fastest && p.pieces != 1ull << atoi(fastest) ? 10 : 0;
    w.delay += slow && is_one(slow, p.d.epilogue, false) ? 10 : 0;
    w.run = [=] {
        if (size > 0)
            memset(workspace, 0xff, size);
        multiply_all(p);
    };
    enqueue(stream, std::move(w));
    return CUBLAS_STATUS_SUCCESS;
}
}
