/* Environments as launchers set them, and wrong ones as people set them. */
#include "comm/launch.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets the variables in the line, "RANK=1 WORLD_SIZE=4", and no other that is read. */
static void environment(const char *line) {
    static const char *const all[] = {"RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "SLURM_PROCID",
                                      "SLURM_NTASKS",
                                      "SLURM_LOCALID",
                                      "SLURM_STEP_NODELIST",
                                      "SLURM_STEP_ID",
                                      "SLURM_JOB_ID",
                                      "SLURM_DISTRIBUTION",
                                      "SLURM_HET_SIZE",
                                      "PMIX_RANK",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "TORCHELASTIC_USE_AGENT_STORE"};
    static char text[1024];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        unsetenv(all[i]);
    snprintf(text, sizeof text, "%s", line);
    for (char *s = strtok(text, " "); s; s = strtok(NULL, " "))
        putenv(s);
}

static const struct launch no_flags = {.rank = -1, .size = -1, .local = -1};

/* Returns the result in words: "rank 1 of 4, local 0, by RANK, at node0:29500"; or the error. */
static const char *found(const char *line, struct launch f) {
    static char out[1024];
    char why[512] = "";
    environment(line);
    if (!launch_find(&f, why, sizeof why)) {
        cr_assert_lt(strlen(why), 256, "longer than rank_flags.c takes: %s", why);
        snprintf(out, sizeof out, "%s", why);
    } else
        snprintf(out, sizeof out, "%s: rank %d of %d, local %d, by %s, at %s:%s", f.over == HOST_mpi ? "MPI" : "TCP",
                 f.rank, f.size, f.local, f.by ? f.by : "nobody", f.addr ? f.addr : "", f.port ? f.port : "");
    return out;
}

#define EXPECT(wanted, line, flags) cr_expect_str_eq(found(line, flags), wanted, "%s\n -> %s", line, found(line, flags))

#define MEET  " MASTER_ADDR=node0 MASTER_PORT=29500"
#define OMPI  " OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 PMIX_RANK=2"
#define SLURM " SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=1"
#define STEP  " SLURM_STEP_NODELIST=n[001-003,7] SLURM_JOB_ID=7 SLURM_STEP_ID=2"

Test(launch, nobody_said_anything) {
    EXPECT("TCP: rank -1 of -1, local -1, by nobody, at :", "", no_flags);
    EXPECT("TCP: rank -1 of -1, local -1, by nobody, at :", "RANK= WORLD_SIZE= MASTER_ADDR=", no_flags);
    EXPECT("TCP: rank -1 of -1, local -1, by nobody, at :", "SLURM_NTASKS=8 LOCAL_RANK=0", no_flags);
    EXPECT("TCP: rank -1 of -1, local -1, by nobody, at :tcp://10.0.0.1:80", "MASTER_PORT=tcp://10.0.0.1:80", no_flags);
}

Test(launch, one_rank_meets_nobody) {
    EXPECT("TCP: rank 0 of 1, local 0, by RANK, at :", "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0", no_flags);
    EXPECT("TCP: rank 0 of 1, local -1, by Slurm, at :", "SLURM_PROCID=0 SLURM_NTASKS=1", no_flags);
    EXPECT("TCP: rank 0 of 1, local -1, by --rank, at :", "", ((struct launch){.rank = 0, .size = 1, .local = -1}));
}

Test(launch, over_tcp) {
    EXPECT("TCP: rank 1 of 4, local 0, by RANK, at node0:29500", "RANK=1 WORLD_SIZE=4 LOCAL_RANK=0" MEET, no_flags);
    EXPECT("TCP: rank 1 of 4, local -1, by RANK, at node0:29500", "RANK=1 WORLD_SIZE=4" MEET OMPI SLURM, no_flags);
    EXPECT("TCP: rank 3 of 8, local 1, by Slurm, at node0:29500", SLURM MEET, no_flags);
    EXPECT("TCP: rank 3 of 4, local 1, by Slurm, at node0:29500", "WORLD_SIZE=4" SLURM MEET, no_flags);
    EXPECT("TCP: rank 0 of 2, local -1, by RANK, at ::1:1", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1",
           no_flags);
    EXPECT("TCP: rank 0 of 2, local -1, by RANK, at a:65535", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65535",
           no_flags);
}

Test(launch, torchrun_keeps_the_port_for_itself) {
#define TORCHRUN "RANK=1 WORLD_SIZE=4 TORCHELASTIC_USE_AGENT_STORE=True MASTER_ADDR=node0"
    EXPECT("TCP: rank 1 of 4, local -1, by RANK, at node0:29501", TORCHRUN " MASTER_PORT=29500", no_flags);
    EXPECT("TCP: rank 1 of 4, local -1, by RANK, at node0:29500",
           "RANK=1 WORLD_SIZE=4 TORCHELASTIC_USE_AGENT_STORE=False" MEET, no_flags);
    EXPECT("MASTER_PORT is '65535': expected a port, 1 to 65534", TORCHRUN " MASTER_PORT=65535", no_flags);
    EXPECT("TCP: rank 1 of 4, local -1, by RANK, at node0:65535", TORCHRUN,
           ((struct launch){.rank = -1, .size = -1, .local = -1, .port = "65535"}));
}

