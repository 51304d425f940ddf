"""The numbers of a model on an ID split and its OOD sets, as `metrics.json` holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from gemfi import metrics, scores
from gemfi._config import to_plain
from gemfi.belief import Belief
from gemfi.data import Role, Split, require_role
from gemfi.detectors import ALL, DETECTORS, Detector, Observed, detector_names, observe
from gemfi.detectors.base import BATCH
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.runs.facts import SplitFacts


def measure(
    model: Model,
    inside: Split,
    outside: Mapping[str, Split],
    absent: Iterable[str],
    detectors: Sequence[Detector] = (),
    *,
    progress: bool | None = False,
) -> dict[str, Any]:
    """One section: `id`, `scores` (which ones the method names), `ood` and `absent`.

    Each OOD set has the metrics of the method's `aleatoric` and `epistemic` score and, in
    `by_score`, those of every score that its belief allows and that is not the same for all inputs
    (disagreement of one component is). With detectors it has theirs in `by_detector`, and the
    section says in `detectors` what they are. Percent, except the NLL. The model is asked once for
    each split, and again by detectors that need gradients.

    Args:
        model: trained.
        inside: role test or validation.
        outside: name -> set of role ood-test or ood-validation.
        absent: names of OOD sets that are known and not here.
        detectors: fitted.
        progress: a bar for the detectors: yes, no, or (None) if standard error is a terminal.
    """
    require_role(inside, (Role.TEST, Role.VALIDATION), "evaluation as ID data")
    for split in outside.values():
        require_role(split, (Role.OOD_TEST, Role.OOD_VALIDATION), "evaluation as OOD data")
    splits, named = [inside, *outside.values()], model.head.named_scores
    with _bar(splits, detectors, progress) as bar:
        observed = observe(model, inside)
        base = every_score(observed.belief, named.values())
        varied = {name for name, values in base.items() if bool((values != values[0]).any())}
        detected = detected_by(model, observed, detectors, bar)
        sets = {}
        for key, split in outside.items():
            there = observe(model, split)
            values = every_score(there.belief, named.values())
            numbers = {name: metrics.ood_metrics(base[name], values[name]) for name in base}
            sets[key] = {
                **to_plain(SplitFacts.of(split)),
                **{kind: numbers[name] for kind, name in named.items()},
                "by_score": {name: each for name, each in numbers.items() if name in varied},
            }
            if detectors:
                sets[key]["by_detector"] = {
                    name: metrics.ood_metrics(detected[name], found)
                    for name, found in detected_by(model, there, detectors, bar).items()
                }
    classification = metrics.classification_metrics(observed.belief.log_probs(), inside.labels)
    section = {
        "id": {**to_plain(SplitFacts.of(inside)), **classification},
        "scores": named,
        "ood": sets,
        "absent": sorted(absent),
    }
    return section | ({"detectors": detector_facts(detectors)} if detectors else {})


def fit_detectors(
    model: Model, names: Collection[str], train: Split, validation: Split
) -> list[Detector]:
    """Detectors with their default settings, fitted on what the model makes of the data.

    Args:
        model: trained.
        names: in `DETECTORS`, or `all` for those that suit the model; one that is named and does
            not is an error.
        train: role train.
        validation: role validation.
    """
    require_role(train, (Role.TRAIN,), "fitting detectors as training data")
    require_role(validation, (Role.VALIDATION,), "fitting detectors as validation data")
    made = [DETECTORS[name]() for name in detector_names(names)]
    if not made:
        return []
    chosen = observe(model, validation)
    reasons = {each: reason for each in made if (reason := each.missing(chosen.belief))}
    if reasons and ALL not in names:
        raise InputError("; ".join(reasons.values()))
    made = [each for each in made if each not in reasons]
    shown = observe(model, train)
    for detector in made:
        detector.fit(shown, chosen)
    return made


def every_score(belief: Belief, named: Iterable[str]) -> dict[str, Tensor]:
    """The scores that a belief allows, and those that the method names, which it must.

    Args:
        belief: in float64.
        named: by the method.
    """
    names = dict.fromkeys([*scores.available(belief), *named])
    return {name: scores.SCORES[name](belief) for name in names}


def detected_by(
    model: Model,
    observed: Observed,
    detectors: Iterable[Detector],
    bar: tqdm[Any] | None = None,
) -> dict[str, Tensor]:
    """The scores of a split by each detector.

    Args:
        model: trained.
        observed: the split.
        detectors: fitted.
        bar: of progress, in inputs.
    """
    bar = tqdm(disable=True) if bar is None else bar
    found = {}
    for detector in detectors:
        name = detector.info.name
        bar.set_postfix_str(f"{name} on {observed.required_split.name}")
        if detector.needs == "inputs":
            parts = []
            for piece in torch.split(observed.required_split.x, BATCH):
                parts.append(detector.score_inputs(model, piece))
                bar.update(len(piece))
            found[name] = torch.cat(parts)
        else:
            found[name] = detector.score(observed)
            bar.update(len(observed))
    return found


def detector_facts(detectors: Iterable[Detector]) -> dict[str, Any]:
    """Detector -> what it needs, its settings, and what fitting it said."""
    return {
        detector.info.name: {
            "needs": detector.needs,
            "settings": to_plain(detector.config) if detector.config is not None else {},
            "notes": detector.notes,
        }
        for detector in detectors
    }


def _bar(splits: Iterable[Split], detectors: Sequence[Detector], show: bool | None) -> tqdm[Any]:
    total = len(detectors) * sum(map(len, splits))
    hidden = not detectors or (None if show is None else not show)
    return tqdm(total=total, desc="detectors", unit="input", disable=hidden, leave=False)
