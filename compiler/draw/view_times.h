/* Times in the viewer's data, as differences from predictions: see viewer/data.js. An operation is expected to start as
 * soon as its lane and its needs allow, so costs that differ from job to job are written once, as lengths. */
#ifndef PIANOLA_VIEW_TIMES_H
#define PIANOLA_VIEW_TIMES_H
#include "columns.h"

/* All times are in ticks, fewer than 2^31. Rows are numbered from 0 over all sides. */
struct view_times;
struct view_times *view_times_begin(void);
void view_times_row(struct view_times *times);
void view_times_lane(struct view_times *times);
void view_times_op(struct view_times *times, int32_t symbol, int32_t start, int32_t end);
/* Adds a need of the last operation: the operation that made it, by row and place; place -1: none is drawn. */
void view_times_need(struct view_times *times, int32_t row, int32_t place);
void view_times_message(struct view_times *times, int32_t sent, int32_t arrived); /* what brought the last need */
/* Writes all times. slack: the error in ticks to accept where the prediction is that good. */
struct view_time_columns {
    struct column *gap, *length, *after, *took;
};
void view_times_end(struct view_times *times, int32_t slack, const struct view_time_columns *to);
#endif
