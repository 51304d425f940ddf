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
    """What an evaluation gives to the record of a run."""

    sets: Sets  # the arrays
    numbers: dict[str, Any]  # the metrics
    data: dict[str, Any]  # facts of each set
    detectors: dict[str, Any]  # facts of each detector
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
    sets: Sets = {}
    data: dict[str, Any] = {TRAIN: to_plain(SplitFacts.of(task.train))}

    def observe(name: str, split: Split, **options: bool) -> Arrays:
        arrays = observed_arrays(model, split, bank, fitted, **options)
        sets[name], data[name] = arrays, to_plain(SplitFacts.of(split))
        return arrays

    validation = observe(VALIDATION, task.validation, log_probs=True)
    measured: dict[str, Any] = {VALIDATION: {"id": numbers.classification(validation)}}
    if not brief:
        test = observe(TEST, task.test, log_probs=True, examples=True)
        measured[TEST] = {"id": numbers.classification(test)}
        # OOD sets for tuning stand against validation data, the others against test data
        for section, inside, splits in (
            ("ood_validation", validation, task.ood_validation),
            ("ood", test, task.ood_test),
        ):
            measured[section] = {
                name: numbers.detection(inside, observe(name, split, examples=True))
                for name, split in splits.items()
            }
        measured["shift"] = {}
        for name, split in shifted.items():
            arrays = observed_arrays(model, split, bank, log_probs=True)
            measured["shift"][name] = _shift_numbers(arrays, test)
            del arrays["log_probs"]  # their numbers are kept, and that is enough
            sets[f"shift/{name}"], data[f"shift/{name}"] = arrays, to_plain(SplitFacts.of(split))
    seconds = time.perf_counter() - begin
    return Evaluated(sets, measured, data, detector_facts(fitted), round(seconds, 3))


def _shift_numbers(arrays: Arrays, test: Arrays) -> dict[str, Any]:
    """Of a corrupted set against the clean images that it was made from; corrupted is positive."""
    scores = {name: values for name, values in test.items() if name.startswith("score/")}
    clean = {name: values[: len(arrays["label"])] for name, values in scores.items()}
    by_score = numbers.detection(clean, arrays)["by_score"]
    return {
        "id": numbers.classification(arrays),
        "by_score": {score: by_score[score] for score in SHIFT_SCORES if score in by_score},
    }


def assembled(spec: RunSpec, members: Sequence[Model]) -> Model:
    """An ensemble of trained softmax models, as many as its spec says, whose modules it shares."""
    heads = [member.head for member in members]
    if not heads or any(type(head) is not method("softmax") for head in heads):
        raise InputError("an ensemble is assembled from softmax runs")
    stack = Stack([member.backbone for member in members])
    head: Head = method("ensemble")(stack.num_features, heads[0].num_classes, spec.head)
    head.heads = torch.nn.ModuleList(heads)
    model, first = Model(stack, head), members[0]
    model.input_mean, model.input_std = first.input_mean, first.input_std
    model.inputs = first.inputs
    return model.eval()
