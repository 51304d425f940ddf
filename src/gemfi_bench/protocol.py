"""Protocol: what a benchmark compares, on which data and with which budget, as one TOML file.

The protocols of the package are in `protocols/`; a user's file is read in the same way. Everything
that is not known is refused by its name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

from gemfi._config import check_choice, check_int, check_number, check_seed, from_plain, to_plain
from gemfi.data import TASKS
from gemfi.data.augmentation import AUGMENTATIONS
from gemfi.detectors import detector_names
from gemfi.errors import InputError
from gemfi.methods import method
from gemfi.outliers import Kind
from gemfi.runs import OwnData
from gemfi.training import TrainConfig

SEEDS: Final = (0, 1, 2, 3, 42)
"""The paper's."""

SEEN: Final = "seen in pretraining"
"""How such OOD sets are marked."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")  # it becomes a folder
_SOURCE: Final = "softmax"
"""The method whose runs an ensemble is assembled from."""


def _check_values(name: str, values: Sequence[object]) -> None:
    """Refuse one that is there twice, as the records name it: runs and rows would be double."""
    shown = [f"{each:g}" if isinstance(each, float) else str(each) for each in values]
    again = [each for at, each in enumerate(shown) if each in shown[:at]]
    if again:
        raise InputError(f"{name} must be different from each other, but {again[0]} is twice there")


def _check_seeds(name: str, seeds: tuple[int, ...]) -> None:
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"{name} must be different numbers, at least one, got {list(seeds)}")
    for seed in seeds:
        check_seed(name, seed)


@dataclass(frozen=True)
class Network:
    """The backbone of every run.

    Attributes:
        backbone: a name in `BACKBONES`; None for what suits the task's samples.
        options: texts `name=value` for it.
    """

    backbone: str | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rates:
    """A learning rate for each method, chosen by the mean NLL on ID validation data.

    Attributes:
        values: to choose from; none for that of `train`, the same for all.
        seeds: of the runs that choose.
    """

    values: tuple[float, ...] = ()
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        _check_values("rates.values", self.values)
        for value in self.values:
            check_number("rates.values", value, above=0)
        _check_seeds("rates.seeds", self.seeds)


@dataclass(frozen=True)
class Contestant:
    """A row of the main tables.

    Attributes:
        method: a name in `METHODS`.
        row: its name in the records; None for that of the method.
        seeds: None for those of the protocol.
        settings: texts `name=value` for its configuration.
        outliers: of another kind than its default.
        detectors: post-hoc detectors to fit on its runs, or `all`.
        assembled: of an ensemble, the row whose runs are its members, in place of training.
    """

    method: str
    row: str | None = None
    seeds: tuple[int, ...] | None = None
    settings: tuple[str, ...] = ()
    outliers: Kind | None = None
    detectors: tuple[str, ...] = ()
    assembled: str | None = None

    @property
    def name(self) -> str:
        """Its row."""
        return self.method if self.row is None else self.row

    def __post_init__(self) -> None:
        method(self.method)
        detector_names(self.detectors)
        if self.seeds is not None:
            _check_seeds(f"seeds of {self.name}", self.seeds)
        if self.assembled is not None:
            self._check_assembled()

    def _check_assembled(self) -> None:
        """Nothing is trained for it, so that it has no settings of its own."""
        if self.method != "ensemble":
            raise InputError(f"assembled is for the ensemble, not for {self.method}")
        for name in ("seeds", "settings", "outliers", "detectors"):
            if getattr(self, name):
                raise InputError(
                    f"{name} of {self.name}: it is assembled from the runs of {self.assembled}, "
                    f"so that {name} would change nothing; leave it out"
                )


@dataclass(frozen=True)
class Sweeps:
    """Runs around GEM-FI, each for a table of the paper.

    Attributes:
        ablation: the ten rows of the paper's ablation, with the paper's settings.
        ablation_ours: the same switches, with the settings of `gem-fi` here.
        fisher: values of λ_FI, for penalty and modulation at once.
        kl: values of λ_KL.
        components: values of K.
        outliers: DAEDL and Re-EDL with virtual outliers, GEM-FI without, with the paper's VOS and
            with noise in their place.
        related: mixture of Dirichlets and gated Dirichlet, which stand for related work.
        seeds: None for those of the protocol.
    """

    ablation: bool = False
    ablation_ours: bool = False
    fisher: tuple[float, ...] = ()
    kl: tuple[float, ...] = ()
    components: tuple[int, ...] = ()
    outliers: bool = False
    related: bool = False
    seeds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.seeds is not None:
            _check_seeds("sweeps.seeds", self.seeds)
        for name in ("fisher", "kl", "components"):
            _check_values(f"sweeps.{name}", getattr(self, name))
        for name in ("fisher", "kl"):
            for value in getattr(self, name):
                check_number(f"sweeps.{name}", value, 0)
        for count in self.components:
            check_int("sweeps.components", count, 1)


@dataclass(frozen=True)
class Shift:
    """Corrupted copies of the first test images.

    Attributes:
        corruptions: their names; of `mnist` those of MNIST-C, of `cifar10` those of CIFAR-10-C, of
            `digits` those of `gemfi.data.corruptions.ANY_SIZE`; none for no shift.
        severities: 1 to 5; empty where a corruption has one severity.
        images: how many of the first test images.
    """

    corruptions: tuple[str, ...] = ()
    severities: tuple[int, ...] = ()
    images: int = 1000

    def __post_init__(self) -> None:
        check_int("shift.images", self.images, 1)
        _check_values("shift.corruptions", self.corruptions)
        _check_values("shift.severities", self.severities)


@dataclass(frozen=True)
class Protocol:
    """What is compared, on which data, with which budget.

    Attributes:
        name: of the protocol: small letters, digits, '.', '_' and '-'.
        title: one line.
        task: a name in `TASKS`, or the path of a user's own data, from the folder of the file.
        own: how a user's own data are read.
        network: of every run.
        train: fields of `TrainConfig` that every run has; `augmentation` by name.
        rates: how the learning rate is chosen.
        seeds: of every run, unless its row says otherwise.
        contestants: the rows of the main tables.
        sweeps: runs around GEM-FI.
        shift: corrupted test data.
        near: OOD test sets that are near.
        far: OOD test sets that are far.
        seen: those of the OOD test sets that a pretrained network has seen; tables mark them, and
            no claim is judged by them.
        notes: what a reader of the tables must know.
    """

    name: str
    title: str
    task: str
    contestants: tuple[Contestant, ...]
    own: OwnData = OwnData()  # noqa: RUF009 - frozen
    network: Network = Network()
    train: Mapping[str, Any] = field(default_factory=dict)
    rates: Rates = Rates()
    seeds: tuple[int, ...] = SEEDS
    sweeps: Sweeps = Sweeps()
    shift: Shift = Shift()
    near: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                "name must be a small letter or a digit, then such, '.', '_' or '-', as it "
                f"becomes the name of a folder; got {self.name!r}"
            )
        _check_rows(self.contestants, self.seeds)
        _check_seeds("seeds", self.seeds)
        _check_values("near and far", (*self.near, *self.far))
        _check_values("seen", self.seen)
        self.train_changes()

    def train_changes(self) -> dict[str, Any]:
        """The fields of `TrainConfig` that the protocol sets."""
        known = {each.name for each in fields(TrainConfig)} - {"seed"}
        found: dict[str, Any] = {}
        for name, value in self.train.items():
            if name not in known:
                raise InputError(f"train.{name}: unknown field; known: {', '.join(sorted(known))}")
            if name == "augmentation":
                check_choice("train.augmentation", value, tuple(AUGMENTATIONS))
                found[name] = AUGMENTATIONS[value]
            else:
                found[name] = value
        plain = {name: value for name, value in found.items() if name != "augmentation"}
        checked = from_plain(TrainConfig, plain, "train")
        return found | {name: getattr(checked, name) for name in plain}

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_plain(cls, mapping: Any, where: str) -> Protocol:
        """The inverse; anything that is not known is refused by name."""
        return from_plain(cls, mapping, where)


def built_in() -> tuple[str, ...]:
    """The names of the package's protocols."""
    folder = resources.files("gemfi_bench") / "protocols"
    return tuple(
        sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if _is_toml(each.name))
    )


