"""The one training loop. It knows heads, splits and checkpoints, and no method by name."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from gemfi import spectral
from gemfi.backbones import cannot_learn
from gemfi.data import Split
from gemfi.errors import CheckpointError, InputError, NonFiniteLossError
from gemfi.interrupt import graceful_interrupt
from gemfi.methods.base import DataFacts, Progress
from gemfi.model import Model
from gemfi.outliers import OutlierConfig
from gemfi.randomness import OwnGenerator
from gemfi.training import checkpoint, resuming
from gemfi.training.batches import Features, batches_per_epoch
from gemfi.training.checks import check_outliers, check_run
from gemfi.training.config import TrainConfig
from gemfi.training.feature_cache import (
    FOLDER,
    augmentation_notes,
    head_alone,
    keeps_features,
    kept_features,
    usable_outliers,
)
from gemfi.training.fingerprint import fingerprint
from gemfi.training.folder import CHECKPOINT, LOG, lock_run_dir
from gemfi.training.log import RunLog
from gemfi.training.members import MEMBER, mean_history, member_seed, members_notes
from gemfi.training.optimizer import make_optimizer
from gemfi.training.state import FitResult, RunState
from gemfi.training.step import NonFiniteFeaturesError, TrainingStep
from gemfi.training.validation import judge
from gemfi.training.weights import RowWeights, as_drawn, epoch_rows, row_weights


def fit(
    model: Model,
    train: Split,
    validation: Split | None = None,
    config: TrainConfig = TrainConfig(),  # noqa: B008 - frozen
    *,
    auxiliary: Split | None = None,
    outliers: OutlierConfig | None = None,
    sample_weight: Any = None,
    validation_weight: Any = None,
    run_dir: Path | str | None = None,
    cache: Path | str | None = None,
    locked: bool = False,
    progress: bool | None = None,
    label: str | None = None,
) -> FitResult:
    """Train a model in place, then fit its statistics.

    With a `run_dir` the run is resumable: called again with the same arguments it goes on from its
    checkpoint, bit for bit, and returns at once if it had finished. Ctrl-C and SIGTERM finish the
    step, save and raise KeyboardInterrupt. With another number of torch's threads than before it
    goes on as well, but warns, and says so in its notes: its weights are then its own.

    Runs in several threads take turns, step by step, and each gives the weights that it gives
    alone (see `gemfi.randomness`). `torch.no_grad` and `inference_mode` around it change nothing.

    The features of a `Frozen` backbone are computed once, in full precision, and its head trains on
    them; but with an augmentation the backbone runs in every step.

    Args:
        model: as `build_model` made it.
        train: a split of role `train`.
        validation: role `validation`; needed for `select="best"` and for scaling ρ.
        config: how to train.
        auxiliary: role `auxiliary`, real outliers for a method whose outliers are of that kind.
        outliers: overrides the head's own outliers.
        sample_weight: (N,) how often training samples are drawn: 2 is a sample twice, 0 never.
        validation_weight: (N,) of validation samples, in their NLL and in statistics.
        run_dir: where checkpoint and log go.
        cache: of a frozen backbone, the folder of its features, which runs can share; None for
            `features` below `run_dir`, and for memory where there is none.
        locked: the caller is inside `lock_run_dir(run_dir)`; otherwise `fit` locks it itself.
        progress: a progress bar: yes, no, or (None) if standard error is a terminal.
        label: what the progress bar calls the run.
    """
    check_run(model, train, validation, auxiliary, config)
    weights = row_weights(train, validation, sample_weight, validation_weight)
    model.sample_shape, model.sample_dtype = tuple(train.x.shape[1:]), train.x.dtype
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        contextlib.nullcontext() if locked or run_dir is None else lock_run_dir(Path(run_dir)),
        graceful_interrupt() as interrupted,
    ):
        splits = (train, validation, auxiliary)
        trainer = _Trainer(model, splits, weights, config, outliers, run_dir, cache)
        return trainer.run(interrupted, progress=progress, label=label or model.head.info.name)


class _Trainer:
    def __init__(
        self,
        model: Model,
        splits: tuple[Split, Split | None, Split | None],
        weights: RowWeights,
        config: TrainConfig,
        outliers: OutlierConfig | None,
        run_dir: Path | str | None,
        cache: Path | str | None,
    ) -> None:
        self.whole, self.config = model, config
        self.keeps = keeps_features(model, config)
        self.model = head_alone(model) if self.keeps else model  # what is trained
        self.train, self.validation, self.auxiliary = train, validation, auxiliary = splits
        self.weights = weights
        wanted = model.head.outliers if outliers is None else outliers
        wanted, self.notes = usable_outliers(model, wanted)
        self.notes += augmentation_notes(model, config)
        self.step = TrainingStep(self.model, wanted, bf16=config.bf16)
        check_outliers(model, self.step.outliers, auxiliary)
        self.batches = batches_per_epoch(len(train), config.batch_size)
        self.steps = self.batches * config.epochs
        self.optimizer = make_optimizer(self.model, config)
        self.generator = torch.Generator()  # of augmentation and outliers
        self.torch_generator = OwnGenerator(config.seed)  # of dropout
        self.state = RunState()
        self.best: dict[str, Tensor] = {}
        self.run_dir = None if run_dir is None else Path(run_dir)
        if self.run_dir is not None and self.run_dir.exists() and not self.run_dir.is_dir():
            raise InputError(f"run_dir {self.run_dir} is a file; give a folder")
        self.cache = Path(cache) if cache is not None else self.run_dir and self.run_dir / FOLDER
        self.log = RunLog(None if self.run_dir is None else self.run_dir / LOG)
        named = {"train": train, "validation": validation, "auxiliary": auxiliary}
        facts = (self.step, config, named, model, weights)
        self.fingerprint = {} if run_dir is None else fingerprint(*facts)
        self.label = ""
        self.resumed_at: int | None = None
        self.saved_at: int | None = None

    # -- the run --------------------------------------------------------------------------------

    def run(self, interrupted: threading.Event, *, progress: bool | None, label: str) -> FitResult:
        self.label = label
        self._begin()
        if not self.state.finished:
            members = self.whole.members()
            if members:
                self._members(members, interrupted, progress)
            else:
                self._keep_features(interrupted, progress)
                self._epochs(interrupted, progress)
            self._finish()
            if interrupted.is_set():
                raise KeyboardInterrupt
        self.whole.eval()
        return FitResult(
            steps=self.state.step,
            seconds=self.state.seconds,
            history=[record for record in self.log.records if "loss" in record],
            best_epoch=self.state.best_epoch,
            notes=self.state.notes,
            resumed_at=self.resumed_at,
        )

    def _keep_features(self, interrupted: threading.Event, progress: bool | None) -> None:
        """Put the features of a frozen backbone in the place of the inputs."""
        if not self.keeps:
            return
        started = time.perf_counter()
        splits = (self.train, self.validation, self.auxiliary)
        kept = kept_features(self.whole, splits, self.cache, interrupted, progress)
        self.train, self.validation, self.auxiliary = kept[0] or self.train, *kept[1:]
        self.state.seconds += time.perf_counter() - started

    def _epochs(self, interrupted: threading.Event, progress: bool | None) -> None:
        bar = tqdm(
            total=self.steps,
            initial=self.state.step,
            desc=self.label,
            unit="step",
            disable=None if progress is None else not progress,
            leave=False,
        )
        with bar:
            while self.state.epochs_left(self.config, self.batches):
                self._epoch(bar, interrupted)

    def _members(
        self, members: list[Model], interrupted: threading.Event, progress: bool | None
    ) -> None:
        """Train each as a run of its own; this run has no step until all have ended."""
        results = []
        for index, member in enumerate(members):
            if interrupted.is_set():
                raise KeyboardInterrupt
            seed = member_seed(self.config.seed, index, len(members))
            result = fit(
                member,
                self.train,
                self.validation,
                replace(self.config, seed=seed),
                sample_weight=self.weights.train,
                validation_weight=self.weights.validation,
                run_dir=None if self.run_dir is None else self.run_dir / f"{MEMBER}{index}",
                cache=self.cache,
                progress=progress,
                label=f"{self.label} {index + 1}/{len(members)}",
            )
            if len(result.history) * self.batches != result.steps:
                raise CheckpointError(
                    f"{self.run_dir}/{MEMBER}{index} has a checkpoint without its whole {LOG}; "
                    "delete that folder to train the member again"
                )
            results.append(result)
        self.state.step = self.steps
        self.state.seconds = sum(result.seconds for result in results)
        self.notes += members_notes(self.config.select, [each.best_epoch for each in results])
        for record in mean_history([result.history for result in results]):
            self.log.write(**record)

    def _begin(self) -> None:
        path = self._path()
        drawn = as_drawn(self.train, self.weights.train, self.config.seed)
        self.model.head.prepare(DataFacts(drawn.class_counts, self.steps))
        if path is not None and path.exists():
            self._restore(path)
            return
        self.generator.manual_seed(self.config.seed + 1)
        if self.run_dir is not None:
            self.log.rewind(-1, finished=False)
        self._save()

    def _epoch(self, bar: Any, interrupted: threading.Event) -> None:
        epoch, done = divmod(self.state.step, self.batches)
        order = epoch_rows(self.train.labels, self.weights.train, self.config.seed, epoch)
        started = time.perf_counter()
        self.model.train()
        for index in range(done, self.batches):
            rows = order[index * self.config.batch_size : (index + 1) * self.config.batch_size]
            with self.torch_generator.in_place():
                self._one_step(rows, bar)
            now = time.perf_counter()
            self.state.count_seconds(now - started)
            started = now
            if index + 1 < self.batches:  # the end of the epoch has work of its own to save
                self._pause(interrupted, due=self._due())
        self._end_epoch(epoch, bar)
        self._pause(interrupted, due=self.config.checkpoint_steps is None or self._due())

    def _pause(self, interrupted: threading.Event, *, due: bool) -> None:
        """Between steps: save where due, and leave where a signal asked for it."""
        if due or interrupted.is_set():
            self._save()
        if interrupted.is_set():
            raise KeyboardInterrupt

    def _one_step(self, rows: Tensor, bar: Any) -> None:
        at = Progress(self.state.step, self.steps)
        try:
            terms = self.step(
                self._augmented(self.train.x[rows]),
                self.train.labels[rows],
                self._auxiliary_batch(len(rows)),
                at,
                self.generator,
            )
        except NonFiniteFeaturesError:
            raise self._non_finite("features", math.nan) from None
        values = {name: float(term.detach()) for name, term in terms.items()}
        for name, value in values.items():
            if not math.isfinite(value):
                raise self._non_finite(name, value)
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        if not bool(torch.isfinite(norm)):
            raise self._non_finite("gradient norm", float(norm))
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.rate(at.fraction)
        self.optimizer.step()
        self.state.step += 1
        for name, value in values.items():
            self.state.sums[name] = self.state.sums.get(name, 0.0) + value
        bar.update()
        if bar.n % 10 == 0:
            bar.set_postfix({name: f"{value:.3g}" for name, value in values.items()})

    def _end_epoch(self, epoch: int, bar: Any) -> None:
        means = {name: value / self.batches for name, value in self.state.sums.items()}
        record: dict[str, Any] = {
            "step": self.state.step,
            "epoch": epoch,
            "loss": sum(means.values()),
            "terms": means,
            "learning_rate": self.config.rate((self.state.step - 1) / self.steps),
            "seconds": round(self.state.epoch_seconds, 3),
        }
        if self.validation is not None:
            with self.torch_generator.in_place():
                record |= judge(self.model, self.validation, self.weights.validation)
            self._keep_best(epoch, record["validation_nll"])
            bar.set_description_str(f"{self.label} · val nll {record['validation_nll']:.3f}")
        self.state.sums, self.state.epoch_seconds = {}, 0.0
        self.log.write(**record)

    def _keep_best(self, epoch: int, nll: float) -> None:
        best = self.state.best_nll
        if self.config.select == "best" and (best is None or nll < best):
            self.state.best_nll, self.state.best_epoch = nll, epoch
            self.best = {key: value.clone() for key, value in self.model.state_dict().items()}

    def _finish(self) -> None:
        if self.best:
            self.model.load_state_dict(self.best)
        spectral.refresh(self.model.head if cannot_learn(self.model.backbone) else self.model)
        started = time.perf_counter()
        with torch.no_grad(), self.torch_generator.in_place():
            self.model.eval()
            notes = self.model.head.fit_statistics(*self._statistics())
        self.state.seconds += time.perf_counter() - started
        ended = self.state.early_end(self.config, self.batches)
        notes = [*self.state.notes, *self.notes, *ended, *self.model.head.notes(), *notes]
        self.state.notes, self.state.finished, self.best = notes, True, {}
        self.log.write(step=self.state.step, finished=True, notes=notes)
        self._save()

    def _statistics(self) -> tuple[Features, Features | None]:
        """The features of training and validation data that statistics are fitted on."""
        seed, held = self.config.seed, self.validation
        held = held and as_drawn(held, self.weights.validation, seed)
        seen = Features(self.model, as_drawn(self.train, self.weights.train, seed))
        return seen, None if held is None else Features(self.model, held)

    def _auxiliary_batch(self, count: int) -> Tensor | None:
        if self.auxiliary is None:
            return None
        wanted = max(1, round(self.step.outliers.ratio * count))
        rows = torch.randint(len(self.auxiliary), (wanted,), generator=self.generator)
        return self._augmented(self.auxiliary.x[rows])

    def _augmented(self, x: Tensor) -> Tensor:
        augmentation = self.config.augmentation
        return x if augmentation.is_nothing else augmentation(x, self.generator)

    def _non_finite(self, term: str, value: float) -> NonFiniteLossError:
        where = f"step {self.state.step} (epoch {self.state.step // self.batches})"
        saved = "no checkpoint was kept: give run_dir= to have one"
        if self.run_dir is not None:
            saved = f"the last good checkpoint is {self._path()} (step {self.saved_at})"
        return NonFiniteLossError(
            f"training stopped: {term} is {value} at {where}; {saved}. A smaller learning rate "
            f"(now {self.config.learning_rate:g}) is the usual remedy"
        )

    # -- checkpoints ----------------------------------------------------------------------------

    def _path(self) -> Path | None:
        return None if self.run_dir is None else self.run_dir / CHECKPOINT

    def _due(self) -> bool:
        every = self.config.checkpoint_steps
        return every is not None and self.state.step % every == 0

    def _save(self) -> None:
        path = self._path()
        if path is None:
            return
        groups = {
            "step": self.step.state_dict(),
            "optimizer": resuming.optimizer_tensors(self.optimizer),
            "generators": {
                "torch": self.torch_generator.state,
                "run": self.generator.get_state(),
            },
            "best": self.best,
        }
        snapshot = checkpoint.Snapshot(asdict(self.state), self.fingerprint, groups)
        checkpoint.save_snapshot(path, snapshot)
        self.saved_at = self.state.step

    def _restore(self, path: Path) -> None:
        snapshot = checkpoint.load_snapshot(path)
        checkpoint.check_fingerprint(path, snapshot.fingerprint, self.fingerprint)
        self.state = resuming.check_state(path, snapshot, self.config.epochs, self.batches)
        resuming.restore(path, snapshot, self.step, self.optimizer)
        self.torch_generator.state = snapshot.groups["generators"]["torch"]
        self.generator.set_state(snapshot.groups["generators"]["run"])
        self.best = snapshot.groups["best"]
        self.resumed_at = self.saved_at = self.state.step
        self.log.rewind(self.state.step, finished=self.state.finished)
        begun = self.state.step > 0 or bool(self.whole.members())
        resuming.note_threads(path, self.state, begun=begun)
