/* Updates on devices: whole matrices by an optimizer that steps them, everything else by optim.cu. */
#include "cuda_math.cuh"
#include "store/parameter_walk.h"

/* Returns the model's optimizer of whole matrices, or NULL if it has none. */
static const struct cuda_matrix_optimizer *matrix_optimizer(const struct rt_model *m) {
    switch (m->optimizer) {
#define X(NAME, name, ...)                                                                                             \
    case OPT_##NAME: return &cuda_##name;
        MATRIX_OPTIMIZERS(X)
#undef X
    default: return NULL;
    }
}

void cuda_update_plan(const struct rt_program *p) {
    if (matrix_optimizer(p->model))
        matrix_optimizer(p->model)->plan(p);
}

void cuda_update_forget(void) {
#define X(NAME, name, ...) cuda_##name.forget();
    MATRIX_OPTIMIZERS(X)
#undef X
}

/* Updates a piece. With an optimizer of matrices, the piece is a whole stage. */
void cuda_update(const struct rt_update *u, const struct cuda_number *number, void *workspace, cudaStream_t stream) {
    const struct cuda_matrix_optimizer *by = matrix_optimizer(u->piece.m);
    int64_t done = 0;
    for (struct parameter_walk walk = walk_parameters(u->piece); by && next_parameter(&walk);) {
        if (matrix_work(u->piece.m, walk.l, walk.p) == 0)
            continue;
        cuda_update_part(u, done, walk.begin, number, stream);
        by->step(u, walk.p, walk.begin, number, workspace, stream);
        done = walk.begin + walk.p->count;
    }
    cuda_update_part(u, done, u->piece.n, number, stream);
}
