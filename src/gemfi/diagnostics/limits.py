"""The limits of a healthy model, each with its reason. Shares lie in [0, 1]."""

from __future__ import annotations

from typing import Final

NO_EVIDENCE: Final = 0.01
"""Evidence below this share of the prior's mass (C without a prior) is none: vacuity above 0.99."""
ZERO_EVIDENCE: Final = 0.05
"""Inputs without evidence: more than the twentieth that may well be odd ones are a dead region."""

CONFIDENT: Final = 0.9
"""The confidence from which an error counts as confident: who reads 0.9 relies on it."""
CONFIDENT_ERRORS: Final = 0.25
"""Errors that are confident: from a quarter on, no threshold on confidence would catch them."""
FEWEST_ERRORS: Final = 10
"""Below this many errors, one input moves their share by more than ten points."""

USED: Final = 0.25
"""Heads beyond the first that must be in use, as a share: with three heads, 1.5 of them."""
DISAGREEMENT: Final = 0.002
"""Entropy that is disagreement of the heads: below a five-hundredth they say one and the same."""
OSCILLATION: Final = 0.05
"""Weight that moves between heads and back in an epoch: a twentieth is no settling."""
FEWEST_EPOCHS: Final = 6
"""Their later half are three records: two moves, the fewest that can be there and back."""

GATE_EDGE: Final = 0.01
"""A learned gate within this share of its range from a bound has next to no slope left."""
GATE_SATURATED: Final = 0.5
"""Values of a learned gate at its bounds: from half on, it is a switch and not a gate."""
CLOSED: Final = 0.01
"""An energy's gate below this leaves a hundredth of the evidence."""
GATE_CLOSED: Final = 0.05
"""ID inputs behind a closed gate: on the data that set it, a twentieth is below a half, no more."""
ENERGY_EDGE: Final = 1e-4
"""σ(E) or tanh this close to a bound tells two energies apart no longer."""
ENERGY_SATURATED: Final = 0.5
"""Saturated energies: from half on, the router and the gate see a constant."""

FOLLOWS: Final = 0.2
"""Rank correlation from which one number follows another: 4 % of the variance of the ranks."""
ENERGY_FOLLOWS: Final = 0.0
"""The same of the energy: among familiar inputs distances hardly differ, and an energy that tells
unfamiliar ones apart with an AUROC of 99 has 0.1 to 0.3 there. Below zero it has learnt nothing."""
FEWEST_INPUTS: Final = 20
"""Inputs of a rank correlation: with fewer, 0.45 and more comes about by chance."""
NEIGHBOURS: Final = 10
"""The neighbour whose distance measures support."""

OVER_BOUND: Final = 1.05
"""Norm of a normalised layer over its bound: power iteration leaves a few percent."""
LARGE_NORM: Final = 10.0
"""Norm of a layer of the head: features a tenth apart may then differ by a whole logit."""
TEMPERATURES: Final = (0.01, 10.0)
"""Outside these, logits are all at their clip, or all alike, whatever the features say."""
