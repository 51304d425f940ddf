"""Bundle: a trained model with its policy and where it comes from, and how to make and save one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor

from gemfi._config import from_plain, to_plain
from gemfi._environment import environment
from gemfi._files import (
    CHECKSUM,
    UNSEALED,
    Seal,
    header_end,
    strict_json,
    to_json,
    write_atomically,
)
from gemfi.backbones import Blueprint
from gemfi.belief import Belief
from gemfi.bundle.describe import describe
from gemfi.data import AnySplit, require_use
from gemfi.data.columns import Columns, frame_cells, warn_of_missing
from gemfi.data.inputs import InputSpec
from gemfi.decisions import Decisions, Goal, Policy, Readings, read_belief
from gemfi.errors import InputError
from gemfi.methods import method
from gemfi.methods.upgrade import upgraded
from gemfi.model import Inputs, Model
from gemfi.modes import evaluating
from gemfi.scores import MAIN, SCORES, available

ENDING: Final = ".safetensors"
SCHEMA: Final = 2
"""Of the header; it is the only one that is read."""

MODEL: Final = "model."
CALIBRATION: Final = "calibration."
REFERENCE: Final = "reference."
POLICY: Final = "policy.reference."
"""Prefixes of the tensors' names."""

KEY: Final = "gemfi"
SEAL: Final = Seal(KEY, "get it again from where it was made", 1 << 24)
"""Bytes of a header are limited: what may be large, such as calibration data, is a tensor."""

Kind = Literal["image", "row", "text", "array"]

_DOUBT: Final = "max_prob"  # of a policy that is fitted here
QUANTILES: Final = 201  # of a score on calibration data

READINGS: Final = {
    "score": torch.float64,
    "doubt": torch.float64,
    "label": torch.int64,
    "confidence": torch.float64,
    "wrong": torch.bool,
}
"""What is kept of the calibration data: a column each, and its type."""


@dataclass(frozen=True, kw_only=True)
class Description(InputSpec):
    """A model in words and small numbers, as the header has it; `InputSpec` says what it takes."""

    class_names: tuple[str, ...] = field()
    method: str
    config: Any  # the method's; None for a method without choices
    backbone: Blueprint | None  # by name and arguments; None for a module of somebody's own
    network: str  # the class of the backbone, for people
    num_features: int
    dtype: Literal["float32", "float64"] = "float32"  # of the weights
    channels: int | None = None  # means and spreads that normalise the inputs; None for none
    temperature: bool = False  # whether beliefs have one
    policy: Mapping[str, Any] | None = None  # in plain values, without its reference
    metrics: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)  # environment; spec, facts of a run

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_names)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(to_plain(self))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], where: str) -> Description:
        """The inverse; anything that is not known is refused by name."""
        if not isinstance(plain.get("method"), str):
            raise InputError(f"{where}: field method is missing")
        name, config = upgraded(plain["method"], plain.get("config"))
        plain = {**plain, "method": name, "config": config}
        info = from_plain(cls, plain, where, config=type(method(name).default_config()))
        info.check(where)
        return info


