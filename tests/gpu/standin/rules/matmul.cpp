/* Rules of cuBLASLt. */
#include "rules.h"
#include "../cublasLt.h"
#include "../bf16.h"
#include <cmath>
#include <cstring>
#include <vector>

struct product {
    int m, n, k;
    bool ta, tb, bf16;
    unsigned epilogue;
    float alpha, beta;
    size_t workspace;
    int shift; /* of A, in elements */
    int bias_shift = 0;
    unsigned promise = 0; /* promised alignment of A; 0: the default, 256 */
};

static void *upload(const std::vector<float> &v, bool bf16) {
    std::vector<uint16_t> half;
    for (float x : v)
        half.push_back(bf16_narrow(x));
    void *p, *from = bf16 ? (void *)half.data() : (void *)v.data();
    size_t bytes = v.size() * (bf16 ? 2 : 4);
    OK(cudaMalloc(&p, bytes));
    OK(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice));
    OK(cudaStreamSynchronize(cudaStreamLegacy));
    return p;
}
static std::vector<float> download(const void *p, size_t n, bool bf16) {
    std::vector<float> v(n);
    std::vector<uint16_t> half(n);
    OK(cudaMemcpy(bf16 ? (void *)half.data() : (void *)v.data(), p, n * (bf16 ? 2 : 4), cudaMemcpyDeviceToHost));
    for (size_t i = 0; bf16 && i < n; i++)
        v[i] = bf16_widen(half[i]);
    return v;
}
static std::vector<float> numbers(size_t n, int seed) {
    std::vector<float> v;
    for (size_t i = 0; i < n; i++)
        v.push_back((float)((int)(i * 7 + (size_t)seed * 5) % 7 - 3));
    return v;
}

/* D, then the bias, then the auxiliary matrix. */
struct result {
    std::vector<float> d, bias, aux;
};
static result multiply(const product &p, const product &planned) {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t d;
    cublasLtMatrixLayout_t a, b, e;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0, op = CUBLAS_OP_T;
    size_t M = (size_t)p.m, N = (size_t)p.n, K = (size_t)p.k, ld = (M + 7) / 8 * 8;
    cudaDataType_t type = p.bf16 ? CUDA_R_16BF : CUDA_R_32F;
    void *A = upload(numbers(M * K + 16, 1), p.bf16), *B = upload(numbers(K * N, 2), p.bf16),
         *D = upload(numbers(M * N, 3), p.bf16), *bias = upload(numbers(M + N, 4), p.bf16),
         *aux = upload(numbers(ld * N, 5), p.bf16), *workspace;
    OK(cudaMalloc(&workspace, 1 << 20));
    OK(cublasLtCreate(&handle));
    OK(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    if (p.ta)
        OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op));
    if (p.tb)
        OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &op, sizeof op));
    int64_t aux_ld = (int64_t)ld;
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &planned.epilogue, sizeof planned.epilogue));
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld));
    OK(cublasLtMatrixLayoutCreate(&a, type, p.ta ? K : M, p.ta ? M : K, (int64_t)(p.ta ? K : M)));
    OK(cublasLtMatrixLayoutCreate(&b, type, p.tb ? N : K, p.tb ? K : N, (int64_t)(p.tb ? N : K)));
    OK(cublasLtMatrixLayoutCreate(&e, type, M, N, (int64_t)M));
    size_t bytes = 1 << 20;
    OK(cublasLtMatmulPreferenceCreate(&wish));
    OK(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    if (planned.promise)
        OK(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &planned.promise,
                                                sizeof planned.promise));
    OK(cublasLtMatmulAlgoGetHeuristic(handle, d, a, b, e, e, wish, 1, &found, &n));
    MUST(n == 1);
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &p.epilogue, sizeof p.epilogue));
    char *shifted = (char *)bias + p.bias_shift * (p.bf16 ? 2 : 4);
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &shifted, sizeof shifted));
    cudaStream_t s = new_stream();
    OK(cublasLtMatmul(handle, d, &p.alpha, (char *)A + p.shift * (p.bf16 ? 2 : 4), a, B, b, &p.beta, D, e, D, e,
                      &found.algo, workspace, p.workspace, s));
    OK(cudaStreamSynchronize(s));
    result r = {download(D, M * N, p.bf16), download(bias, M + N, p.bf16), download(aux, ld * N, p.bf16)};
    OK(cublasLtMatmulPreferenceDestroy(wish));
    OK(cublasLtMatmulDescDestroy(d));
    for (auto l : {a, b, e})
        OK(cublasLtMatrixLayoutDestroy(l));
    OK(cublasLtDestroy(handle));
    return r;
}

