/* Holes by size in a treap, and blocks by address in a list. */
#include "holes.h"
#include "base/base.h"

static bool lies_before(const struct block *a, const struct block *b) {
    return a->size != b->size ? a->size < b->size : a->off < b->off;
}

static struct block *merge_blocks(struct block *a, struct block *b) {
    if (!a || !b)
        return a ? a : b;
    if (a->heap < b->heap) {
        a->right = merge_blocks(a->right, b);
        return a;
    }
    b->left = merge_blocks(a, b->left);
    return b;
}

static void split(struct block *block, const struct block *key, struct block **lo, struct block **hi) {
    if (!block)
        *lo = *hi = NULL;
    else if (lies_before(block, key)) {
        split(block->right, key, &block->right, hi);
        *lo = block;
    } else {
        split(block->left, key, lo, &block->left);
        *hi = block;
    }
}

void holes_insert(struct holes *holes, struct block *block) {
    struct block *lo, *hi;
    holes->random = holes->random * 1664525u + 1013904223u; /* constants of Numerical Recipes; any spread will do */
    block->heap = holes->random;
    block->left = block->right = NULL;
    split(holes->root, block, &lo, &hi);
    holes->root = merge_blocks(merge_blocks(lo, block), hi);
}

void holes_remove(struct holes *holes, struct block *block) {
    struct block **at = &holes->root;
    while (*at != block)
        at = lies_before(*at, block) ? &(*at)->right : &(*at)->left;
    *at = merge_blocks(block->left, block->right);
}

struct block *holes_best_fit(const struct holes *holes, int64_t size) {
    struct block *best = NULL, *block = holes->root;
    while (block)
        if (block->size >= size) {
            best = block;
            block = block->left;
        } else
            block = block->right;
    return best;
}

struct block *holes_block(struct holes *holes, int64_t off, int64_t size) {
    struct block *block = holes->spare;
    if (block)
        holes->spare = block->next;
    else
        block = NEW(struct block, 1);
    *block = (struct block){.off = off, .size = size};
    return block;
}

void holes_link(struct holes *holes, struct block *at, struct block *block) {
    block->prev = at;
    block->next = at ? at->next : NULL;
    if (block->next)
        block->next->prev = block;
    else
        holes->tail = block;
    if (at)
        at->next = block;
}

struct ghost *holes_ghost(struct holes *holes, int64_t off, int64_t size, int32_t buf) {
    struct ghost *ghost = holes->ghosts;
    if (ghost)
        holes->ghosts = ghost->next;
    else
        ghost = NEW(struct ghost, 1);
    *ghost = (struct ghost){off, size, buf, NULL};
    return ghost;
}

void holes_absorb(struct holes *holes, struct block *block, struct block *right) {
    block->size += right->size;
    if (block->last)
        block->last->next = right->ghost;
    else
        block->ghost = right->ghost;
    if (right->last)
        block->last = right->last;
    block->next = right->next;
    if (block->next)
        block->next->prev = block;
    else
        holes->tail = block;
    right->next = holes->spare;
    holes->spare = right;
}