@dataclass(frozen=True, repr=False)
class Bundle:
    """A trained model with all that it takes to use it elsewhere.

    Attributes:
        name: of the file, without its ending.
        model: in evaluation mode.
        info: what it is.
        policy: that decides; None if it was saved without one.
        calibration: of the calibration data, all that a policy for another goal needs.
        references: score -> its quantiles (201,) on calibration data, ascending.
        run: folder that it was opened from; None for a file, which cannot make gemfi read data at a
            path of its choice.
    """

    name: str
    model: Model
    info: Description
    policy: Policy | None = None
    calibration: Readings | None = None
    references: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    run: Path | None = None

    def __repr__(self) -> str:
        return describe(self)

    @property
    def kind(self) -> Kind:
        """What an input is: `image` is (C, H, W) with one channel or three, `row` is (D,)."""
        if self.model.tokens is not None:
            return "text"
        shape = self.info.sample_shape
        if shape is not None and len(shape) == 3 and shape[0] in {1, 3}:
            return "image"
        return "row" if shape is not None and len(shape) == 1 else "array"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of an input, or an error that says that it has none."""
        if self.info.sample_shape is None:
            reason = "was saved before it was trained, and does not say of which shape inputs are"
            if self.model.tokens is not None:
                reason = "takes texts as token ids, of any length"
            raise InputError(f"{self.name} {reason}: ask it in Python, with predict")
        return self.info.sample_shape

    @property
    def columns(self) -> Columns | None:
        """Of a table, whose cells become the numbers that the model takes."""
        if self.info.columns is not None or self.info.feature_names is None:
            return self.info.columns
        return Columns.of_numbers(self.info.feature_names)

    def predict(self, x: Inputs | Any, batch_size: int = 512) -> Belief:
        """The belief on inputs (N, ...), as `Model.predict` has it; or on a data frame."""
        if hasattr(x, "iloc"):
            if self.columns is None:
                raise InputError(f"{self.name} knows no names of columns: give the numbers alone")
            table, filled = self.columns.filled(frame_cells(x))
            warn_of_missing(filled)
            x = self.columns.encode_all(table, lambda row: f"row {row}")
        return self.model.predict(x, batch_size)

    def decide(self, x: Inputs | Any, goal: Goal | str | None = None) -> Decisions:
        """Accept, abstain or unfamiliar for each input, by a goal or by the bundle's policy."""
        policy = self.policy if goal is None else self.policy_for(goal)
        if policy is None:
            text = "give a goal, such as false_alarm=0.05, or save it with one"
            raise InputError(f"{self.name} has no policy: {text}")
        return policy(self.predict(x))

    def policy_for(self, goal: Goal | str | None = None, **goals: Any) -> Policy:
        """A policy for another goal, from the calibration data that the bundle remembers.

        Args:
            goal: a `Goal`, or a text as `Goal.parse` reads it.
            goals: or its fields, such as `false_alarm=0.01`.
        """
        if self.calibration is None:
            text = "and a policy needs them: save it again with calibration="
            raise InputError(f"{self.name} was saved without calibration data, {text}")
        names = self.info.class_names
        return _fitted_policy(self.calibration, Goal.of(goal, goals), self.score, names)

    @property
    def score(self) -> str:
        """The score of unfamiliarity that `calibration` holds."""
        if self.policy is not None:
            return self.policy.score
        return self.model.head.named_scores["epistemic"]


def _fitted_policy(
    calibration: Readings, goal: Goal, score: str, class_names: tuple[str, ...]
) -> Policy:
    if goal.needs_ood:
        raise InputError(
            "youden and costs need OOD-validation data, which a bundle does not hold: fit the "
            "policy with Policy.fit, and save it with policy="
        )
    policy = Policy.from_readings(calibration, goal, names=class_names)
    return replace(policy, score=score, doubt=_DOUBT, class_names=class_names)


# -- making one ------------------------------------------------------------------------------------


