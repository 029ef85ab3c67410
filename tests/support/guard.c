/* Linked into every test: closes a hole in Criterion, which counts a test that calls exit(0) as passed.
 *
 * The linker's --wrap sends every exit of our objects here. Only Criterion may report success: if a test process exits
 * with 0, it is aborted, which Criterion reports as a crash. Other codes pass, because `.exit_code = 2` is how a test
 * expects die(). Processes that a test forks pass too; they have their own pid. Criterion's own exit is inside its
 * shared library and does not come here.
 *
 * tests/run closes the other hole: leaks that LeakSanitizer prints while the test passes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Noreturn void __real_exit(int code);
_Noreturn void __real__exit(int code);
_Noreturn void __real__Exit(int code);
_Noreturn void __real_quick_exit(int code);
_Noreturn void __wrap_exit(int code);
_Noreturn void __wrap__exit(int code);
_Noreturn void __wrap__Exit(int code);
_Noreturn void __wrap_quick_exit(int code);

static pid_t test_process;

/* Criterion starts each test by running the program again, so this is the test's own process. */
__attribute__((constructor)) static void remember_process(void) { test_process = getpid(); }

static void forbid_success(const char *by, int code) {
    if (code != 0 || getpid() != test_process)
        return;
    fprintf(stderr, "a test called %s(0): that would count as passed, whatever came before\n", by);
    abort();
}

void __wrap_exit(int code) {
    forbid_success("exit", code);
    __real_exit(code);
}

void __wrap__exit(int code) {
    forbid_success("_exit", code);
    __real__exit(code);
}

void __wrap__Exit(int code) {
    forbid_success("_Exit", code);
    __real__Exit(code);
}

void __wrap_quick_exit(int code) {
    forbid_success("quick_exit", code);
    __real_quick_exit(code);
}
