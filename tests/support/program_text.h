/* A program's text with every feature of the form except teams, and its parser. */
#ifndef PIANOLA_PROGRAM_TEXT_H
#define PIANOLA_PROGRAM_TEXT_H
#include "compiler.h"

/* Uses every feature, but is no sensible schedule. */
static const char base[] =
    "pianola 1\n"
    "program two%20words workers 2 stages 3 batches 12\n"
    "rank 0 lane compute\n"
    "ZERO 2 dw=wgrad(2)\n"
    "F 0 0 w=weight(0) x=act(1,0) x=act(2,0) stash=stash(0,0) y=act(0,0)\n"
    "I 0 0 w=weight(0) stash=stash(0,0) wstash=wstash(0,0) wait(SEND_F 0 0 to 1, RECV_G 1 from 1)\n"
    "W 0 0 wstash=wstash(0,0) dw+=wgrad(0) free(wstash(0,0) act(1,0))\n"
    "F 1 11 w=weight(1)#0\n"
    "U 0 dw=wgrad(0) opt=opt(0) w=weight(0)\n"
    "rank 0 lane send 1\n"
    "SEND_F 0 0 to 1 t=act(0,0) wait(F 0 0) free(act(0,0))\n"
    "SERVE 0#3 to 1 t=weight(0)\n"
    "rank 0 lane recv 1\n"
    "RECV_G 1 from 1 t=wgrad(1)#1\n"
    "ADD 1 from 1 src=wgrad(1)#1 dw=wgrad(1)\n"
    "FETCH 1#0 from 1 t=weight(1)#0\n"
    "rank 0 lane group 0,1\n"
    "ALL_REDUCE 2 by ring dw=wgrad(2)\n"
    "rank 0 issue\n"
    "0*3 1 2*2 0 3 1 2 0*2\n"
    "rank 0 memory 4096\n"
    "weight(0) 0 64\n"
    "wgrad(0) 64 64\n"
    "wgrad(1) - 64\n"
    "wgrad(2) 4032 64\n"
    "opt(0) 128 128\n"
    "work 256 9\n"
    "act(1,0) 512 8\n"
    "act(2,0) 520 8\n"
    "act(0,0) 528 8\n"
    "stash(0,0) 536 8 grows wstash(0,0)\n"
    "wstash(0,0) 536 16\n"
    "wgrad(1)#1 600 64\n"
    "weight(1)#0 700 64\n"
    "rank 1 lane compute\n"
    "rank 1 lane send 0\n"
    "SEND_G 1 to 0 t=wgrad(1)\n"
    "SERVE 1#0 to 0 t=weight(1)\n"
    "rank 1 lane recv 0\n"
    "RECV_F 0 0 from 0 t=act(0,0)\n"
    "FETCH 0#3 from 0 t=weight(0)#3\n"
    "rank 1 lane group 0,1\n"
    "ALL_REDUCE 2 by ring dw=wgrad(2)\n"
    "rank 1 issue\n"
    "2 1*2 2 3\n"
    "rank 1 memory 0\n"
    "wgrad(1) - 64\n"
    "wgrad(2) - 64\n"
    "weight(1) - 64\n"
    "act(0,0) - 8\n"
    "weight(0)#3 - 64\n";

/* Returns the program, or NULL with the error in diag_text. */
static inline struct program *parse(const char *src) {
    jmp_buf trap;
    diag_trap = &trap;
    struct program *volatile p = NULL;
    if (!setjmp(trap))
        p = read_text("t.txt", src);
    diag_trap = NULL;
    return p;
}

static inline const char *print(const struct program *p) {
    struct text t = {0};
    emit_text(&t, p);
    return t.s;
}
#endif