Test(launch, flags_come_first) {
    struct launch f = {.rank = 3, .size = 5, .local = -1, .addr = "here", .port = "7"};
    EXPECT("TCP: rank 3 of 5, local -1, by --rank, at here:7", "", f);
    EXPECT("TCP: rank 3 of 5, local 6, by --rank, at here:7", "RANK=1 WORLD_SIZE=4 LOCAL_RANK=6" MEET OMPI, f);
    EXPECT("TCP: rank 3 of 5, local -1, by --rank, at here:7", SLURM, f);
    f = (struct launch){.rank = 3, .size = -1, .local = -1, .port = "7"};
    EXPECT("TCP: rank 3 of 4, local -1, by --rank, at node0:7", "RANK=x WORLD_SIZE=4" MEET, f);
    EXPECT("MPI: rank 3 of 4, local -1, by --rank, at :7", OMPI, f);
}

Test(launch, over_mpi) {
    EXPECT("MPI: rank 2 of 4, local 1, by Open MPI, at :", OMPI, no_flags);
    EXPECT("MPI: rank 2 of 4, local 1, by Open MPI, at node0:29500", OMPI MEET, no_flags);
    EXPECT("MPI: rank 2 of 4, local 1, by Open MPI, at node0:29500", OMPI MEET SLURM, no_flags);
    EXPECT("MPI: rank 3 of 8, local 1, by Slurm, at :", "PMIX_RANK=3" SLURM, no_flags);
    EXPECT("MPI: rank -1 of -1, local -1, by nobody, at :", "PMI_RANK=1 PMI_SIZE=4", no_flags);
    EXPECT("MPI: rank -1 of -1, local -1, by nobody, at :", "PMI_SIZE=4", no_flags);
    EXPECT("MPI: rank 0 of 4, local -1, by RANK, at node0:", "RANK=0 WORLD_SIZE=4 MASTER_ADDR=node0" OMPI, no_flags);
    EXPECT("MPI: rank 0 of 4, local -1, by RANK, at a:x", "RANK=0 MASTER_ADDR=a MASTER_PORT=x" OMPI, no_flags);
}

Test(launch, something_is_missing) {
#define NEED ": without an MPI launcher, all ranks need RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    EXPECT("RANK is 1, but MASTER_ADDR is not set" NEED, "RANK=1 WORLD_SIZE=4", no_flags);
    EXPECT("RANK is 1, but MASTER_PORT is not set" NEED, "RANK=1 WORLD_SIZE=4 MASTER_ADDR=a", no_flags);
    EXPECT("RANK is 1, but MASTER_ADDR is not set" NEED, "RANK=1 WORLD_SIZE=4 MASTER_PORT=1", no_flags);
    EXPECT("RANK is 1, but WORLD_SIZE is not set" NEED, "RANK=1" MEET, no_flags);
    EXPECT("RANK is 0, but WORLD_SIZE is not set" NEED, "RANK=0 SLURM_NTASKS=4" MEET, no_flags);
    EXPECT("WORLD_SIZE is 4, but RANK is not set" NEED, "WORLD_SIZE=4" MEET, no_flags);
    EXPECT("--rank is 1, but WORLD_SIZE is not set" NEED, "", ((struct launch){.rank = 1, .size = -1, .local = -1}));
}

Test(launch, slurm_says_where_ranks_meet) {
    EXPECT("TCP: rank 3 of 8, local 1, by Slurm, at n001:22001", SLURM STEP, no_flags);
    EXPECT("TCP: rank 3 of 8, local 1, by Slurm, at a:22001", "MASTER_ADDR=a" SLURM STEP, no_flags);
    EXPECT("TCP: rank 3 of 8, local 1, by Slurm, at n001:5", "MASTER_PORT=5" SLURM STEP, no_flags);
    EXPECT("TCP: rank 3 of 8, local 1, by Slurm, at n001:6", SLURM STEP,
           ((struct launch){.rank = -1, .size = -1, .local = -1, .port = "6"}));
    EXPECT("TCP: rank 3 of 8, local 1, by Slurm, at node0:29500", SLURM STEP MEET, no_flags);
    EXPECT("MPI: rank 3 of 8, local 1, by Slurm, at :", "PMIX_RANK=3" SLURM STEP, no_flags);
    EXPECT("TCP: rank 0 of 1, local -1, by Slurm, at :", "SLURM_PROCID=0 SLURM_NTASKS=1" STEP, no_flags);
    EXPECT("RANK is 3, but MASTER_ADDR is not set" NEED, "RANK=3 WORLD_SIZE=8" SLURM STEP, no_flags);
}

