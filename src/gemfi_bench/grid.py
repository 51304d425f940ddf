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
from gemfi_bench.protocol import Contestant, Protocol

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
_PAPER: Final = "gem-paper"

Row = tuple[str, str, str, dict[str, Any]]
Nll = Callable[["Cell"], float | None]
"""The NLL of a cell on ID validation data, once it is there."""


@dataclass(frozen=True)
class Cell:
    """A run of the grid.

    Attributes:
        group: the tables that it is for.
        row: of them.
        seed: of the run.
        spec: what is trained; of an assembled ensemble, what the whole is.
        evaluation: what else decides its numbers: `shift`, corrupted data or None; or `brief`,
            validation data alone.
        detectors: to be fitted on it.
        members: of an assembled ensemble, the specs of the runs that it is made of.
        member_keys: the keys of those runs.
        ready: whether its learning rate has been chosen.
    """

    group: str
    row: str
    seed: int
    spec: RunSpec
    evaluation: Mapping[str, Any]
    detectors: tuple[str, ...] = ()
    members: tuple[RunSpec, ...] = ()
    member_keys: tuple[str, ...] = ()
    ready: bool = True

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits of everything that decides the numbers of the run."""
        content = {
            "format": FORMAT,
            "spec": self.spec.to_plain(),
            "evaluation": to_plain(self.evaluation),
            "detectors": list(self.detectors),
            "members": [each.to_plain() for each in self.members],
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
    return [*planner.rates(), *main, *(_shared(cell, known) for cell in planner.sweeps())]


def _shared(cell: Cell, known: Mapping[str, Cell]) -> Cell:
    """A cell of a sweep, evaluated as the main tables do it if its run is one of theirs."""
    same = known.get(cell.spec.name)
    if same is None:
        return cell
    return replace(cell, evaluation=same.evaluation, detectors=same.detectors)


class _Planner:
    """Makes cells; a class only so that protocol, task and records need not be passed about."""

    def __init__(self, protocol: Protocol, task: Task, nll: Nll) -> None:
        self.protocol, self.task, self.nll = protocol, task, nll
        self.found: dict[str, float | None] = {}

    # -- learning rates -------------------------------------------------------------------------

    @cached_property
    def rated(self) -> list[str]:
        """Methods whose learning rate is chosen: those of the contestants and of the sweeps."""
        if not self.protocol.rates.values:
            return []
        names = [each.method for each in self.protocol.contestants if each.assembled is None]
        swept = [name for _, _, name, _ in self._rows()]
        return list(dict.fromkeys([*names, *swept]))

    def rates(self) -> list[Cell]:
        """The runs that choose."""
        return [
            self._trial(name, rate, seed)
            for name in self.rated
            for rate in self.protocol.rates.values
            for seed in self.protocol.rates.seeds
        ]

    def rate(self, name: str) -> float | None:
        """The rate of the least mean NLL; None until all of its runs are there."""
        if name not in self.found:
            means = {}
            for rate in self.protocol.rates.values:
                seeds = self.protocol.rates.seeds
                values = [self.nll(self._trial(name, rate, seed)) for seed in seeds]
                known = [each for each in values if each is not None]
                if len(known) == len(values):
                    means[rate] = statistics.fmean(known)
            complete = len(means) == len(self.protocol.rates.values)
            self.found[name] = min(means, key=means.__getitem__) if complete else None
        return self.found[name]

    def _trial(self, name: str, rate: float, seed: int) -> Cell:
        spec = self._spec(name, seed, rate=rate)
        return Cell(RATES, f"{name} at {rate:g}", seed, spec, {"brief": True})

    # -- the main tables ------------------------------------------------------------------------

    def methods(self) -> list[Cell]:
        """A cell for each contestant and seed; assembled ones last."""
        trained = [each for each in self.protocol.contestants if each.assembled is None]
        cells = [self._contestant(each, seed) for each in trained for seed in self._seeds(each)]
        for each in self.protocol.contestants:
            if each.assembled is not None:
                cells.append(self._assembled(each, cells))
        return cells

    def _seeds(self, contestant: Contestant) -> tuple[int, ...]:
        return self.protocol.seeds if contestant.seeds is None else contestant.seeds

    def _contestant(self, contestant: Contestant, seed: int) -> Cell:
        return self._cell(
            MAIN,
            contestant.name,
            contestant.method,
            seed,
            settings=contestant.settings,
            outliers=contestant.outliers,
            detectors=contestant.detectors,
        )

    def _assembled(self, contestant: Contestant, cells: list[Cell]) -> Cell:
        """One ensemble of all the runs of a row."""
        members = [each for each in cells if each.row == contestant.assembled]
        first = members[0].spec
        config = replace(method("ensemble").default_config(), members=len(members))
        return replace(
            members[0],
            row=contestant.name,
            spec=replace(first, method="ensemble", head=config),
            members=tuple(each.spec for each in members),
            member_keys=tuple(each.key for each in members),
            detectors=(),
            ready=all(each.ready for each in members),
        )

    # -- around GEM-FI --------------------------------------------------------------------------

    def sweeps(self) -> Iterator[Cell]:
        """Ablations, sensitivities and outliers."""
        sweeps = self.protocol.sweeps
        seeds = self.protocol.seeds if sweeps.seeds is None else sweeps.seeds
        for group, row, name, changes in self._rows():
            for seed in seeds:
                yield self._cell(group, row, name, seed, **changes)

    def _rows(self) -> Iterator[Row]:
        """Group, row, method, and what differs from its default."""
        yield from self._presets()
        sweeps = self.protocol.sweeps
        for value in sweeps.fisher:
            settings = (f"fi_reg_weight={value}", f"fi_mod_strength={value}")
            yield FISHER, f"{value:g}", _GEM, {"settings": settings}
        for value in sweeps.kl:
            yield KL, f"{value:g}", _GEM, {"settings": (f"kl_weight={value}",)}
        for count in sweeps.components:
            yield COMPONENTS, str(count), _GEM, {"settings": (f"num_components={count}",)}
        if sweeps.outliers:
            yield from self._outliers()

    def _presets(self) -> Iterator[Row]:
        sweeps = self.protocol.sweeps
        if sweeps.ablation:
            for row, config in gem_paper.ablation().items():
                yield ABLATION, row, _PAPER, {"head": config}
        if sweeps.ablation_ours:
            for row, config in gem_paper.ablation(gem_paper.OURS).items():
                yield ABLATION_OURS, row, _PAPER, {"head": config}
        if sweeps.related:
            for row in ("dirichlet-mixture", "gated-dirichlet"):
                yield RELATED, row, _PAPER, {"head": gem_paper.preset(row)}

    def _outliers(self) -> Iterator[Row]:
        for name in ("daedl", "re-edl"):
            yield OUTLIERS, name, name, {}
            yield OUTLIERS, f"{name}+vos", name, {"outliers": "vos"}
        yield OUTLIERS, _GEM, _GEM, {}
        for kind in ("none", "vos"):
            yield OUTLIERS, f"{_GEM}+{kind}", _GEM, {"outliers": kind}
        # as many as of VOS, and as late: the two rows differ in the kind alone
        noise = replace(method(_GEM).default_config(), outliers=replace(VOS, kind="noise"))
        yield OUTLIERS, f"{_GEM}+noise", _GEM, {"head": noise}

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
        spec = self._spec(name, seed, rate=rate, **changes)
        shift = to_plain(self.protocol.shift) if group == MAIN else None
        return Cell(group, row, seed, spec, {"shift": shift}, detectors, ready=ready)

    def _spec(self, name: str, seed: int, *, rate: float | None = None, **changes: Any) -> RunSpec:
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