def save(
    path: Path | str,
    model: Model,
    *,
    calibration: AnySplit | Readings | None = None,
    policy: Policy | Goal | str | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    columns: Columns | None = None,
    metrics: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write a trained model as one file, whole or not at all.

    Args:
        path: of the file, which ends in `.safetensors`.
        model: a trained model. If its backbone was not given by name, `load` will need the module.
        calibration: a labelled split of role calibration. The bundle remembers its scores, so
            that a policy for any goal can be had from the file alone.
        policy: a policy, or a goal to fit one for, such as `false_alarm=0.05,risk=0.02`.
        class_names: in place of those of the model or the calibration data.
        feature_names: of the columns, where an input is a row of a table; by default the model's.
        columns: or the columns of a table with categories or missing values.
        metrics: numbers to keep with it, JSON values.
        provenance: where it comes from, JSON values; the environment is added.
    """
    path = Path(path)
    check_ending(path)
    bundle = make_bundle(
        path.name.removesuffix(ENDING),
        model,
        calibration=calibration,
        policy=policy,
        class_names=class_names,
        feature_names=feature_names,
        columns=columns,
        metrics=metrics,
        provenance={"environment": to_plain(environment()), **(provenance or {})},
    )
    return write_bundle(path, bundle)


def make_bundle(
    name: str,
    model: Model,
    *,
    calibration: AnySplit | Readings | None = None,
    policy: Policy | Goal | str | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    columns: Columns | None = None,
    metrics: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Bundle:
    """A bundle of a model that is at hand; the arguments are those of `save`."""
    if not isinstance(model, Model):
        raise InputError(f"a bundle is of a gemfi.Model, got {type(model).__name__}")
    model.require_finished("a bundle")
    if not isinstance(calibration, AnySplit | Readings | None):
        raise InputError(f"calibration= must be a split, got {type(calibration).__name__}")
    inputs = replace(model.inputs, class_names=_class_names(model, class_names, calibration))
    if feature_names is not None:
        inputs = replace(inputs, feature_names=tuple(map(str, feature_names)))
    inputs = inputs.with_columns(columns)
    info = _description(model, inputs, metrics or {}, provenance or {})
    score = model.head.named_scores["epistemic"]
    if isinstance(policy, Policy):
        score = policy.score
    readings: Readings | None
    references: dict[str, npt.NDArray[np.float64]] = {}
    if isinstance(calibration, AnySplit):
        readings, references = _read(model, require_use(calibration, "policy"), score)
    else:
        readings = calibration
    if isinstance(policy, Goal | str):
        if readings is None:
            raise InputError("a goal needs calibration data: give calibration=, or a Policy")
        policy = _fitted_policy(readings, Goal.of(policy, {}), score, info.class_names)
    return Bundle(name, evaluating(model), info, policy, readings, references)


def write_bundle(path: Path | str, bundle: Bundle) -> Path:
    """Write a bundle as one file, which ends in `.safetensors`."""
    path, info = Path(path), bundle.info
    tensors = {f"{MODEL}{name}": value for name, value in bundle.model.state_dict().items()}
    for name, value in bundle.model.state_dict().items():
        if value.is_floating_point() and bool(torch.isnan(value).any()):
            raise InputError(
                f"{name} holds NaN: did training fail? A bundle of it would not be loadable"
            )
    if bundle.policy is not None:
        policy = bundle.policy.to_plain()
        groups = [torch.tensor(group, dtype=torch.float64) for group in policy.pop("reference")]
        tensors |= {f"{POLICY}{index}": group for index, group in enumerate(groups)}
        info = replace(info, policy=policy)
    if bundle.calibration is not None:
        for name, array in vars(bundle.calibration).items():
            if array is not None:
                tensors[f"{CALIBRATION}{name}"] = torch.from_numpy(array)
    for name, quantiles in bundle.references.items():
        tensors[f"{REFERENCE}{name}"] = torch.from_numpy(quantiles)
    check_ending(path)
    try:
        plain = {CHECKSUM: UNSEALED, "schema": SCHEMA, **info.to_plain()}
        text = to_json(plain, ensure_ascii=True)
        strict_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"metrics= and provenance= must be values of JSON: {error}") from error
    own = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    data = safetensors.torch.save(own, metadata={KEY: text})
    end = header_end(data)
    if end > SEAL.largest:
        raise InputError(
            f"the description of this model takes {end:,} bytes, and {SEAL.largest:,} is the "
            "limit: leave some of metrics= and provenance= out"
        )
    write_atomically(path, SEAL.seal(data))
    return path


def check_ending(path: Path) -> None:
    """Refuse a name that does not say what the file is."""
    if path.suffix != ENDING:
        raise InputError(f"a bundle is a file that ends in {ENDING}, got {path.name}")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")


def _class_names(
    model: Model, given: Sequence[str] | None, calibration: AnySplit | Readings | None
) -> tuple[str, ...]:
    """Those that were given, or the model's, or the calibration data's, or numbers."""
    if isinstance(given, str):
        raise InputError(f"class_names= must be a list of names, got the text {given!r}")
    count = model.head.num_classes
    known = given if given is not None else model.inputs.class_names
    if known is None and isinstance(calibration, AnySplit):
        known = calibration.class_names
    names = tuple(map(str, range(count) if known is None else known))
    if len(names) != count:
        raise InputError(f"{len(names)} class names for a model of {count} classes")
    return names


def _description(
    model: Model, inputs: InputSpec, metrics: Mapping[str, Any], provenance: Mapping[str, Any]
) -> Description:
    weights = {parameter.dtype for parameter in model.parameters()}
    if not weights <= {torch.float32} and not weights <= {torch.float64}:
        types = ", ".join(sorted(str(dtype) for dtype in weights))
        raise InputError(
            f"a bundle holds weights of float32 or of float64, got {types}: convert the model "
            "first, with model.float()"
        )
    info = Description(
        **vars(inputs),
        method=model.head.info.name,
        config=model.head.config,
        backbone=model.blueprint,
        network=type(model.backbone).__name__,
        num_features=model.head.num_features,
        dtype="float64" if weights == {torch.float64} else "float32",
        channels=None if model.input_mean is None else len(model.input_mean),
        temperature=model.log_temperature is not None,
        metrics=dict(metrics),
        provenance=dict(provenance),
    )
    info.check("bundle")
    return info


def _read(
    model: Model, calibration: AnySplit, score: str
) -> tuple[Readings, dict[str, npt.NDArray[np.float64]]]:
    """Readings, and quantiles of scores: where an input stands among calibration data."""
    parts: list[Readings] = []
    scores: dict[str, list[Tensor]] = {}
    for belief, y in model.beliefs(calibration):
        parts.append(read_belief(belief, score, _DOUBT, y))
        known = available(belief)
        for name in (*MAIN, "density"):
            if name in known:
                scores.setdefault(name, []).append(SCORES[name](belief))
    steps = np.linspace(0, 1, QUANTILES)
    quantiles = {
        name: np.quantile(torch.cat(values).numpy(force=True).astype(np.float64), steps)
        for name, values in scores.items()
    }
    return Readings.cat(parts), quantiles
