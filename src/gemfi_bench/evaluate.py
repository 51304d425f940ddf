"""Evaluating one run of the grid on everything that the tables and figures need."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from gemfi._config import to_plain
from gemfi.backbones import Stack
from gemfi.data import Split, Task
from gemfi.detectors import Detector
from gemfi.errors import InputError
from gemfi.evaluation import SplitFacts, detector_facts, fit_detectors
from gemfi.methods import method
from gemfi.methods.base import Head
from gemfi.model import Model
from gemfi.runs.spec import RunSpec
from gemfi_bench import numbers
from gemfi_bench.observation import Arrays, observed_arrays, training_bank
from gemfi_bench.record_file import Sets

TRAIN, TEST, VALIDATION = "train", "test", "validation"

SHIFT_SCORES: Final = (
    "max_prob", "entropy", "expected_entropy", "disagreement", "mutual_information", "evidence",
    "bare_evidence", "energy", "logit_energy", "density", "unfamiliarity",
)  # fmt: skip
"""Scores whose numbers on corrupted data are recorded; the arrays hold every score."""


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation gives to the record of a run.

    Attributes:
        sets: the arrays.
        numbers: the metrics.
        data: facts of each set.
        detectors: facts of each detector.
        seconds: that it took.
    """

    sets: Sets
    numbers: dict[str, Any]
    data: dict[str, Any]
    detectors: dict[str, Any]
    seconds: float


def evaluate_cell(
    model: Model,
    task: Task,
    shifted: Mapping[str, Split],
    detectors: Sequence[str] = (),
    *,
    brief: bool = False,
) -> Evaluated:
    """Everything about a trained model.

    Args:
        model: trained.
        task: its data.
        shifted: corrupted test sets by name.
        detectors: names of those to fit, or `all`.
        brief: validation data alone, for the runs that choose a learning rate.
    """
    begin = time.perf_counter()
    bank = training_bank(model, task.train)
    fitted = fit_detectors(model, detectors, task.train, task.validation)
    validation = observed_arrays(model, task.validation, bank, fitted, log_probs=True)
    sets: Sets = {VALIDATION: validation}
    data: dict[str, Any] = {
        TRAIN: to_plain(SplitFacts.of(task.train)),
        VALIDATION: to_plain(SplitFacts.of(task.validation)),
    }
    found: dict[str, Any] = {VALIDATION: {"id": numbers.classification(validation)}}
    if not brief:
        tested = observed_arrays(model, task.test, bank, fitted, log_probs=True, examples=True)
        sets[TEST], data[TEST] = tested, to_plain(SplitFacts.of(task.test))
        found[TEST] = {"id": numbers.classification(tested)}
        found |= _outside(model, task, bank, fitted, sets, data)
        found["shift"] = _shift(model, shifted, bank, tested, sets, data)
    seconds = time.perf_counter() - begin
    return Evaluated(sets, found, data, detector_facts(fitted), round(seconds, 3))


def _outside(
    model: Model,
    task: Task,
    bank: torch.Tensor,
    fitted: Sequence[Detector],
    sets: Sets,
    data: dict[str, Any],
) -> dict[str, Any]:
    """The OOD sets: those for tuning against validation data, the others against test data."""
    found: dict[str, Any] = {}
    for section, inside, splits in (
        ("ood_validation", VALIDATION, task.ood_validation),
        ("ood", TEST, task.ood_test),
    ):
        found[section] = {}
        for name, split in splits.items():
            arrays = observed_arrays(model, split, bank, fitted, examples=True)
            sets[name], data[name] = arrays, to_plain(SplitFacts.of(split))
            found[section][name] = numbers.detection(sets[inside], arrays)
    return found


def _shift(
    model: Model,
    shifted: Mapping[str, Split],
    bank: torch.Tensor,
    tested: Arrays,
    sets: Sets,
    data: dict[str, Any],
) -> dict[str, Any]:
    """Corrupted sets against the clean images that they were made from; corrupted is positive."""
    found: dict[str, Any] = {}
    for name, split in shifted.items():
        arrays = observed_arrays(model, split, bank, log_probs=True)
        clean = {key: each[: len(split)] for key, each in tested.items() if "/" in key}
        by_score = numbers.detection(_without_detectors(clean), arrays)["by_score"]
        found[name] = {
            "id": numbers.classification(arrays),
            "by_score": {score: by_score[score] for score in SHIFT_SCORES if score in by_score},
        }
        del arrays["log_probs"]  # their numbers are kept, and that is enough
        sets[f"shift/{name}"], data[f"shift/{name}"] = arrays, to_plain(SplitFacts.of(split))
    return found


def _without_detectors(arrays: Arrays) -> Arrays:
    return {name: each for name, each in arrays.items() if not name.startswith("detector/")}


def assembled(spec: RunSpec, members: Sequence[Model]) -> Model:
    """An ensemble of trained softmax models, whose modules it shares.

    Args:
        spec: of the ensemble.
        members: as many as it says.
    """
    heads = [each.head for each in members]
    if not heads or any(type(head) is not method("softmax") for head in heads):
        raise InputError("an ensemble is assembled from softmax runs")
    stack = Stack([each.backbone for each in members])
    head: Head = method("ensemble")(stack.num_features, heads[0].num_classes, spec.head)
    head.heads = torch.nn.ModuleList(heads)
    model = Model(stack, head)
    first = members[0]
    model.input_mean, model.input_std = first.input_mean, first.input_std
    model.inputs = first.inputs
    return model.eval()
