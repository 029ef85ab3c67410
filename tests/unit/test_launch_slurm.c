/* Node lists, as Slurm prints them, malformed, and random; and the ports of jobs and steps. */
#include "comm/launch_slurm.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the list from a block of exactly its size, so that a sanitizer sees an overrun. Returns NULL if refused. */
static const char *first(const char *list) {
    static char host[SLURM_HOST];
    size_t n = strlen(list) + 1;
    char *copy = memcpy(malloc(n), list, n);
    bool ok = slurm_first_host(copy, host);
    free(copy);
    return ok ? host : NULL;
}

/* `scontrol show hostnames` gives the same first host for lists that it accepts; it accepts nothing after brackets. */
Test(launch_slurm, first_host_of_a_list) {
    static const char *const row[][2] = {
        {"n1", "n1"},
        {"n1,n2", "n1"},
        {"n[001-003,7]", "n001"},
        {"n[7,001-003]", "n7"},
        {"n[1]", "n1"},
        {"n[0-9]", "n0"},
        {"n[098-102],login", "n098"},
        {"login,n[1-2]", "login"},
        {"rack[1-2]node[01-4]", "rack1node01"},
        {"rack[10,2]node[3]-[5-6]", "rack10node3-5"},
        {"gpu-[1-2].example.com", "gpu-1.example.com"},
        {"n[1-2]-ib,n[3-4]-ib", "n1-ib"},
        {"[1-2]", "1"},
        {"a_b.c-d", "a_b.c-d"},
        {"n[00000000000000000000000000000000001-2]", "n00000000000000000000000000000000001"},
        {"n[99999999999999999999999-999999999999999999999999]", "n99999999999999999999999"},
        {"n1,]", "n1"}, /* only the first host is read */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *host = first(row[i][0]);
        cr_expect(host && !strcmp(host, row[i][1]), "%s: %s, not %s", row[i][0], host ? host : "refused", row[i][1]);
    }
}