static double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

/* Compares with doubles, computed element by element. */
static void check(const product &p) {
    result r = multiply(p, p);
    size_t M = (size_t)p.m, N = (size_t)p.n, K = (size_t)p.k, ld = (M + 7) / 8 * 8;
    auto A = numbers(M * K + 16, 1), B = numbers(K * N, 2), D = numbers(M * N, 3), bias = numbers(M + N, 4),
         aux = numbers(ld * N, 5);
    auto near = [&](double x, float y) { return std::fabs(x - y) <= (p.bf16 ? 0.02 : 1e-5) * (1 + std::fabs(x)); };
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            double x = 0;
            for (size_t k = 0; k < K; k++)
                x += A[p.ta ? k + i * K : i + k * M] * B[p.tb ? j + k * N : k + j * K];
            x = p.alpha * x + p.beta * D[i + j * M];
            if (p.epilogue & 4)
                x += bias[i];
            if (p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
                MUST(near(x, r.aux[i + j * ld]));
            double z = aux[i + j * ld], h = 1e-6;
            if (p.epilogue & 64)
                x *= (gelu(z + h) - gelu(z - h)) / (2 * h);
            if (p.epilogue & 32)
                x = gelu(x);
            MUST(near(x, r.d[i + j * M]));
        }
    for (size_t i = 0; p.epilogue >= 256 && i < (p.epilogue == CUBLASLT_EPILOGUE_BGRADA ? M : N); i++) {
        double x = 0;
        for (size_t k = 0; k < K; k++)
            x += p.epilogue == CUBLASLT_EPILOGUE_BGRADA ? A[p.ta ? k + i * K : i + k * M]
                                                        : B[p.tb ? i + k * N : k + i * K];
        MUST(x == r.bias[i]);
    }
}
static void products(void) {
    for (bool ta : {false, true})
        for (bool tb : {false, true})
            for (bool bf16 : {false, true})
                for (unsigned e : {1u, 4u, 164u, 192u, 256u, 512u})
                    check({5, 7, 6, ta, tb, bf16, e, 1, e == 1 ? 1.0f : 0.0f, 1 << 20, 0, 0, 0});
}

/* A product of bf16 matrices into fp32 with the gradient of a bias, and its plan. */
struct weight_gradient {
    enum { M = 8, N = 8, K = 12 };
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t d;
    cublasLtMatrixLayout_t a, b, e;
    cublasLtMatmulPreference_t wish;
    void *A, *B, *D, *bias, *workspace;
    weight_gradient(int bias_type, int k = K) {
        int t = CUBLAS_OP_T;
        unsigned epilogue = CUBLASLT_EPILOGUE_BGRADA;
        size_t bytes = 1 << 20;
        A = upload(numbers(M * K, 1), true), B = upload(numbers(N * K, 2), true);
        D = upload(std::vector<float>(M * N, 1), false), bias = upload(std::vector<float>(M, 9), false);
        OK(cudaMalloc(&workspace, bytes));
        OK(cublasLtCreate(&handle));
        OK(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &t, sizeof t));
        OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
        OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type));
        OK(cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, M, (uint64_t)k, M));
        OK(cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, N, (uint64_t)k, N));
        OK(cublasLtMatrixLayoutCreate(&e, CUDA_R_32F, M, N, M));
        OK(cublasLtMatmulPreferenceCreate(&wish));
        OK(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    }
    cublasStatus_t ask(int wanted, cublasLtMatmulHeuristicResult_t *found, int *n) {
        return cublasLtMatmulAlgoGetHeuristic(handle, d, a, b, e, e, wish, wanted, found, n);
    }
    cublasStatus_t check(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
        return cublasLtMatmulAlgoCheck(handle, d, a, b, e, e, algo, result);
    }
};

