/* Memory in bytes, if the cluster's memory is the limit and the script has no caps. */
#ifndef PIANOLA_OPTIMAL_MEMORY_H
#define PIANOLA_OPTIMAL_MEMORY_H
#include "order.h"

bool counts_bytes(const struct spec *sp);
/* Returns, per rank, the cluster's memory minus what stays for the whole step. lists: any order that can run. */
int64_t *room_in_bytes(const struct compile *c, struct lists lists);
/* Returns, per rank, the bytes that stay for the whole step. */
int64_t *bytes_that_stay(const struct compile *c, struct lists lists);
/* Returns by how many bytes the smallest plan for this order exceeds the cluster's memory on some rank; 0: it fits. */
int64_t excess_of_plan(const struct compile *c, struct lists lists);
#endif
