/* Times in the viewer's data, by numbers worked out by hand. */
#include "draw/view_times.h"
#include <criterion/criterion.h>

struct written {
    struct column gap, length, after, took;
};

static const char *end_times(struct view_times *times, int32_t slack, struct written *written) {
    struct text t = {0};
    struct column *column[] = {&written->gap, &written->length, &written->after, &written->took};
    const struct view_time_columns to = {column[0], column[1], column[2], column[3]};
    view_times_end(times, slack, &to);
    for (int c = 0; c < 4; c++) {
        put(&t, c ? " " : "");
        column_write(&t, column[c]);
    }
    return t.s;
}

static void put_rank(struct view_times *times, int32_t symbol, int32_t start, int32_t end) {
    view_times_row(times);
    view_times_lane(times);
    view_times_op(times, symbol, start, end);
}

/* Rank 0 computes from 0 to 3, sends from 4 to 6, and rank 1 computes from 6 to 9. A number v > 0 is written as the
 * byte 2 v. */
Test(view_times, starts_when_the_message_arrives) {
    struct written written = {0};
    struct view_times *times = view_times_begin();
    put_rank(times, 0, 0, 3);
    put_rank(times, 1, 6, 9);
    view_times_need(times, 0, 0);
    view_times_message(times, 4, 6);
    cr_assert_str_eq(end_times(times, 0, &written), "AAE= BgY= Ag== BA=="); /* gaps 0 0; lengths 3 3; 1; 2 */
    free_all();
}

/* The first row's operation needs one of a later row, and starts 1 later than predicted from it. */
Test(view_times, settles_later_rows_first) {
    struct written written = {0};
    struct view_times *times = view_times_begin();
    put_rank(times, 0, 6, 9);
    view_times_need(times, 1, 0);
    put_rank(times, 1, 0, 5);
    cr_assert_str_eq(end_times(times, 0, &written), "AgAA Bgo=  "); /* gaps 1 0; lengths 3 5 */
    free_all();
}

/* Each needs the other. The first goes ahead; the second is then 1 earlier than predicted. */
Test(view_times, a_circle_ends) {
    struct written written = {0};
    struct view_times *times = view_times_begin();
    put_rank(times, 0, 0, 2);
    view_times_need(times, 1, 0);
    put_rank(times, 1, 1, 3);
    view_times_need(times, 0, 0);
    cr_assert_str_eq(end_times(times, 0, &written), "AAAB BAQ=  "); /* gaps 0 -1; lengths 2 2 */
    free_all();
}

/* Errors within the slack are accepted, but do not add up: 10 operations of 10.3 ticks, one after another. */
Test(view_times, errors_do_not_add_up) {
    struct written written = {0};
    struct view_times *times = view_times_begin();
    view_times_row(times);
    view_times_lane(times);
    for (int i = 0; i < 10; i++)
        view_times_op(times, 0, (103 * i + 5) / 10, (103 * (i + 1) + 5) / 10);
    /* Gaps are 0. Lengths are 10 until the end is 2 early, at 52: 10 four times, 12, 10 five times. */
    cr_assert_str_eq(end_times(times, 1, &written), "AAk= FAACBAMAAw==  ");
    free_all();
}
