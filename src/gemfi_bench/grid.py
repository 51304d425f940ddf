"""The grid: which runs a protocol needs, and for which row of which table each one stands.

A cell names a run by everything that decides its numbers, so that a run that several tables need
is done once. The learning rates are chosen by runs of their own, the group `rates`: until those are
there, the cells that wait for them are planned with the first rate and are not `ready`.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from gemfi._config import to_plain
from gemfi.data import Task
from gemfi.methods import gem_paper, method
from gemfi.outliers import VOS
from gemfi.runs import RunSpec, make_spec
from gemfi_bench.protocol import Contestant, Protocol, Sweeps

FORMAT: Final = 1
"""Of what a run keeps; a change of it makes every run be evaluated again."""

MAIN: Final = "methods"
RATES: Final = "rates"
ABLATION: Final = "ablation"
ABLATION_OURS: Final = "ablation-ours"
FISHER: Final = "lambda-fi"
KL: Final = "lambda-kl"
COMPONENTS: Final = "components"
OUTLIERS: Final = "outliers"
FULL: Final = "ablation-full"
"""The row of an ablation with every switch on; of `ABLATION` GEM-FI with the paper's settings."""

RELATED: Final = "related"
_GEM: Final = "gem-fi"
_BRIEF: Final = {"brief": True}

Nll = Callable[["Cell"], float | None]
"""The NLL of a cell on ID validation data, once it is there."""


