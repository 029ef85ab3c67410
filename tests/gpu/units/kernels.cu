/* The kernels of kernels.ptx: nvcc -ptx -arch=compute_80 -O1 made that. */
extern "C" __global__ void __launch_bounds__(64)
    scale_rows(float *y, const float *x, const float *scale, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] * scale[i % columns];
}

/* A block of 64 threads sums a column. */
extern "C" __global__ void __launch_bounds__(64)
    sum_column(float *sum, const float *a, const float *b, int rows, int columns) {
    extern __shared__ float part[];
    float mine = 0;
    for (int r = threadIdx.x; r < rows; r += blockDim.x)
        mine += a[r * columns + blockIdx.x] * b[r * columns + blockIdx.x];
    for (int i = 16; i > 0; i /= 2)
        mine += __shfl_xor_sync(0xffffffffu, mine, i);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0)
        sum[blockIdx.x] = part[0] + part[1];
}
