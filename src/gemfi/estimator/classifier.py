"""GEMClassifier: any method of gemfi as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np
import sklearn
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted
from torch import nn

from gemfi._config import check_choice, check_int, check_number
from gemfi._files import require_module
from gemfi.answers import uncertainty_columns
from gemfi.belief import Belief
from gemfi.bundle import save
from gemfi.decisions import Decisions, Goal, Policy, Readings, least_samples, read_belief
from gemfi.errors import GemfiWarning, InputError
from gemfi.estimator.inputs import (
    Array,
    ClassWeight,
    Floats,
    Reading,
    Scaling,
    check_training,
    chunks,
    encoded_labels,
    total_weight,
    without_torch,
)
from gemfi.estimator.training import (
    FEWEST,
    Parts,
    Samples,
    Training,
    build,
    choose_budget,
    choose_paces,
    choose_threads,
    limited_threads,
    split_parts,
)

T = TypeVar("T")

_DOUBT: Final = "max_prob"  # how uncertain a label is, for decisions


class GEMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A neural classifier that says how certain it is, and of what kind its uncertainty is.

        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> classifier = GEMClassifier(random_state=0).fit(x, y)
        >>> classifier.decide(x[:1])[0].verdict
        <Verdict.ACCEPT: 0>

    `fit` standardises columns (or channels of images) and holds two parts out: one to validate, for
    the number of epochs and the temperature of the probabilities, one to calibrate `decide`, for
    nothing else. Then it trains again on all but the latter, with as much learning in all (with
    `patience=None` it does not). Each part is a tenth of the samples or 4·√N, whichever is less,
    and at least 20, in proportion to the classes. With fewer than 100 samples nothing is held out:
    there is no temperature, the last epoch is kept, and `decide` needs `calibrate` first. A
    fraction of 0 holds nothing out either. See docs/estimator.md.

    No global random state is changed, and fits in several threads of one process take turns and
    give what each gives alone.

    Args:
        method: a name in `METHODS`.
        backbone: a name in `BACKBONES`, or a module that returns (B, D), of which a copy is
            trained.
        backbone_options: of a backbone given by name, such as `{"width": 256}`.
        preprocessor: a transformer of scikit-learn for X, of which a copy is fitted on training
            samples. Not needed for scales, categories and missing values.
        config: the method's configuration; None for its default, for rows with
            `density_space="raw"`, so that rows far from the data are unfamiliar.
        epochs: passes over the training data; None for as many as `max_steps` allows.
        max_steps: optimiser steps, at least one epoch; None for 5·N^0.7, from 60 to 3,000.
        batch_size: samples a step; None for N/16, rounded to a power of two from 16 to 256.
        patience: stop when so many epochs have not had a better validation NLL, and keep the best;
            None runs all epochs and keeps the last.
        class_weight: None, `balanced`, or weights by class, 1 where it names none; it multiplies
            `sample_weight`.
        learning_rate: the largest; it falls to zero along a cosine. None, with `weight_decay`
            None, tries two paces on rows and keeps one; 2·10⁻³ for images and where nothing is
            held out.
        weight_decay: of AdamW; None as above, or 10⁻⁴.
        validation_fraction: share that is held out; None chooses it.
        calibration_fraction: likewise, for decisions.
        n_threads: of torch, during the fit; None for one where X is rows and the network small,
            and for torch's own setting elsewhere.
        device: where to train: `auto`, or a name such as `cuda`; answers are computed on the CPU.
        random_state: an integer, a `RandomState`, or None for another result each time.
        verbose: 0 is silent, 1 shows a progress bar.

    Attributes:
        classes_: (C,) the labels.
        n_features_in_: columns of X, or channels of images.
        feature_names_in_: names of the columns, where X had some.
        n_iter_: epochs that were run.
        best_epoch_: the one that was kept, counted from 0; None for the last.
        n_steps_: optimiser steps.
        reading_: the fitted preprocessor, and the columns of a mixed table.
        model_: the trained `Model`, in float64; it takes what `reading_` makes of X.
        log_temperature_: log T of the probabilities, which `model_` has too.
        calibration_: what `decide` knows of its calibration data, or None.
        history_: a record an epoch of the training that chose the number of epochs.
        notes_: what was left out, in plain words.
    """

    def __init__(
        self,
        method: str = "gem-fi",
        *,
        backbone: str | nn.Module = "mlp",
        backbone_options: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        config: Any = None,
        epochs: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        patience: int | None = 10,
        class_weight: ClassWeight = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        validation_fraction: float | None = None,
        calibration_fraction: float | None = None,
        n_threads: int | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.backbone_options = backbone_options
        self.preprocessor = preprocessor
        self.config = config
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.patience = patience
        self.class_weight = class_weight
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.calibration_fraction = calibration_fraction
        self.n_threads = n_threads
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    classes_: Array
    calibration_: Readings | None

    # -- learning -------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on samples X with labels y.

        Args:
            X: rows (N, D) or images (N, C, H, W): an array, a data frame or a tensor. Of rows,
                some numbers may be missing, and columns of a data frame may hold categories.
            y: (N,) labels of any type, of at least two classes.
            sample_weight: (N,) how often training draws each sample: 2 is a sample twice, 0 leaves
                it out. `decide` counts each calibration sample once: a copy proves nothing.
        """
        for name in ("epochs", "max_steps", "batch_size", "patience", "n_threads"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1)
        for name in ("validation_fraction", "calibration_fraction"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 0, below=0.5)
        given, names = check_training(self, X, y)
        classes, labels = encoded_labels(names)
        sample_weight = without_torch(sample_weight, "sample_weight")
        weight = total_weight(sample_weight, self.class_weight, names)
        samples, self.classes_ = Samples(given, labels, weight).without_zeros(classes)
        if self.random_state is None:  # numpy's global state is left alone
            seed = int(np.random.default_rng().integers(1 << 31))
        else:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        parts = split_parts(
            samples.labels, self.validation_fraction, self.calibration_fraction, seed
        )
        self.reading_, x = Reading.fit(
            self.preprocessor, samples.x, self.classes_[samples.labels], parts.train
        )
        with torch.inference_mode(mode=False):  # the weights have to be able to learn
            self._fit(replace(samples, x=x), parts, seed)
        return self

    def _fit(self, samples: Samples, parts: Parts, seed: int) -> None:
        scaling = Scaling.of(samples.x[parts.train], self.reading_.columns)
        budget = choose_budget(
            len(parts.train),
            batch_size=self.batch_size,
            epochs=self.epochs,
            max_steps=self.max_steps,
        )
        fresh = partial(
            build,
            self.method,
            self.backbone,
            self.backbone_options,
            len(self.classes_),
            config=self.config,
            example=scaling.apply(samples.x[parts.train[:2]]),
            seed=seed,
        )
        bar, dimensions = bool(self.verbose), samples.x.ndim
        training = Training(
            fresh, samples, parts, scaling, budget, self.patience, seed, bar, self.device
        )
        paces = choose_paces(
            self.learning_rate, self.weight_decay, dimensions, len(parts.validation)
        )
        threads = self.n_threads or choose_threads(fresh(), budget.batch_size, dimensions)
        with limited_threads(threads):
            kept, self.notes_ = training.best(paces)
            # in float32 the last digits of a prediction would depend on the rest of its batch
            self.model_ = kept.model.cpu().double().eval()
            self.model_.input_mean = torch.from_numpy(scaling.mean)
            self.model_.input_std = torch.from_numpy(scaling.std)
            self.log_temperature_ = kept.log_temperature
            if len(parts.validation):
                self.model_.set_temperature(self.log_temperature_)
            known = samples.rows(parts.calibration)
            self.calibration_ = self._readings(known.x, known.labels) if len(known) else None
        self.history_, self.best_epoch_ = kept.result.history, kept.result.best_epoch
        self.n_iter_, self.n_steps_ = len(self.history_), self.history_[-1]["step"]

    def calibrate(self, X: Any, y: Any) -> Self:
        """Let `decide` rest on samples that `fit` has not seen, of the known classes."""
        x = self._read(X)
        known = {label: index for index, label in enumerate(self.classes_.tolist())}
        given = column_or_1d(without_torch(y)).tolist()
        check_consistent_length(x, given)
        unknown = [label for label in given if label not in known]
        if unknown:
            raise InputError(
                f"label {unknown[0]!r} is none of the {len(known)} classes that this classifier "
                "was fitted on: leave samples of other classes out"
            )
        self.calibration_ = self._readings(x, np.array([known[label] for label in given]))
        return self

    # -- asking ---------------------------------------------------------------------------------

    def predict(self, X: Any) -> Array:
        """The most probable label (N,) of each sample."""
        best = self.predict_log_proba(X).argmax(axis=1)
        labels: Array = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (N, C), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the probabilities (N, C)."""
        beliefs = self._beliefs(self._read(X))
        return np.concatenate([belief.log_probs().numpy() for belief in beliefs])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of samples whose label is right: 0 to 1 as in scikit-learn, not percent."""
        return float(super().score(X, without_torch(y), sample_weight))

    def predict_uncertainty(self, X: Any) -> Any:
        """Every uncertainty that the method has, by name; higher is more uncertain in each column.

        `total` = `aleatoric` + `within` + `between` is the exact decomposition of the entropy
        before the temperature, and `epistemic` = `within` + `between`. Then come the scores of
        `SCORES` for which the method has what they need, such as `max_prob`, `evidence`, `energy`
        and `unfamiliarity`.

        Returns:
            Name -> (N,) array; a data frame with the index of X if X is one, or if `set_output`
            or scikit-learn's global `transform_output` asks for pandas.
        """
        pieces = [uncertainty_columns(belief) for belief in self._beliefs(self._read(X))]
        columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        default = sklearn.get_config()["transform_output"]
        output = getattr(self, "_sklearn_output_config", {}).get("transform", default)
        if not (hasattr(X, "iloc") or output == "pandas"):
            return columns
        pandas = require_module("pandas", "a data frame")
        return pandas.DataFrame(columns, index=getattr(X, "index", None))

    def set_output(self, *, transform: Literal["default", "pandas"] | None = None) -> Self:
        """Choose what `predict_uncertainty` returns: `pandas`, or what suits X (`default`)."""
        if transform is not None:
            check_choice("transform", transform, ("default", "pandas"))
            self._sklearn_output_config = {"transform": transform}  # the name that `clone` keeps
        return self

    def policy(
        self, goal: Goal | str | None = None, *, ood_validation: Any = None, **goals: Any
    ) -> Policy:
        """The policy of `decide` for a goal, whose labels are indices of `classes_`.

        Args:
            goal: a `Goal`, or a text as `Goal.parse` reads it; by default a false-alarm rate of
                5 %.
            ood_validation: unfamiliar samples to choose by, which the goals `youden` and `costs`
                need.
            goals: or its fields, such as `false_alarm=0.01, risk=0.02`.
        """
        check_is_fitted(self)
        if self.calibration_ is None:
            raise InputError(
                "decisions need calibration data, and none were held out: fit on "
                f"{FEWEST} samples or more with calibration_fraction above 0, or call "
                "calibrate(X, y) with samples that fit has not seen"
            )
        unknown = []
        if ood_validation is not None:
            with warnings.catch_warnings():  # they may well be on another scale
                warnings.simplefilter("ignore", GemfiWarning)
                unknown = [self._readings(self._read(ood_validation))]
        goal = Goal.of(goal, goals)
        policy = Policy.from_readings(self.calibration_, goal, ood_validation=unknown)
        return replace(policy, score=self._score, doubt=_DOUBT)

    def decide(self, X: Any, goal: Goal | str | None = None, **goals: Any) -> Decisions:
        """Accept, abstain or unfamiliar for each sample, by the `policy` for a goal."""
        x, policy = self._read(X), self.policy(goal, **goals)
        decisions = _joined([policy(belief) for belief in self._beliefs(x)])
        return replace(decisions, label=self.classes_[decisions.label])

    def save(self, path: Path | str, goal: Goal | str | None = None, **goals: Any) -> Path:
        """Write one file for `gemfi.load`, `gemfi predict` and `gemfi serve`; labels become texts.

        It holds the columns of a table with categories and missing values, but no `preprocessor`,
        and the `policy` for a goal; by default that of `decide`, if it can be kept.
        """
        check_is_fitted(self)
        if self.reading_.preprocessor is not None:
            raise InputError(
                f"a bundle cannot hold a {type(self.reading_.preprocessor).__name__}, and without "
                "it the model would be asked about other inputs: fit without preprocessor= "
                "(scales, categories and missing values need none), or keep the whole classifier "
                "with joblib.dump"
            )
        enough = self.calibration_ is not None and len(self.calibration_) >= least_samples(0.05)
        policy = self.policy(goal, **goals) if goal is not None or goals or enough else None
        return save(
            path,
            self.model_,
            calibration=self.calibration_,
            policy=policy,
            class_names=[str(label) for label in self.classes_],
            feature_names=getattr(self, "feature_names_in_", None),
            columns=self.reading_.columns,
            provenance={"estimator": type(self).__name__},
        )

    # -- within ---------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags

    def _read(self, X: Any) -> Array:
        check_is_fitted(self)
        return self.reading_.numbers(self, X)

    def _beliefs(self, x: Array) -> Iterator[Belief]:
        """Piece by piece, so that the memory for many samples is bounded."""
        return (self.model_.predict(torch.from_numpy(piece)) for piece in chunks(x))

    def _readings(self, x: Array, labels: Array | None = None) -> Readings:
        beliefs = self._beliefs(x)
        readings = _joined([read_belief(belief, self._score, _DOUBT) for belief in beliefs])
        return readings if labels is None else replace(readings, wrong=readings.label != labels)

    @property
    def _score(self) -> str:
        return str(self.model_.head.named_scores["epistemic"])


def _joined(parts: Sequence[T]) -> T:
    """One record of arrays from several of one kind, in order; what is None stays so."""
    first: Any = parts[0]
    arrays = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(first)
        if getattr(first, field.name) is not None
    }
    record: T = replace(first, **arrays)
    return record
