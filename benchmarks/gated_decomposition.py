"""How far `uncertainty(belief)` is from a Monte Carlo of gated draws, in nats.

`uncertainty` models the gated head k as Dir(α0_k·p̂_k): the right mean p̂_k ∝ s·p_k, and the
evidence that the head had. The Monte Carlo gates each draw instead: k ~ π, p ~ Dir(α_k),
q = s·p/⟨s, p⟩, with weights proportional to ⟨s, p⟩, for then the weighted mean of q is exactly p̂
(Σ π_k E[⟨s, p⟩ q] = s·p_mix). The two agree in the mean, so in the total H(p̂), but not in the
spread about it: with p ∝ independent Gamma(α_c, 1) the draw is q ∝ Gamma(α_c, scale s_c), a scaled
Dirichlet, which is no Dirichlet unless all s_c are equal (the control row). No Dirichlet has its
spread in every direction, so aleatoric and epistemic parts differ by what the table shows.

    python benchmarks/gated_decomposition.py --mixtures 40 --draws 30000 --json gated.json
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from gemfi.belief import Belief
from gemfi.scores import uncertainty

Array = npt.NDArray[np.float64]
HEADS, CLASSES = 3, 10


@dataclass(frozen=True)
class Regime:
    """Where the random mixtures come from: the logits' scale, α0 and the gate's range."""

    name: str
    spread: float
    evidence: float
    gate: tuple[float, float] = (0.1, 0.9)


REGIMES = (
    Regime("control: equal gate", spread=1.0, evidence=20.0, gate=(0.5, 0.5)),
    Regime("diffuse, α0 ≈ 1", spread=0.5, evidence=1.0),
    Regime("diffuse, α0 ≈ 10", spread=0.5, evidence=10.0),
    Regime("diffuse, α0 ≈ 100", spread=0.5, evidence=100.0),
    Regime("diffuse, α0 ≈ 10⁴", spread=0.5, evidence=1e4),
    Regime("sharp, α0 ≈ 1", spread=3.0, evidence=1.0),
    Regime("sharp, α0 ≈ 10", spread=3.0, evidence=10.0),
    Regime("sharp, α0 ≈ 100", spread=3.0, evidence=100.0),
    Regime("sharp, α0 ≈ 10⁴", spread=3.0, evidence=1e4),
)


def log_softmax(x: Array) -> Array:
    """Over the last axis."""
    return np.asarray(x - np.logaddexp.reduce(x, axis=-1, keepdims=True))


def random_belief(regime: Regime, mixtures: int, rng: np.random.Generator) -> Belief:
    """Gated mixtures: α0 within a factor of two or so, the gate uniform in its range."""
    log_total = np.log(regime.evidence) + 0.5 * rng.normal(size=(mixtures, HEADS))
    return Belief(
        log_p=torch.from_numpy(
            log_softmax(regime.spread * rng.normal(size=(mixtures, HEADS, CLASSES)))
        ),
        log_weight=torch.from_numpy(log_softmax(rng.normal(size=(mixtures, HEADS)))),
        log_evidence=torch.from_numpy(log_total),
        log_gate=torch.from_numpy(np.log(rng.uniform(*regime.gate, size=(mixtures, CLASSES)))),
    )


def log_dirichlet(log_alpha: Array, rng: np.random.Generator) -> Array:
    """Log of a draw from Dir(α) for each row, by Gamma(a) = Gamma(a + 1)·U^(1/a): no underflow."""
    alpha = np.exp(log_alpha)
    log_gamma = np.log(rng.standard_gamma(alpha + 1)) - rng.exponential(size=alpha.shape) / alpha
    return log_softmax(log_gamma)


def weighted_mean(values: Array, weight: Array) -> tuple[float, float]:
    """Self-normalised mean and its standard error."""
    mean = float(np.average(values, weights=weight))
    error = float(np.sqrt(np.sum(np.square(weight * (values - mean)))) / weight.sum())
    return mean, error


def monte_carlo(belief: Belief, draws: int, rng: np.random.Generator) -> list[dict[str, float]]:
    """Aleatoric E[H(q)] and epistemic E[KL(q ‖ p̂)] of gated draws, for each mixture."""
    results = []
    log_alpha = (belief.log_p + belief.need("log_evidence").unsqueeze(-1)).numpy()
    weights, predictive = belief.log_weight.exp().numpy(), belief.log_probs().numpy()
    for row, log_gate in enumerate(belief.need("log_gate").numpy()):
        head = rng.choice(HEADS, size=draws, p=weights[row] / weights[row].sum())
        gated = log_dirichlet(log_alpha[row][head], rng) + log_gate
        log_mass = np.logaddexp.reduce(gated, axis=-1)
        log_q = gated - log_mass[:, None]
        q, mass = np.exp(log_q), np.exp(log_mass)
        aleatoric, error = weighted_mean(-(q * log_q).sum(-1), mass)
        epistemic, other = weighted_mean((q * (log_q - predictive[row])).sum(-1), mass)
        first, first_error = weighted_mean(q[:, 0], mass)
        results.append(
            {
                "aleatoric": aleatoric,
                "aleatoric_error": error,
                "epistemic": epistemic,
                "epistemic_error": other,
                "mean_z": abs(first - float(np.exp(predictive[row, 0]))) / first_error,
            }
        )
    return results


def compare(regime: Regime, mixtures: int, draws: int, seed: int) -> dict[str, float]:
    """Gaps between the closed decomposition and the Monte Carlo, over the mixtures."""
    rng = np.random.default_rng(seed)
    belief = random_belief(regime, mixtures, rng)
    split, drawn = uncertainty(belief), monte_carlo(belief, draws, rng)
    figures = {"total": float(split.total.mean())}
    for name in ("aleatoric", "epistemic"):
        gap = np.array([row[name] for row in drawn]) - getattr(split, name).numpy()
        figures |= {
            name: float(getattr(split, name).mean()),
            f"{name}_bias": float(gap.mean()),
            f"{name}_mean_gap": float(np.abs(gap).mean()),
            f"{name}_max_gap": float(np.abs(gap).max()),
            f"{name}_error": float(np.mean([row[f"{name}_error"] for row in drawn])),
        }
    # E[q] = p̂, so that these are like |N(0, 1)|
    figures["mean_z"] = float(np.sqrt(np.mean([row["mean_z"] ** 2 for row in drawn])))
    return figures


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mixtures", type=int, default=40, help="random mixtures a regime")
    parser.add_argument("--draws", type=int, default=30_000, help="draws a mixture")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"K={HEADS}, C={CLASSES}, {options.mixtures} mixtures a regime, {options.draws:,} gated "
        "draws each; nats. Gap = |closed form - Monte Carlo|; s.e. = Monte Carlo standard error of "
        "one mixture; z = rms of (weighted mean of q - p-hat)/s.e., about 1.\n"
    )
    print(
        "| regime | H(p̂) | aleatoric | gap mean | gap max | s.e. "
        "| epistemic | gap mean | gap max | s.e. | z |"
    )
    print("|---|" + "---:|" * 10)
    record = {}
    for regime in REGIMES:
        record[regime.name] = row = compare(regime, options.mixtures, options.draws, options.seed)
        parts = " | ".join(
            f"{row[name]:.4f} | {row[f'{name}_mean_gap']:.4f} | {row[f'{name}_max_gap']:.4f} "
            f"| {row[f'{name}_error']:.4f}"
            for name in ("aleatoric", "epistemic")
        )
        print(f"| {regime.name} | {row['total']:.3f} | {parts} | {row['mean_z']:.2f} |")
    if options.json:
        run = {"mixtures": options.mixtures, "draws": options.draws, "seed": options.seed}
        options.json.write_text(json.dumps(run | {"regimes": record}, indent=2) + "\n")


if __name__ == "__main__":
    main()
