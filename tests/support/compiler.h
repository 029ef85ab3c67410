/* The compiler's interface for tests: everything except the commands. */
#ifndef PIANOLA_COMPILER_H
#define PIANOLA_COMPILER_H
#include "draw/draw.h"
#include "formats/formats.h"
#include "passes/passes.h"
#include "passes_of.h"
#include "script/scripts.h"
#include "verify/verify.h"
#endif
