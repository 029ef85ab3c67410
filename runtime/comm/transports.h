/* How messages travel between ranks that are processes with GPUs, a row for each transport, the default first: X(name,
 * help). cuda_<name>, in comm_<name>.cu, is it; --messages <name> chooses it; help is what --help says of it. */
#ifndef PIANOLA_TRANSPORTS_H
#define PIANOLA_TRANSPORTS_H

#define CUDA_TRANSPORTS(X)                                                                                             \
    X(nccl, "nccl (default)")                                                                                          \
    X(put, "put: copies into the memory of ranks of the same host")

#define X(name, help) CUDA_##name,
enum { CUDA_TRANSPORTS(X) NCUDA_TRANSPORTS };
#undef X

#define X(name, help) extern const struct cuda_transport cuda_##name;
struct cuda_transport;
CUDA_TRANSPORTS(X)
#undef X
#endif
