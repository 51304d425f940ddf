"""Protocol: what a benchmark compares, on which data and with which budget, as one TOML file.

The protocols of the package are in `protocols/`; a user's file is read in the same way. Everything
that is not known is refused by its name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    again = [text for at, text in enumerate(shown) if text in shown[:at]]
    if again:
        raise InputError(f"{name} must be different from each other, but {again[0]} is twice there")


def _check_seeds(name: str, seeds: tuple[int, ...] | None) -> None:
    if seeds is None:  # those of the protocol
        return
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"{name} must be different numbers, at least one, got {list(seeds)}")
    for seed in seeds:
        check_seed(name, seed)


@dataclass(frozen=True)
class Network:
    """The backbone of every run."""

    backbone: str | None = None  # a name in `BACKBONES`; None for what suits the task's samples
    options: tuple[str, ...] = ()  # texts `name=value` for it


@dataclass(frozen=True)
class Rates:
    """A learning rate for each method, chosen by the mean NLL on ID validation data."""

    values: tuple[float, ...] = ()  # to choose from; none for that of `train`, the same for all
    seeds: tuple[int, ...] = (0,)  # of the runs that choose

    def __post_init__(self) -> None:
        _check_values("rates.values", self.values)
        for value in self.values:
            check_number("rates.values", value, above=0)
        _check_seeds("rates.seeds", self.seeds)


@dataclass(frozen=True)
class Contestant:
    """A row of the main tables."""

    method: str  # a name in `METHODS`
    row: str | None = None  # its name in the records; None for that of the method
    seeds: tuple[int, ...] | None = None  # None for those of the protocol
    settings: tuple[str, ...] = ()  # texts `name=value` for its configuration
    outliers: Kind | None = None  # of another kind than its default
    detectors: tuple[str, ...] = ()  # post-hoc detectors to fit on its runs, or `all`
    assembled: str | None = None  # of an ensemble, the row whose runs are its members, untrained

    @property
    def name(self) -> str:
        """Its row."""
        return self.method if self.row is None else self.row

    def __post_init__(self) -> None:
        method(self.method)
        detector_names(self.detectors)
        _check_seeds(f"seeds of {self.name}", self.seeds)
        if self.assembled is None:
            return
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
    """Runs around GEM-FI, each for a table of the paper."""

    ablation: bool = False  # the ten rows of the paper's ablation, with the paper's settings
    ablation_ours: bool = False  # the same switches, with the settings of `gem-fi` here
    fisher: tuple[float, ...] = ()  # values of λ_FI, for penalty and modulation at once
    kl: tuple[float, ...] = ()  # values of λ_KL
    components: tuple[int, ...] = ()  # values of K
    outliers: bool = False  # DAEDL and Re-EDL with VOS; GEM-FI with VOS, with noise, without
    related: bool = False  # mixture of Dirichlets and gated Dirichlet, for related work
    seeds: tuple[int, ...] | None = None  # None for those of the protocol

    def __post_init__(self) -> None:
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

    The corruptions of `mnist` are those of MNIST-C, of `cifar10` those of CIFAR-10-C, of `digits`
    those of `gemfi_bench.corruptions.ANY_SIZE`; none for no shift.
    """

    corruptions: tuple[str, ...] = ()
    severities: tuple[int, ...] = ()  # 1 to 5; empty where a corruption has one severity
    images: int = 1000  # how many of the first test images

    def __post_init__(self) -> None:
        check_int("shift.images", self.images, 1)
        _check_values("shift.corruptions", self.corruptions)
        _check_values("shift.severities", self.severities)


