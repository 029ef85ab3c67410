/* The layer tests of tests/gpu/kernels/ in one program, so that build/gpu-check contains the kernels only once:
 *
 *     layers kernels|attention|linear|moe|fused [gpt2 ROWS]
 *
 * gpu.mk renames each main to test_NAME. */
#include <stdio.h>
#include <string.h>

int test_kernels(int argc, char **argv), test_attention(int argc, char **argv), test_linear(int argc, char **argv),
    test_moe(int argc, char **argv), test_fused(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} tests[] = {{"kernels", test_kernels},
             {"attention", test_attention},
             {"linear", test_linear},
             {"moe", test_moe},
             {"fused", test_fused}};

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof tests / sizeof *tests; i++)
        if (strcmp(argv[1], tests[i].name) == 0)
            return tests[i].run(argc - 1, argv + 1);
    fprintf(stderr, "usage: layers kernels|attention|linear|moe|fused [gpt2 ROWS]\n");
    return 2;
}
