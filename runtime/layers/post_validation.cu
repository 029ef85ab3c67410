/* Updates that may be rolled back. The device decides, since only it has the norm once the next step is under way. */
#include "cuda.cuh"
#include "post_validation.h"

enum { THREADS = 256 };

static __global__ void judge(struct kept *kept, struct rt_model m, const uint64_t *norm, bool settles) {
    judge_update(kept, &m, norm, settles);
}

/* n weights, or their masters, moments and gradients. kept: a header, then copies of all these. */
struct copied {
    float *weight, *moments, *kept;
    const float *dw;
    int64_t n, state; /* state: floats of moments */
};

static __global__ void copy_kept(struct kept *header, struct copied c) {
    const int verdict = header->verdict;
    float *dw = c.kept + c.n + c.state;
    if (verdict == STANDS)
        return;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < c.n; i += (int64_t)gridDim.x * THREADS) {
        if (verdict == TAKES_BACK)
            c.weight[i] = c.kept[i];
        else {
            c.kept[i] = c.weight[i];
            dw[i] = c.dw[i];
        }
        for (int64_t k = i; k < c.state; k += c.n)
            if (verdict == TAKES_BACK)
                c.moments[k] = c.kept[c.n + k];
            else
                c.kept[c.n + k] = c.moments[k];
    }
}

void cuda_update_ahead(const struct rt_update *u, const struct cuda_number *number, void *workspace,
                       cudaStream_t stream) {
    const struct rt_model *m = u->piece.m;
    const bool masters = m->precision == BF16;
    const int64_t n = u->piece.n, state = count_moments(m->optimizer) * n;
    float *moments = u->opt + (masters ? n : 0);
    struct kept *header = (struct kept *)(moments + state);
    const struct copied copied = {masters ? u->opt : (float *)u->w, moments, (float *)(header + 1), u->dw, n, state};
    struct cuda_number of_made = *number;
    struct rt_update made = *u;
    of_made.kept = header;
    of_made.settles = u->settles;
    made.dw = copied.kept + n + state;
    LAUNCH(judge, 1, 1, 0, stream, header, *m, u->norm, u->settles);
    LAUNCH(copy_kept, blocks_for(n, THREADS), THREADS, 0, stream, header, copied);
    cuda_update(&made, &of_made, workspace, stream);
}
