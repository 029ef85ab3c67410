/* In the runtime's place: a rank's program linked with this prints what it holds. */
#include "dump.h"

int rank_main(int argc, char **argv, const struct rt_program *self) {
    (void)argc, (void)argv;
    dump(stdout, self);
    return ferror(stdout);
}
