"""Belief: what a classifier thinks of a batch, the one noun that everything meets at.

Softmax is one component without evidence, a deep ensemble is K equal members, EDL is one Dirichlet,
GEM is a gated mixture of K. Everything is in log space (`docs/mathematics.md`, C6), so nothing is
clamped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gemfi import dirichlet
from gemfi.errors import InputError

_SHAPES = {  # the letters are bound by `log_p`; `*` stands for anything that follows
    "log_p": "BKC",
    "log_weight": "BK",
    "log_evidence": "BK",
    "log_gate": "BC",  # or (B, 1)
    "log_rho": "B",
    "log_density": "B",
    "log_familiarity": "B",
    "energy": "B",
    "logits": "BKC",
    "log_temperature": "",
    "log_prior": "",
    "features": "B*",
}
_SCALARS = ("log_temperature", "log_prior")


@dataclass(frozen=True, eq=False)
class Belief:
    """A weighted set of K components over C classes for each of B inputs.

    Attributes:
        log_p: (B, K, C) log predictive mean of each component, before the gate.
        log_weight: (B, K) log weights of the components; they sum to one.
        log_evidence: (B, K) log α0 of each component, ρ not included; None where a component
            is a point and not a distribution (softmax, ensembles, dropout).
        log_gate: log of the gate s. (B, C), a value a class, acts on probabilities; (B, 1) scales
            the evidence, is a part of `log_evidence`, and changes no probability.
        log_rho: (B,) log of the density scaler. Evidence and vacuity include it, p never does.
        log_density: (B,) log p(z).
        log_familiarity: (B,) log of how well evidence, energy and density together fit what they
            are on ID data; 0 is as familiar as can be.
        energy: (B,) the learned energy E(z).
        logits: (B, K, C).
        log_temperature: scalar, post-hoc temperature; acts in `log_probs` only.
        log_prior: scalar, log of the prior mass of a class that is part of α (0 for EDL, log λ
            for R-EDL); None for evidence without a prior (α = exp u).
        features: (B, D) the features z, on request.
        extra: named (B, ...) tensors that have no other place here.
    """

    log_p: Tensor
    log_weight: Tensor
    log_evidence: Tensor | None = None
    log_gate: Tensor | None = None
    log_rho: Tensor | None = None
    log_density: Tensor | None = None
    log_familiarity: Tensor | None = None
    energy: Tensor | None = None
    logits: Tensor | None = None
    log_temperature: Tensor | None = None
    log_prior: Tensor | None = None
    features: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.log_p.ndim != 3:
            raise InputError(
                f"Belief.log_p must be (batch, components, classes), got {tuple(self.log_p.shape)}"
            )
        sizes = dict(zip("BKC", self.log_p.shape, strict=True))
        for name, letters in _SHAPES.items():
            value = getattr(self, name)
            if value is not None:
                is_scale = name == "log_gate" and value.shape[1:] == (1,)
                _check_shape(name, value, "B*" if is_scale else letters, sizes)
        for name, value in self.extra.items():
            _check_shape(f"extra[{name!r}]", value, "B*", sizes)

    # -- what it says ---------------------------------------------------------------------------

    def log_probs(self) -> Tensor:
        """Log predictive distribution p̂ (B, C): mix, gate, renormalise, then temperature."""
        log_p = dirichlet.log_mixture(self.log_p, self.log_weight)
        if self.log_gate is not None and self.log_gate.shape[1] > 1:
            log_p = torch.log_softmax(log_p + self.log_gate, dim=-1)
        if self.log_temperature is not None:
            log_p = torch.log_softmax(log_p * torch.exp(-self.log_temperature), dim=-1)
        return log_p

    def probs(self) -> Tensor:
        """Predictive distribution p̂ (B, C)."""
        return self.log_probs().exp()

    def labels(self) -> Tensor:
        """Most probable class (B,)."""
        return self.log_probs().argmax(dim=-1)

    def log_total_evidence(self) -> Tensor:
        """Log of Σ_k π_k α0_k (B,), without ρ; needs `log_evidence`."""
        return torch.logsumexp(self.log_weight + self.need("log_evidence"), dim=1)

    def gated(self) -> Belief:
        """The same belief with its gate moved into p̂_k ∝ s·p_k and w_k ∝ π_k⟨s, p_k⟩ (C5)."""
        if self.log_gate is None or self.log_gate.shape[1] == 1:
            return self
        log_p, log_weight = dirichlet.gate_components(self.log_p, self.log_weight, self.log_gate)
        return replace(self, log_p=log_p, log_weight=log_weight, log_gate=None)

    def need(self, name: str) -> Tensor:
        """The field `name`, or an error that says that this belief does not have it."""
        value: Tensor | None = getattr(self, name)
        if value is None:
            raise InputError(
                f"this belief has no `{name}`: the method that made it does not compute it, or not "
                "before its statistics are fitted: after a loop of your own, call "
                "model.finish(train, validation)"
            )
        return value

    # -- moving it about ------------------------------------------------------------------------

    def to(self, *args: Any, **kwargs: Any) -> Belief:
        """Every tensor through `Tensor.to`, for a device or a dtype."""
        return self._map(lambda tensor: tensor.to(*args, **kwargs))

    def detach(self) -> Belief:
        """Every tensor detached from the graph."""
        return self._map(Tensor.detach)

    def __len__(self) -> int:
        return self.log_p.shape[0]

    def __getitem__(self, index: int | slice | Tensor | Sequence[int]) -> Belief:
        """The belief on some of the inputs; an integer gives a batch of one."""
        if not isinstance(index, slice):
            rows = torch.as_tensor(index, device=self.log_p.device)
            rows = rows if rows.numel() else rows.long()  # torch reads [] as floats
            index = rows if rows.ndim else rows.unsqueeze(0)
        return self._map(lambda tensor: tensor[index], scalars=False)

    @staticmethod
    def cat(beliefs: Sequence[Belief]) -> Belief:
        """One belief on all the inputs of several, in order."""
        if not beliefs:
            raise InputError("Belief.cat needs at least one belief, got none")
        first = beliefs[0]
        for number, other in enumerate(beliefs[1:], start=1):
            _check_alike(first, other, number)
        rows = [name for name in _present(first) if name not in _SCALARS]
        values: dict[str, Any] = {
            name: torch.cat([getattr(belief, name) for belief in beliefs]) for name in rows
        }
        extra = {
            name: torch.cat([belief.extra[name] for belief in beliefs]) for name in first.extra
        }
        return replace(first, **values, extra=extra)

    def _map(self, function: Any, *, scalars: bool = True) -> Belief:
        names = [name for name in _present(self) if scalars or name not in _SCALARS]
        values = {name: function(getattr(self, name)) for name in names}
        return replace(
            self, **values, extra={name: function(value) for name, value in self.extra.items()}
        )


def _present(belief: Belief) -> list[str]:
    return [name for name in _SHAPES if getattr(belief, name) is not None]


def _check_shape(name: str, value: Tensor, letters: str, sizes: Mapping[str, int]) -> None:
    expected = [sizes[letter] for letter in letters.rstrip("*")]
    shape = value.shape[: len(expected)] if letters.endswith("*") else value.shape
    if list(shape) != expected:
        wanted = ", ".join([*map(str, expected), *(["..."] if letters.endswith("*") else [])])
        raise InputError(f"Belief.{name} must have shape ({wanted}), got {tuple(value.shape)}")


def _row_shapes(belief: Belief) -> dict[str, tuple[int, ...]]:
    """The shape of what each field holds of one input."""
    tensors = {name: getattr(belief, name) for name in _present(belief)}
    tensors |= {f"extra[{name!r}]": value for name, value in sorted(belief.extra.items())}
    return {name: tuple(tensor.shape[1:]) for name, tensor in tensors.items()}


def _check_alike(first: Belief, other: Belief, number: int) -> None:
    here, there = _row_shapes(first), _row_shapes(other)
    if here.keys() != there.keys():
        raise InputError(
            f"cannot join beliefs with different fields: the first has {[*here]}, number {number} "
            f"has {[*there]}"
        )
    for name, shape in here.items():
        if shape != there[name]:
            raise InputError(
                f"cannot join beliefs with different {name}: an input has shape {shape} in the "
                f"first, {there[name]} in number {number}"
            )
    for name in _SCALARS:
        value = getattr(first, name)
        if value is not None and not torch.equal(value, getattr(other, name)):
            raise InputError(f"cannot join beliefs with different {name}")


# -- a pytree, so that torch.export, torch.compile and tree_map see through it ------------------


def _flatten(belief: Belief) -> tuple[list[Any], list[str]]:
    names = _present(belief)
    return [*(getattr(belief, name) for name in names), dict(belief.extra)], names


def _flatten_with_keys(belief: Belief) -> tuple[list[tuple[Any, Any]], list[str]]:
    values, names = _flatten(belief)
    keys = map(pytree.GetAttrKey, [*names, "extra"])
    return list(zip(keys, values, strict=True)), names


def _unflatten(values: Any, names: list[str]) -> Belief:
    belief = object.__new__(Belief)  # leaves may be anything here: no shape check
    given = dict(zip([*names, "extra"], values, strict=True))
    for field_ in fields(Belief):
        object.__setattr__(belief, field_.name, given.get(field_.name))
    return belief


pytree.register_pytree_node(
    Belief,
    _flatten,
    _unflatten,
    serialized_type_name="gemfi.Belief",
    flatten_with_keys_fn=_flatten_with_keys,
)
