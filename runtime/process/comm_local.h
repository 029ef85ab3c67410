/* Messages between ranks that are threads of one process. Each message has a static flag that counts its turns: no
 * queue, no lock. */
#ifndef PIANOLA_COMM_LOCAL_H
#define PIANOLA_COMM_LOCAL_H
#include "device/device_host.h"

extern const struct host_transport host_local;
struct local;
struct local *local_open(const struct rt_program *p); /* NULL: no memory */
/* Says where a rank of p has its arena, the caller's until close; as prepare of struct world. */
bool local_prepare(void *messages, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena);
void local_close(struct local *local);
#endif
