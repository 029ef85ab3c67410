/* What `run` writes as it goes: --losses, --metrics, and at the end --loss-svg. */
#ifndef PIANOLA_RUN_RECORD_H
#define PIANOLA_RUN_RECORD_H
#include "pipeline.h"
#include "training.h"

/* Trains all steps that are left. saving: as in rt_run. kept: as of train. */
struct trained train_and_record(const struct compile *c, const struct settings *settings, struct data *data,
                                const struct data *held_out, const struct saving *saving, int64_t kept);
#endif
