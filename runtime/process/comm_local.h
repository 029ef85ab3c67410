/* Messages between ranks that are threads of one process. Each message has a static flag that counts its turns, and
 * needs no queue and no lock. */
#ifndef PIANOLA_COMM_LOCAL_H
#define PIANOLA_COMM_LOCAL_H
#include "device/device_host.h"

extern const struct host_transport host_local;
struct local;
struct local *local_open(const struct rt_program *p); /* returns NULL if there is no memory */
/* Sets the arena of a rank of p, which the caller keeps until close; implements prepare of struct world. */
bool local_prepare(void *messages, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena);
double local_handoff(const struct local *local); /* turns_handoff */
void local_close(struct local *local);
#endif
