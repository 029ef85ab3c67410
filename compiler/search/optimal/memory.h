/* Memory in bytes, where the cluster has so much and the script has no caps. */
#ifndef PIANOLA_OPTIMAL_MEMORY_H
#define PIANOLA_OPTIMAL_MEMORY_H
#include "order.h"

bool counts_bytes(const struct spec *sp);
/* Per rank: what is left of the cluster's memory beside what stays for the whole step. lists: any order that can run.
 */
int64_t *room_in_bytes(const struct compile *c, struct lists lists);
/* Per rank: that. */
int64_t *bytes_that_stay(const struct compile *c, struct lists lists);
/* By how many bytes the smallest plan for this order exceeds the cluster's memory on some rank; 0: it fits. */
int64_t excess_of_plan(const struct compile *c, struct lists lists);
#endif
