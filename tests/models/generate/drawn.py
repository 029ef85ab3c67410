"""Checks with Pearson's chi-squared statistic that a file's tokens, one a line, follow nucleus sampling (Holtzman 2020,
section 3.1), computed by numpy: drawn.py MODEL.gguf TEXT TEMPERATURE TOP_P FILE."""

import os
import sys
from collections import Counter

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../import"))
from reference import Gguf, logits

y = logits(Gguf(sys.argv[1]), np.frombuffer(sys.argv[2].encode(), np.uint8))[-1] / float(sys.argv[3])
p = np.exp(y - y.max())
p /= p.sum()
order = np.argsort(-p)
kept = order[: int(np.searchsorted(np.cumsum(p[order]), float(sys.argv[4]))) + 1]
drawn = Counter(int(line) for line in open(sys.argv[5]))
n = sum(drawn.values())
if set(drawn) - set(kept.tolist()):
    sys.exit(f"drawn, but not among those kept: {set(drawn) - set(kept.tolist())}")
expected = n * p[kept] / p[kept].sum()
large = expected >= 5
rest = expected[~large].sum()
seen = np.array([drawn[int(t)] for t in kept])
chi = ((seen[large] - expected[large]) ** 2 / expected[large]).sum()
if rest > 0:
    chi += (seen[~large].sum() - rest) ** 2 / rest
freedom = large.sum() + (rest > 0) - 1
# More than five standard deviations above the mean is not chance. The test needs enough freedom to tell.
assert freedom >= 2, freedom
print("likely" if chi < freedom + 5 * (2 * freedom) ** 0.5 else f"{chi} of {freedom} degrees of freedom")
