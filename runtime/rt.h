/* The runtime: layers, data, and the replay of a compiled program. Includes nothing from compiler/. */
#ifndef PIANOLA_RT_H
#define PIANOLA_RT_H
#include "compute.h"    /* what a job computes */
#include "data.h"       /* microbatches */
#include "rt_program.h" /* a compiled program */
#include "run.h"        /* its training */
#endif