/* Accumulates D and writes the gradient, both in fp32: the table of types allows no other. */
static void bias_of_weights(void) {
    const int M = weight_gradient::M, N = weight_gradient::N, K = weight_gradient::K;
    auto a = numbers(M * K, 1), b = numbers(N * K, 2);
    weight_gradient g(CUDA_R_32F), half(CUDA_R_16BF);
    cublasLtMatmulHeuristicResult_t found[8];
    int n;
    float one = 1;
    MUST(half.ask(1, found, &n) == CUBLAS_STATUS_NOT_SUPPORTED);
    OK(g.ask(1, found, &n));
    OK(cublasLtMatmul(g.handle, g.d, &one, g.A, g.a, g.B, g.b, &one, g.D, g.e, g.D, g.e, &found->algo, g.workspace,
                      1 << 20, cudaStreamLegacy));
    auto d = download(g.D, M * N, false), sums = download(g.bias, M, false);
    for (int i = 0; i < M; i++) {
        float sum = 0, first = 1;
        for (int k = 0; k < K; k++) {
            sum += a[(size_t)(i + k * M)];
            first += a[(size_t)(i + k * M)] * b[(size_t)(k * N)];
        }
        MUST(sums[(size_t)i] == sum && d[(size_t)i] == first);
    }
}
/* Keeps an algorithm as bytes; it belongs to this product. */
static void algorithms(void) {
    weight_gradient g(CUDA_R_32F), other(CUDA_R_32F, 4);
    cublasLtMatmulHeuristicResult_t found[8], checked;
    int n;
    OK(g.ask(8, found, &n));
    MUST(n == 3);
    for (int i = 0; i < n; i++) {
        cublasLtMatmulAlgo_t kept = found[i].algo;
        OK(g.check(&kept, &checked));
        MUST(checked.workspaceSize == found[i].workspaceSize);
        MUST(other.check(&kept, &checked) == CUBLAS_STATUS_INVALID_VALUE);
        MUST(i == 0 || memcmp(&found[i].algo, &found[i - 1].algo, sizeof kept) != 0);
        kept.data[0]++;
        MUST(g.check(&kept, &checked) == CUBLAS_STATUS_INVALID_VALUE);
    }
    MUST(g.ask(0, found, &n) == CUBLAS_STATUS_INVALID_VALUE);
}

static const product plain = {8, 8, 8, false, false, false, CUBLASLT_EPILOGUE_DEFAULT, 1, 0, 1 << 20, 0, 0, 0};
static void unaligned(void) {
    product p = plain;
    p.shift = 1;
    multiply(p, plain);
}
static void little_aligned(void) {
    product p = plain;
    p.shift = 4;
    multiply(p, plain);
}
static void promised(void) {
    product p = plain;
    p.shift = 4;
    p.promise = 16;
    multiply(p, p);
}
static void bias_unaligned(void) {
    product p = plain;
    p.epilogue = CUBLASLT_EPILOGUE_BIAS;
    p.bias_shift = 1;
    multiply(p, p);
}
static void other_epilogue(void) {
    product p = plain;
    p.epilogue = CUBLASLT_EPILOGUE_BIAS;
    multiply(p, plain);
}
static void little_workspace(void) {
    product p = plain;
    p.workspace = 16;
    multiply(p, plain);
}
static void large_workspace(void) {
    product p = plain;
    p.workspace = 2 << 20;
    multiply(p, plain);
}
static void handle_late(void) {
    cublasLtHandle_t h;
    standin_started();
    OK(cublasLtCreate(&h));
}

const rule matmul_rules[] = {
    {"products", nullptr, products},
    {"bias_of_weights", nullptr, bias_of_weights},
    {"algorithms", nullptr, algorithms},
    {"unaligned", "A is at", unaligned},
    {"little_aligned", "found for multiples of 256", little_aligned},
    {"promised", nullptr, promised},
    {"bias_unaligned", "found for multiples of 256", bias_unaligned},
    {"other_epilogue", "found for other shapes", other_epilogue},
    {"little_workspace", "16 bytes of workspace", little_workspace},
    {"large_workspace", "of an allocation of 1048576", large_workspace},
    {"handle_late", "START: cublasLtCreate", handle_late},
    {nullptr, nullptr, nullptr},
};