@dataclass(frozen=True)
class Protocol:
    """What is compared, on which data, with which budget."""

    name: str  # small letters, digits, '.', '_' and '-'
    title: str  # one line
    task: str  # a name in `TASKS`, or the path of a user's own data, from the folder of the file
    contestants: tuple[Contestant, ...]
    own: OwnData = OwnData()  # noqa: RUF009 - frozen; how a user's own data are read
    network: Network = Network()
    train: Mapping[str, Any] = field(default_factory=dict)  # of `TrainConfig`; augmentation by name
    rates: Rates = Rates()
    seeds: tuple[int, ...] = SEEDS  # of every run, unless its row says otherwise
    sweeps: Sweeps = Sweeps()
    shift: Shift = Shift()
    near: tuple[str, ...] = ()  # OOD test sets that are near
    far: tuple[str, ...] = ()  # OOD test sets that are far
    seen: tuple[str, ...] = ()  # those a pretrained network has seen: marked, and no claim's judge
    notes: tuple[str, ...] = ()  # what a reader of the tables must know

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
        known = {one.name for one in fields(TrainConfig)} - {"seed"}
        for name in self.train:
            if name not in known:
                raise InputError(f"train.{name}: unknown field; known: {', '.join(sorted(known))}")
        plain = dict(self.train)
        augmentation = {}
        if "augmentation" in plain:
            name = plain.pop("augmentation")
            check_choice("train.augmentation", name, tuple(AUGMENTATIONS))
            augmentation = {"augmentation": AUGMENTATIONS[name]}
        checked = from_plain(TrainConfig, plain, "train")
        return augmentation | {name: getattr(checked, name) for name in plain}

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_plain(cls, mapping: Any, where: str) -> Protocol:
        """The inverse; anything that is not known is refused by name."""
        return from_plain(cls, mapping, where)


_FOLDER: Final = Path(__file__).with_name("protocols")


def built_in() -> tuple[str, ...]:
    """The names of the package's protocols."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def find_protocol(name: str) -> Protocol:
    """A protocol of the package by its name, such as `digits`, or a user's by its file's path."""
    if name in built_in():
        return _read(_FOLDER / f"{name}.toml", name)
    path = Path(name)
    if path.suffix != ".toml":
        raise InputError(
            f"unknown protocol {name!r}; known: {', '.join(built_in())}; or give the path of a "
            "TOML file"
        )
    if not path.is_file():
        raise InputError(f"protocol {path} does not exist: no such file")
    protocol = _read(path, str(path))
    if protocol.name in built_in():
        raise InputError(
            f"{path}: name {protocol.name!r} is that of a protocol of the package; give yours "
            "another"
        )
    return protocol


def _read(path: Path, where: str) -> Protocol:
    try:
        plain = tomllib.loads(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is no TOML: {error}; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is no TOML: {error}") from error
    protocol = Protocol.from_plain(plain, where)
    if protocol.task in TASKS:
        return protocol
    data = (path.parent / protocol.task).resolve()
    if not data.exists():
        raise InputError(
            f"{where}: task {protocol.task!r} is neither a known task ({', '.join(TASKS)}) nor a "
            f"file or folder: {data} does not exist"
        )
    return replace(protocol, task=str(data))


def _check_rows(contestants: Sequence[Contestant], seeds: Sequence[int]) -> None:
    """Rows of different names, and ensembles of rows that they can be assembled from."""
    if not contestants:
        raise InputError("contestants: there is nothing to compare")
    rows = {contestant.name: contestant for contestant in contestants}
    if len(rows) < len(contestants):
        names = ", ".join(contestant.name for contestant in contestants)
        raise InputError(f"contestants: two rows have one name: {names}")
    for name, contestant in rows.items():
        if contestant.assembled is None:
            continue
        source = rows.get(contestant.assembled)
        if source is None or source.method != _SOURCE:
            why = "no row" if source is None else f"a row of {source.method}"
            known = [row for row, other in rows.items() if other.method == _SOURCE]
            raise InputError(
                f"contestants: {name} is assembled from {contestant.assembled!r}, which is {why}; "
                f"assembled must be a row of {_SOURCE}: {', '.join(known) or 'there is none'}"
            )
        if len(seeds if source.seeds is None else source.seeds) < 2:
            raise InputError(
                f"contestants: {name} is assembled from {contestant.assembled}, which has one "
                "seed; an ensemble needs at least two"
            )
