/* Muon (Jordan 2024, "Muon: An optimizer for hidden layers in neural networks"): a matrix moves along its momentum,
 * made nearly orthogonal by Newton-Schulz iterations, X <- A X + (B S + C S S) X with S = X X^T, which take all
 * singular values in (0, 1] near 1. */
#ifndef PIANOLA_MUON_H
#define PIANOLA_MUON_H

enum { MUON_STEPS = 5 };
#define MUON_A   3.4445f
#define MUON_B   -4.7750f
#define MUON_C   2.0315f
#define MUON_EPS 1e-7

#endif
