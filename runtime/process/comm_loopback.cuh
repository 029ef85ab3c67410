/* Messages between ranks that are driven by one thread of this process, on one CUDA device. */
#ifndef PIANOLA_COMM_LOOPBACK_CUH
#define PIANOLA_COMM_LOOPBACK_CUH
#include "device/device_cuda.cuh"

extern const struct cuda_transport cuda_loopback;
struct loopback;
/* Opens the transport. rank: all ranks of p; the caller keeps it until close. Ends the process if there is no
 * memory. */
struct loopback *loopback_open(const struct rt_program *p, struct cuda_rank *rank);
void loopback_close(struct loopback *loopback);
#endif