@dataclass(frozen=True)
class Cell:
    """A run of the grid."""

    group: str  # the tables that it is for
    row: str  # of them
    seed: int
    spec: RunSpec  # what is trained; of an assembled ensemble, the ensemble
    evaluation: Mapping[str, Any]  # `shift`: corrupted data or None; or `brief`: validation alone
    detectors: tuple[str, ...] = ()  # to be fitted on it
    members: tuple[RunSpec, ...] = ()  # of an assembled ensemble, the runs that it is made of
    member_keys: tuple[str, ...] = ()  # of those runs
    ready: bool = True  # whether its learning rate has been chosen

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits of everything that decides the numbers of the run."""
        content = {
            "format": FORMAT,
            "spec": self.spec.to_plain(),
            "evaluation": to_plain(self.evaluation),
            "detectors": list(self.detectors),
            "members": [spec.to_plain() for spec in self.members],
        }
        text = json.dumps(content, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.group}/{self.row} seed {self.seed}"


def plan(protocol: Protocol, task: Task, nll: Nll = lambda _cell: None) -> list[Cell]:
    """Every cell of a protocol, those that others wait for first.

    Args:
        protocol: what to compare.
        task: its data; the training samples decide the backbone, and nothing else is read.
        nll: of a cell on ID validation data; None where it was not run yet, infinity where it was
            not finite.
    """
    planner = _Planner(protocol, task, nll)
    main = planner.methods()
    known = {cell.spec.name: cell for cell in main if not cell.members}
    cells = [*planner.rates(), *main]
    for cell in planner.sweeps():
        same = known.get(cell.spec.name)  # its run is one of the main tables: evaluated as there
        cells.append(
            replace(cell, evaluation=same.evaluation, detectors=same.detectors) if same else cell
        )
    return cells


class _Planner:
    """Makes cells; a class only so that protocol, task and records need not be passed about."""

    def __init__(self, protocol: Protocol, task: Task, nll: Nll) -> None:
        self.protocol, self.task, self.nll = protocol, task, nll
        self.chosen: dict[str, float | None] = {}

    # -- learning rates -------------------------------------------------------------------------

    @cached_property
    def rated(self) -> list[str]:
        """Methods whose learning rate is chosen: those of the contestants and of the sweeps."""
        if not self.protocol.rates.values:
            return []
        names = [one.method for one in self.protocol.contestants if one.assembled is None]
        swept = [name for _, _, name, _ in _sweep_rows(self.protocol.sweeps)]
        return list(dict.fromkeys([*names, *swept]))

    def rates(self) -> list[Cell]:
        """The runs that choose."""
        return [cell for name in self.rated for cells in self._trials(name) for cell in cells]

    def _trials(self, name: str) -> list[list[Cell]]:
        """For each learning rate the runs of a method that try it, one a seed."""
        rates = self.protocol.rates
        return [
            [
                Cell(RATES, f"{name} at {rate:g}", seed, self._spec(name, seed, rate), _BRIEF)
                for seed in rates.seeds
            ]
            for rate in rates.values
        ]

    def rate(self, name: str) -> float | None:
        """The rate of the least mean NLL; None until all of its runs are there."""
        if name not in self.chosen:
            values = [[self.nll(cell) for cell in cells] for cells in self._trials(name)]
            known = [[value for value in nlls if value is not None] for nlls in values]
            means = [statistics.fmean(nlls) for nlls in known if nlls]
            best = self.protocol.rates.values[means.index(min(means))] if means else None
            self.chosen[name] = best if known == values else None
        return self.chosen[name]

    # -- the main tables ------------------------------------------------------------------------

    def methods(self) -> list[Cell]:
        """A cell for each contestant and seed; assembled ones last."""
        cells = [
            self._cell(
                MAIN,
                contestant.name,
                contestant.method,
                seed,
                settings=contestant.settings,
                outliers=contestant.outliers,
                detectors=contestant.detectors,
            )
            for contestant in self.protocol.contestants
            if contestant.assembled is None
            for seed in (self.protocol.seeds if contestant.seeds is None else contestant.seeds)
        ]
        assembled = [
            self._assembled(contestant, cells)
            for contestant in self.protocol.contestants
            if contestant.assembled is not None
        ]
        return cells + assembled

    def _assembled(self, contestant: Contestant, cells: list[Cell]) -> Cell:
        """One ensemble of all the runs of a row."""
        members = [cell for cell in cells if cell.row == contestant.assembled]
        config = replace(method("ensemble").default_config(), members=len(members))
        return replace(
            members[0],
            row=contestant.name,
            spec=replace(members[0].spec, method="ensemble", head=config),
            members=tuple(cell.spec for cell in members),
            member_keys=tuple(cell.key for cell in members),
            detectors=(),
            ready=all(cell.ready for cell in members),
        )

    # -- around GEM-FI --------------------------------------------------------------------------

    def sweeps(self) -> Iterator[Cell]:
        """Ablations, sensitivities and outliers."""
        sweeps = self.protocol.sweeps
        seeds = self.protocol.seeds if sweeps.seeds is None else sweeps.seeds
        for group, row, name, changes in _sweep_rows(sweeps):
            for seed in seeds:
                yield self._cell(group, row, name, seed, **changes)

    # -- one cell -------------------------------------------------------------------------------

    def _cell(
        self,
        group: str,
        row: str,
        name: str,
        seed: int,
        *,
        detectors: tuple[str, ...] = (),
        **changes: Any,
    ) -> Cell:
        rate, ready = None, True
        if name in self.rated:
            rate = self.rate(name)
            ready = rate is not None
            rate = self.protocol.rates.values[0] if rate is None else rate
        spec = self._spec(name, seed, rate, **changes)
        shift = to_plain(self.protocol.shift) if group == MAIN else None
        return Cell(group, row, seed, spec, {"shift": shift}, detectors, ready=ready)

    def _spec(self, name: str, seed: int, rate: float | None, **changes: Any) -> RunSpec:
        """The spec of a method under the protocol."""
        train = self.protocol.train_changes() | {"seed": seed}
        if rate is not None:
            train["learning_rate"] = rate
        return make_spec(
            self.protocol.task,
            name,
            self.task,
            backbone=self.protocol.network.backbone,
            options=self.protocol.network.options,
            train=train,
            own=self.protocol.own,
            **changes,
        )


def _sweep_rows(sweeps: Sweeps) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Group, row, method, and what differs from its default."""
    presets = {
        ABLATION: gem_paper.ablation() if sweeps.ablation else {},
        ABLATION_OURS: gem_paper.ablation(gem_paper.OURS) if sweeps.ablation_ours else {},
        RELATED: {
            row: gem_paper.preset(row)
            for row in ("dirichlet-mixture", "gated-dirichlet")
            if sweeps.related
        },
    }
    for group, configs in presets.items():
        for row, config in configs.items():
            yield group, row, "gem-paper", {"head": config}
    settings = {
        FISHER: (sweeps.fisher, ("fi_reg_weight", "fi_mod_strength")),
        KL: (sweeps.kl, ("kl_weight",)),
        COMPONENTS: (sweeps.components, ("num_components",)),
    }
    for group, (values, names) in settings.items():
        for value in values:
            texts = tuple(f"{name}={value}" for name in names)
            yield group, f"{value:g}", _GEM, {"settings": texts}
    if sweeps.outliers:
        for name in ("daedl", "re-edl"):
            yield OUTLIERS, name, name, {}
            yield OUTLIERS, f"{name}+vos", name, {"outliers": "vos"}
        yield OUTLIERS, _GEM, _GEM, {}
        for kind in ("none", "vos"):
            yield OUTLIERS, f"{_GEM}+{kind}", _GEM, {"outliers": kind}
        # as many as of VOS, and as late: the two rows differ in the kind alone
        noise = replace(method(_GEM).default_config(), outliers=replace(VOS, kind="noise"))
        yield OUTLIERS, f"{_GEM}+noise", _GEM, {"head": noise}
