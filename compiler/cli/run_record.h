/* The training of `run`, with --loss-svg at its end. */
#ifndef PIANOLA_RUN_RECORD_H
#define PIANOLA_RUN_RECORD_H
#include "pipeline.h"
#include "training.h"

/* Trains all remaining steps, and writes the files that the user asked for. kept: as for train. */
struct trained train_and_record(const struct compile *c, const struct settings *settings, struct data *data,
                                struct data *held_out, int64_t kept, const struct introduction *introduction);
#endif
