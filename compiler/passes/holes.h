/* The blocks of an arena in address order, and its holes: the free ones, which the best fit is found among. */
#ifndef PIANOLA_HOLES_H
#define PIANOLA_HOLES_H
#include <stdbool.h>
#include <stdint.h>

struct ghost { /* bytes [off, off + size) were last used by a buffer */
    int64_t off, size;
    int32_t buf;
    struct ghost *next;
};

struct block { /* in address order; the free ones are in a treap by (size, off) too */
    int64_t off, size;
    struct block *prev, *next, *left, *right;
    struct ghost *ghost, *last;
    uint32_t heap;
    bool is_free;
};

/* Starts as {0}; tail and root NULL: the arena is empty. */
struct holes {
    struct block *tail, *root; /* the last block; the treap */
    struct block *spare;
    struct ghost *ghosts; /* spare ones */
    uint32_t random;
};
/* A block that is neither linked nor a hole. */
struct block *holes_block(struct holes *holes, int64_t off, int64_t size);
/* Links the block into the list after `at`; NULL: as the first. */
void holes_link(struct holes *holes, struct block *at, struct block *block);
/* Makes the block a hole that can be found; and the reverse, before its size changes. log n. */
void holes_insert(struct holes *holes, struct block *block);
void holes_remove(struct holes *holes, struct block *block);
/* The smallest hole of at least that size, the first of several; NULL: there is none. log n. */
struct block *holes_best_fit(const struct holes *holes, int64_t size);
struct ghost *holes_ghost(struct holes *holes, int64_t off, int64_t size, int32_t buf);
/* Merges the block with its right neighbour, which is spare afterwards. */
void holes_absorb(struct holes *holes, struct block *block, struct block *right);
#endif
