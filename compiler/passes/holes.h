/* The blocks of an arena in address order, and its holes: the free blocks, among which best fit chooses. */
#ifndef PIANOLA_HOLES_H
#define PIANOLA_HOLES_H
#include <stdbool.h>
#include <stdint.h>

struct ghost { /* bytes [off, off + size) were last used by a buffer */
    int64_t off, size;
    int32_t buf;
    struct ghost *next;
};

struct block { /* in address order; free blocks are also in a treap by (size, off) */
    int64_t off, size;
    struct block *prev, *next, *left, *right;
    struct ghost *ghost, *last;
    uint32_t heap;
    bool is_free;
};

/* Initialized as {0}; an empty arena has tail and root NULL. */
struct holes {
    struct block *tail, *root; /* the last block; the treap */
    struct block *spare;
    struct ghost *ghosts; /* unused ghosts */
    uint32_t random;
};
/* Returns a block that is neither linked nor a hole. */
struct block *holes_block(struct holes *holes, int64_t off, int64_t size);
/* Links the block into the list after `at`; NULL: as the first block. */
void holes_link(struct holes *holes, struct block *at, struct block *block);
/* holes_insert makes the block a hole that can be found; holes_remove undoes that, before its size changes. O(log
 * n). */
void holes_insert(struct holes *holes, struct block *block);
void holes_remove(struct holes *holes, struct block *block);
/* Returns the smallest hole of at least that size, the first of several, or NULL. O(log n). */
struct block *holes_best_fit(const struct holes *holes, int64_t size);
struct ghost *holes_ghost(struct holes *holes, int64_t off, int64_t size, int32_t buf);
/* Merges the block with its right neighbour, which becomes unused. */
void holes_absorb(struct holes *holes, struct block *block, struct block *right);
#endif
