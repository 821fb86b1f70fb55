"""Polar Express: an approximate polar factor by five quintics, each the best one for what the last left over (Amsel,
Persson, Musco and Gower 2505.16932).

    X = M / (1.01 |M|_F + 1e-6),  then for each (a, b, c):  A = X X^T,  X <- a X + (b A + c A A) X

The triples are the paper's construction for singular values from 0.001 to 1: each is the odd quintic closest to 1 on
what the last one left, whose interval is taken from 0.02 of its upper end at least (cushion), and whose values are
divided by 1.02 (safety) in all but the last. They bring every singular value above 0.00101 |M|_F into [0.858, 1.142].
nanochat runs these five.
"""

from paribus.optim.muon import quintic
from paribus.shapes import Matrices

COEFFICIENTS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
NORM_FACTOR = 1.01
"""times the Frobenius norm: rounding leaves no singular value above 1"""
NORM_OFFSET = 1e-6
"""added to it; a zero matrix stays zero"""


def polar_express(matrices: Matrices) -> Matrices:
    """Approximate polar factor of each matrix: singular vectors kept, singular values near 1."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (NORM_FACTOR * x.norm(dim=(-2, -1), keepdim=True) + NORM_OFFSET)
    for coefficients in COEFFICIENTS:
        x = quintic(x, *coefficients)
    return x.mT if tall else x
