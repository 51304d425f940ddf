"""The one evaluator: a model on an ID split and its OOD sets, by every score and detector.

`evaluate` gives the numbers of a model; `gemfi evaluate` writes them as a section of
`metrics.json`, and the benchmark keeps the scores of each input, which `score_split` gives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from gemfi import metrics, scores
from gemfi._config import to_plain
from gemfi.belief import Belief
from gemfi.data.splits import AnySplit, Role, Share, Split, require_role
from gemfi.detectors import (
    ALL,
    DETECTORS,
    Detector,
    Observed,
    detector_names,
    fit_together,
    looks,
    observe,
)
from gemfi.devices import place
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.modes import evaluating
from gemfi.processes import shared_out


@dataclass(frozen=True)
class SplitFacts:
    """A split by name, role, size and checksum."""

    split: str
    role: str
    n: int
    checksum: str

    @classmethod
    def of(cls, split: AnySplit, n: int | None = None) -> SplitFacts:
        """The facts of a split that is here; `n` of a stream that does not know its length."""
        return cls(split.name, str(split.role), len(split) if n is None else n, split.checksum())


@dataclass(frozen=True)
class ScoredSplit:
    """What a model makes of a split: one score for each input and score, (N,) each.

    Attributes:
        by_score: those that the belief allows, and those that the method names.
        by_detector: those of the fitted detectors.
        answers: how right and how sure it is; None where there are no labels.
        observed: features, logits and belief; None of a stream, of which only scores are kept.
    """

    by_score: dict[str, Tensor]
    by_detector: dict[str, Tensor]
    answers: metrics.Answers | None
    observed: Observed | None

    def __len__(self) -> int:
        return len(next(iter(self.by_score.values())))

    @classmethod
    def cat(cls, parts: Sequence[ScoredSplit], detectors: Iterable[Detector] = ()) -> ScoredSplit:
        """One after the other; refuses NaN among the scores of detectors."""
        answers = [part.answers for part in parts if part.answers is not None]
        kept = [part.observed for part in parts if part.observed is not None]
        names = parts[0].by_score
        return cls(
            {name: torch.cat([part.by_score[name] for part in parts]) for name in names},
            {
                name: detector.checked(torch.cat([part.by_detector[name] for part in parts]))
                for name, detector in ((detector.info.name, detector) for detector in detectors)
            },
            metrics.Answers.cat(answers) if answers else None,
            Observed.cat(kept) if kept else None,
        )

    @property
    def whole(self) -> Observed:
        """`observed`, where it is needed."""
        if self.observed is None:
            raise InputError(
                "beliefs on a stream are not kept: ask model.predict(split), or take the split "
                "into memory first, with split.load()"
            )
        return self.observed


@dataclass(frozen=True)
class Evaluation:
    """Numbers of one model, with the scores that they come from. Percent, except the NLL.

    Attributes:
        method: name of the method.
        scores: `aleatoric` and `epistemic` -> the score that the method names.
        classification: accuracy, NLL, Brier, ECE and error detection on the ID split.
        ood: for each OOD set, the metrics of the `aleatoric` and of the `epistemic` score; in
            `by_score` those of every score that is not the same for all ID inputs, as disagreement
            is with one component; with detectors, in `by_detector`, theirs.
        detectors: what each detector needs, its settings and notes.
        split: the ID split.
        ood_splits: the OOD sets.
        scored: the scores of each input of the ID split.
        ood_scored: of each OOD set.
    """

    method: str
    scores: dict[str, str]
    classification: dict[str, float]
    ood: dict[str, dict[str, Any]]
    detectors: dict[str, Any]
    split: AnySplit
    ood_splits: Mapping[str, AnySplit]
    scored: ScoredSplit
    ood_scored: Mapping[str, ScoredSplit]

    @property
    def belief(self) -> Belief:
        """On the ID split, which must be in memory."""
        return self.scored.whole.belief

    @property
    def ood_beliefs(self) -> dict[str, Belief]:
        """On each OOD set, which must be in memory."""
        return {name: scored.whole.belief for name, scored in self.ood_scored.items()}

    @property
    def labels(self) -> Tensor:
        """(N,) of the ID split."""
        return self.split.labels

    def row(self, ood: str) -> dict[str, Any]:
        """One flat record for one OOD set, as tables and JSON files hold it."""
        if ood not in self.ood:
            raise InputError(f"no OOD set {ood!r} was evaluated; there are: {', '.join(self.ood)}")
        named = {
            f"{metric}_{kind}": value
            for kind in ("aleatoric", "epistemic")
            for metric, value in self.ood[ood][kind].items()
        }
        return {"method": self.method, "ood": ood, **self.classification, **named}

    def section(self, absent: Iterable[str] = ()) -> dict[str, Any]:
        """A section of `metrics.json`: `id`, `scores`, `ood`, `absent`, and `detectors` if any.

        Args:
            absent: names of OOD sets that are known and not here.
        """
        section = {
            "id": {**to_plain(SplitFacts.of(self.split, len(self.scored))), **self.classification},
            "scores": self.scores,
            "ood": {
                name: {
                    **to_plain(SplitFacts.of(self.ood_splits[name], len(self.ood_scored[name]))),
                    **numbers,
                }
                for name, numbers in self.ood.items()
            },
            "absent": sorted(absent),
        }
        return section | ({"detectors": self.detectors} if self.detectors else {})


def evaluate(
    model: Model,
    test: AnySplit,
    ood: Mapping[str, AnySplit] | None = None,
    detectors: Sequence[Detector] = (),
    *,
    progress: bool | None = False,
    device: str | torch.device | None = None,
) -> Evaluation:
    """Accuracy and calibration on `test`, and OOD detection against each set of `ood`.

    The model is asked once for each split, and again by detectors that need gradients. A stream is
    read once, and one number for each input and score is what is kept of it.

    Args:
        model: a trained model.
        test: an ID split of role test (or validation).
        ood: named sets of role ood-test or ood-validation, such as `{"svhn": split}`.
        detectors: fitted, as `fit_detectors` returns them.
        progress: a bar for the detectors: yes, no, or (None) if standard error is a terminal.
        device: where to compute, and where the model is afterwards. Defaults to where it is.
    """
    place(model, device)
    ood = {} if ood is None else ood
    if not isinstance(ood, Mapping):
        raise InputError(f"ood must map names to splits, got {type(ood).__name__}")
    require_role(test, (Role.TEST, Role.VALIDATION), "evaluation as ID data")
    for split in ood.values():
        require_role(split, (Role.OOD_TEST, Role.OOD_VALIDATION), "evaluation as OOD data")
    model.require_finished("an evaluation")
    named, judged = model.head.named_scores, {}
    numbers: dict[str, dict[str, Any]] = {}
    with _bar([test, *ood.values()], detectors, progress) as bar:
        inside = score_split(model, test, detectors, bar)
        varied = [name for name, values in inside.by_score.items() if (values != values[0]).any()]
        for key, split in ood.items():
            outside = score_split(model, split, detectors, bar)
            judged[key] = outside
            by_score = detection(inside.by_score, outside.by_score)
            numbers[key] = {kind: by_score[name] for kind, name in named.items()}
            numbers[key]["by_score"] = {name: by_score[name] for name in varied}
            if detectors:
                numbers[key]["by_detector"] = detection(inside.by_detector, outside.by_detector)
    model.warn_of_scale(test)
    assert inside.answers is not None  # noqa: S101 - ID data have labels
    return Evaluation(
        method=model.head.info.name,
        scores=named,
        classification=inside.answers.metrics(),
        ood=numbers,
        detectors=detector_facts(detectors),
        split=test,
        ood_splits=ood,
        scored=inside,
        ood_scored=judged,
    )


def score_split(
    model: Model, split: AnySplit, detectors: Iterable[Detector] = (), bar: tqdm[Any] | None = None
) -> ScoredSplit:
    """Every score of every input of a split.

    Args:
        model: trained.
        split: of any role.
        detectors: fitted.
        bar: of progress, in inputs.
    """
    bar = tqdm(disable=True) if bar is None else bar
    bar.set_postfix_str(split.name)
    detectors = list(detectors)
    parts = []
    for part in shared_out(lambda share: _scored(evaluating(model), split, detectors, share)):
        parts.append(part)
        bar.update(len(detectors) * len(part))
    return ScoredSplit.cat(parts, detectors)


def _scored(
    model: Model, split: AnySplit, detectors: Sequence[Detector], share: Share
) -> Iterator[ScoredSplit]:
    """A part for each batch."""
    for x, seen in looks(model, split, share=share):
        belief = seen.belief
        names = dict.fromkeys([*scores.available(belief), *model.head.named_scores.values()])
        by_detector = {
            detector.info.name: detector.score_batch(model, x)
            if detector.needs == "inputs"
            else detector.score_observed(seen)
            for detector in detectors
        }
        yield ScoredSplit(
            {name: scores.SCORES[name](belief) for name in names},
            by_detector,
            None if seen.y is None else metrics.Answers.of(belief.log_probs(), seen.y),
            seen if isinstance(split, Split) else None,
        )


def detection(inside: Mapping[str, Any], outside: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """How well each score, by name, tells an OOD set or a corrupted one from the ID set."""
    return {name: metrics.ood_metrics(values, outside[name]) for name, values in inside.items()}


def fit_detectors(
    model: Model, names: Collection[str], train: AnySplit, validation: AnySplit
) -> list[Detector]:
    """Detectors with their default settings, fitted on what a trained model makes of the data.

    `names` are of `DETECTORS`, or `all` for those that suit the model; one that is named and does
    not is an error.
    """
    require_role(train, (Role.TRAIN,), "fitting detectors as training data")
    require_role(validation, (Role.VALIDATION,), "fitting detectors as validation data")
    wanted = [DETECTORS[name]() for name in detector_names(names)]
    if not wanted:
        return []
    belief = observe(model, validation.first(1)).belief
    reasons = [detector.missing(belief) for detector in wanted]
    if any(reasons) and ALL not in names:
        raise InputError("; ".join(filter(None, reasons)))
    fitted = [detector for detector, reason in zip(wanted, reasons, strict=True) if reason is None]
    fit_together(fitted, model, train, validation)
    return fitted


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


def _bar(splits: Iterable[AnySplit], detectors: Sequence[Detector], show: bool | None) -> tqdm[Any]:
    if not detectors or show is False:
        return tqdm(disable=True)
    total = len(detectors) * sum(map(len, splits))
    hidden = None if show is None else not show
    return tqdm(total=total, desc="detectors", unit="input", disable=hidden, leave=False)