Test(launch_slurm, no_list) {
    static const char *const list[] = {
        "",     ",",     ",n1",   "[",     "]",     "n[",    "n]",      "n[]",    "n[1",          "n[1-",      "n[1-]",
        "n[-]", "n[-2",  "n[-2]", "n[,1]", "n[1,",  "n[1,]", "n[a]",    "n[1-a]", "n[1-2-3",      "n[1-2-3]",  "n[[1]]",
        "n 1",  "n1 ",   " n1",   "n1\n",  "n1;ls", "$(ls)", "n1:6818", "n/1",    "n*",           "n\xc3\xb6", "\xff",
        "%s%n", "n[1]]", "n[1][", "n1[x]", "n[1 ]", "n[+1]", "n[0x1]",  "(null)", "bgl[000x133]",
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        cr_expect_null(first(list[i]), "'%s': %s", list[i], first(list[i]));
}

Test(launch_slurm, a_name_that_does_not_fit) {
    char list[2 * SLURM_HOST], host[SLURM_HOST];
    for (int length = SLURM_HOST - 3; length < SLURM_HOST + 3; length++) {
        snprintf(list, sizeof list, "%0*d", length, 0);
        cr_expect_eq(first(list) != NULL, length < SLURM_HOST, "%d bytes", length);
        snprintf(list, sizeof list, "n[%0*d]", length - 1, 1); /* the same length */
        cr_expect_eq(first(list) != NULL, length < SLURM_HOST, "%d bytes, in brackets", length);
    }
    char *longest = calloc(1, 1 << 20); /* far too long */
    memset(longest, '[', (1 << 20) - 1);
    cr_expect(!slurm_first_host(longest, host));
    memset(longest, 'n', (1 << 20) - 1);
    cr_expect(!slurm_first_host(longest, host));
    free(longest);
}

/* ---- at random ---- */

static unsigned below(unsigned n) {
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* Appends a host's next piece, a name or brackets, to list, and its first value to host. */
static void put_piece(char *list, char *host) {
    char piece[16];
    list += strlen(list);
    host += strlen(host);
    if (below(2)) {
        sprintf(piece, "%c%u", "an-_."[below(5)], below(100));
        strcpy(list, piece);
    } else {
        sprintf(piece, "%0*u", 1 + (int)below(4), below(1000));
        list += sprintf(list, "[%s%s", piece, below(2) ? "-1000" : "");
        for (unsigned n = below(4); n > 0; n--)
            list += below(2) ? sprintf(list, ",%u", below(1000)) : sprintf(list, ",%u-%u", below(9), below(1000));
        strcpy(list, "]");
    }
    strcpy(host, piece);
}

Test(launch_slurm, lists_at_random) {
    for (int turn = 0; turn < 20000; turn++) {
        char list[1024] = "", wanted[128] = "", other[128];
        for (unsigned n = 1 + below(4); n > 0; n--)
            put_piece(list, wanted);
        for (unsigned n = below(3); n > 0; n--) {
            strcat(list, ",");
            put_piece(list, strcpy(other, ""));
        }
        const char *host = first(list);
        cr_assert(host && !strcmp(host, wanted), "%s: %s, not %s", list, host ? host : "refused", wanted);
    }
}

/* Changes up to two bytes of a list and cuts it. */
static void damage(char list[64]) {
    strcpy(list, "n[001-003,7]-ib,gpu[1-2]");
    unsigned length = (unsigned)strlen(list);
    for (unsigned n = below(3); n > 0; n--)
        list[below(length)] = "[]-,019nZ. \n%\xff"[below(14)];
    list[below(length + 1)] = '\0';
}

/* Strings special bytes together. */
static void make_up(char list[64]) {
    unsigned length = below(12);
    for (unsigned i = 0; i < length; i++)
        list[i] = "[]-,019nZ. \n%\xff"[below(14)];
    list[length] = '\0';
}

/* Every accepted name consists of the list's characters, with a number for a bracket. */
Test(launch_slurm, hostile_lists) {
    int taken = 0;
    for (int turn = 0; turn < 200000; turn++) {
        char list[64];
        (turn % 2 ? damage : make_up)(list);
        const char *host = first(list), *at = list;
        if (!host)
            continue;
        taken++;
        cr_assert(*host && strspn(host, "0123456789nibgpuZ-._") == strlen(host), "%s: %s", list, host);
        for (; *host; host++, at++) {
            for (; *at && *at != *host; at++)
                ;
            cr_assert(*at, "%s: %s is not of it", list, host);
        }
    }
    cr_expect(taken > 1000 && taken < 199000, "%d taken", taken);
}

/* Runs that may share a host at the same time have different ports: steps of a job, and consecutive jobs. */
static int port(unsigned long long job, unsigned step) {
    char text[32], why[200] = "";
    sprintf(text, "%llu", job);
    setenv("SLURM_JOB_ID", text, 1);
    sprintf(text, "%u", step);
    setenv("SLURM_STEP_ID", text, 1);
    const char *s = slurm_port(why, sizeof why);
    return s ? atoi(s) : -1;
}

Test(launch_slurm, ports_differ) {
    static int user[65536]; /* owner of a port: job and step, from 1 on */
    for (unsigned job = 1000000; job < 1000900; job++)
        for (unsigned step = 0; step < 12; step++) {
            int at = port(job, step), id = (int)((job - 1000000) * 12 + step + 1);
            cr_assert(at >= 20000 && at < 32000, "job %u, step %u: port %d", job, step, at);
            cr_assert_eq(user[at], 0, "jobs %d and %u, port %d", 1000000 + (user[at] - 1) / 12, job, at);
            user[at] = id;
        }
    static bool seen[65536];
    for (unsigned step = 0; step < 12000; step++) {
        int at = port(7, step);
        cr_assert(at > 0 && !seen[at], "step %u: port %d", step, at);
        seen[at] = true;
    }
    cr_expect_eq(port(18446744073709551615u, 4294967290u),
                 20000 + (18446744073709551615u % 12000 + 4294967290u % 12000 * 997) % 12000);
}
