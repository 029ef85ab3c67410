/* The training of `run`, and at its end --loss-svg. */
#ifndef PIANOLA_RUN_RECORD_H
#define PIANOLA_RUN_RECORD_H
#include "pipeline.h"
#include "training.h"

/* Trains all steps that are left, and writes what the user asks for. kept: as of train. */
struct trained train_and_record(const struct compile *c, const struct settings *settings, struct data *data,
                                struct data *held_out, int64_t kept);
#endif
