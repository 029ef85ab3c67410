/* Messages between ranks that are threads of one process. Each message has a static flag that counts its turns: no
 * queue, no lock. */
#ifndef PIANOLA_COMM_LOCAL_H
#define PIANOLA_COMM_LOCAL_H
#include "device/device_host.h"

extern const struct host_transport host_local;
struct local;
/* arena: per rank; the caller's until close. NULL: no memory. */
struct local *local_open(const struct rt_program *p, char *const *arena);
void local_close(struct local *local);
#endif