Test(launch, slurm_does_not_say_where_ranks_meet) {
#define STARTED "Slurm started rank 3 of 8, but "
#define SET     "set MASTER_ADDR to the host of rank 0"
#define FREE    ": set MASTER_PORT to a free port on the host of rank 0"
    EXPECT(STARTED "SLURM_STEP_NODELIST is not set, as in the batch script itself: start ranks with srun, or " SET,
           SLURM, no_flags);
    EXPECT(STARTED "SLURM_STEP_NODELIST is not set, as in the batch script itself: start ranks with srun, or " SET,
           SLURM " SLURM_JOB_NODELIST=n1 MASTER_PORT=1", no_flags);
    EXPECT(STARTED "SLURM_DISTRIBUTION is arbitrary, so rank 0 may be on any host: " SET,
           SLURM STEP " SLURM_DISTRIBUTION=arbitrary", no_flags);
    EXPECT("TCP: rank 3 of 8, local 1, by Slurm, at n001:22001", SLURM STEP " SLURM_DISTRIBUTION=block", no_flags);
    EXPECT("TCP: rank 3 of 8, local 1, by Slurm, at a:22001",
           "MASTER_ADDR=a" SLURM STEP " SLURM_DISTRIBUTION=arbitrary", no_flags);
    EXPECT(STARTED "the job is heterogeneous (SLURM_HET_SIZE), so rank 0 may be on any host: " SET,
           SLURM STEP " SLURM_HET_SIZE=2", no_flags);
    EXPECT(STARTED "SLURM_STEP_NODELIST is 'n[1-': expected a list such as n[1-3]: " SET,
           SLURM " SLURM_STEP_NODELIST=n[1- SLURM_JOB_ID=7 SLURM_STEP_ID=2", no_flags);
    EXPECT(STARTED "SLURM_JOB_ID is not set" FREE, SLURM " SLURM_STEP_NODELIST=n1 SLURM_STEP_ID=2", no_flags);
    EXPECT(STARTED "SLURM_STEP_ID is not set" FREE, "MASTER_ADDR=a" SLURM " SLURM_JOB_ID=7", no_flags);
    EXPECT(STARTED "SLURM_STEP_ID is '7_1', no number" FREE,
           SLURM " SLURM_STEP_NODELIST=n1 SLURM_JOB_ID=7 SLURM_STEP_ID=7_1", no_flags);
    EXPECT(STARTED "SLURM_JOB_ID is '99999999999999999999', no number" FREE,
           SLURM " SLURM_STEP_NODELIST=n1 SLURM_JOB_ID=99999999999999999999 SLURM_STEP_ID=0", no_flags);
}

Test(launch, no_rank) {
    EXPECT("RANK is 'one': expected a whole number of at least 0", "RANK=one WORLD_SIZE=4" MEET, no_flags);
    EXPECT("RANK is '-1': expected a whole number of at least 0", "RANK=-1 WORLD_SIZE=4" MEET, no_flags);
    EXPECT("RANK is '1.5': expected a whole number of at least 0", "RANK=1.5 WORLD_SIZE=4" MEET, no_flags);
    EXPECT("RANK is '99999999999': expected a whole number of at least 0", "RANK=99999999999 WORLD_SIZE=4", no_flags);
    EXPECT("RANK is '99999999999999999999': expected a whole number of at least 0", "RANK=99999999999999999999",
           no_flags);
    EXPECT("WORLD_SIZE is '0': expected a whole number of at least 1", "RANK=0 WORLD_SIZE=0" MEET, no_flags);
    EXPECT("LOCAL_RANK is 'x': expected a whole number of at least 0", "RANK=0 WORLD_SIZE=1 LOCAL_RANK=x", no_flags);
    EXPECT("OMPI_COMM_WORLD_RANK is 'x': expected a whole number of at least 0",
           "OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2", no_flags);
    EXPECT("SLURM_NTASKS is '4(x2)': expected a whole number of at least 1", "SLURM_PROCID=0 SLURM_NTASKS=4(x2)",
           no_flags);
    EXPECT("RANK is 4, but WORLD_SIZE is 4: ranks count from 0", "RANK=4 WORLD_SIZE=4" MEET, no_flags);
    EXPECT("SLURM_PROCID is 3, but WORLD_SIZE is 2: ranks count from 0", "WORLD_SIZE=2" SLURM MEET, no_flags);
    EXPECT("--rank is 9, but OMPI_COMM_WORLD_SIZE is 4: ranks count from 0", OMPI,
           ((struct launch){.rank = 9, .size = -1, .local = -1}));
    EXPECT("--rank is 2, but --world-size is 2: ranks count from 0", "",
           ((struct launch){.rank = 2, .size = 2, .local = -1}));
}

Test(launch, no_port) {
    static const char *const ports[] = {
        "0", "65536", "-1", "http", "80x", "tcp://10.0.0.1:80", "999999999999999999999"};
    char line[128], wanted[128];
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
        snprintf(line, sizeof line, "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=%s", ports[i]);
        snprintf(wanted, sizeof wanted, "MASTER_PORT is '%s': expected a port, 1 to 65535", ports[i]);
        EXPECT(wanted, line, no_flags);
    }
    EXPECT("--master-port is '0': expected a port, 1 to 65535", "RANK=0 WORLD_SIZE=2" MEET,
           ((struct launch){.rank = -1, .size = -1, .local = -1, .port = "0"}));
}
