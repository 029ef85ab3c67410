/* The transports between ranks that are processes, one row each; runtime/README.md says how to add one.
 *
 * HOST: how ranks meet, and how messages travel between CPUs. launch.h chooses one. X(name, title): <name>_open, in
 * comm_<name>.c, opens it; title is its name in messages.
 *
 * CUDA: how messages travel between GPUs. --messages <name> chooses one; the first is the default. X(name, help):
 * cuda_<name>, in comm_<name>.cu, implements it; help is its part of the line in --help. */
#ifndef PIANOLA_TRANSPORTS_H
#define PIANOLA_TRANSPORTS_H

#define HOST_TRANSPORTS(X)                                                                                             \
    X(tcp, "TCP")                                                                                                      \
    X(mpi, "MPI")
#define CUDA_TRANSPORTS(X)                                                                                             \
    X(nccl, "nccl (default)")                                                                                          \
    X(put, "put: copies into the memory of ranks of the same host")

#define X(name, ...) HOST_##name,
enum { HOST_TRANSPORTS(X) NHOST_TRANSPORTS };
#undef X
#define X(name, ...) CUDA_##name,
enum { CUDA_TRANSPORTS(X) NCUDA_TRANSPORTS };
#undef X
#define X(name, ...) extern const struct cuda_transport cuda_##name;
struct cuda_transport; /* device_cuda.cuh */
CUDA_TRANSPORTS(X)
#undef X
extern const struct cuda_transport cuda_nccl_ordered; /* nccl, with --reduce ordered */
#endif
