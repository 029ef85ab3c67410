/* The transports between ranks that are processes, one row each; runtime/README.md says how to add one.
 *
 * HOST: ways for ranks to meet and for messages to travel between CPUs. launch.h chooses one. X(name, title):
 * <name>_open, in comm_<name>.c, opens it; title is its name in messages.
 *
 * CUDA: ways for messages to travel between GPUs. --messages <name> chooses one; the first is the default. X(name,
 * help): cuda_<name>, in comm_<name>.cu, implements it; help is its text in the line of --help. */
#ifndef PIANOLA_TRANSPORTS_H
#define PIANOLA_TRANSPORTS_H

#define HOST_TRANSPORTS(X)                                                                                             \
    X(tcp, "TCP")                                                                                                      \
    X(mpi, "MPI")
#define CUDA_TRANSPORTS(X)                                                                                             \
    X(nccl, "nccl (default)")                                                                                          \
    X(put, "put: copies into the memory of ranks on the same host")

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
