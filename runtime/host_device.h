/* Between device_host.c and train_host.c: what a rank of this process owns. */
#ifndef PIANOLA_HOST_DEVICE_H
#define PIANOLA_HOST_DEVICE_H
#include "device.h"

struct host_rank {
    char *arena;
    const struct data *data;
    void *batch;            /* data_bytes: the microbatch being read */
    float *loss;            /* per microbatch of the step; the last stage's rank writes it */
    int64_t *ended;         /* per instruction: steps in which it has ended */
    struct rt_stamp *stamp; /* per instruction */
    struct local *local;
    uint32_t heard;
    int64_t origin; /* seconds of the monotonic clock when the run began */
};
extern const struct device host_device;
#endif