def find_protocol(name: str) -> Protocol:
    """A protocol of the package by its name, or a user's by the path of its file.

    Args:
        name: such as `digits`, or `mine.toml`.
    """
    if name in built_in():
        file = resources.files("gemfi_bench") / "protocols" / f"{name}.toml"
        return _parsed(file.read_bytes(), name, Path())
    path = Path(name)
    if not _is_toml(name):
        raise InputError(
            f"unknown protocol {name!r}; known: {', '.join(built_in())}; or give the path of a "
            "TOML file"
        )
    if not path.is_file():
        raise InputError(f"protocol {path} does not exist: no such file")
    protocol = _parsed(path.read_bytes(), str(path), path.parent)
    if protocol.name in built_in():
        raise InputError(
            f"{path}: name {protocol.name!r} is that of a protocol of the package; give yours "
            "another"
        )
    return protocol


def _parsed(data: bytes, where: str, folder: Path) -> Protocol:
    try:
        plain = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is no TOML: {error}; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is no TOML: {error}") from error
    protocol = Protocol.from_plain(plain, where)
    if protocol.task in TASKS:
        return protocol
    found = (folder / protocol.task).resolve()
    if not found.exists():
        raise InputError(
            f"{where}: task {protocol.task!r} is neither a known task ({', '.join(TASKS)}) nor a "
            f"file or folder: {found} does not exist"
        )
    return replace(protocol, task=str(found))


def _is_toml(name: str) -> bool:
    return name.endswith(".toml")


def _check_rows(contestants: Sequence[Contestant], seeds: Sequence[int]) -> None:
    """Rows of different names, and ensembles of rows that they can be assembled from."""
    if not contestants:
        raise InputError("contestants: there is nothing to compare")
    rows = {each.name: each for each in contestants}
    if len(rows) < len(contestants):
        names = ", ".join(each.name for each in contestants)
        raise InputError(f"contestants: two rows have one name: {names}")
    for each in contestants:
        if each.assembled is None:
            continue
        source = rows.get(each.assembled)
        if source is None or source.method != _SOURCE:
            why = "no row" if source is None else f"a row of {source.method}"
            known = [name for name, row in rows.items() if row.method == _SOURCE]
            raise InputError(
                f"contestants: {each.name} is assembled from {each.assembled!r}, which is {why}; "
                f"assembled must be a row of {_SOURCE}: {', '.join(known) or 'there is none'}"
            )
        if len(seeds if source.seeds is None else source.seeds) < 2:
            raise InputError(
                f"contestants: {each.name} is assembled from {each.assembled}, which has one seed; "
                "an ensemble needs at least two"
            )
