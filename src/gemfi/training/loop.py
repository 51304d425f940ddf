"""The one training loop. It knows heads, splits and checkpoints, and no method by name."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from gemfi import metrics, spectral
from gemfi.backbones import Identity, cannot_learn, is_frozen
from gemfi.data import Split
from gemfi.errors import CheckpointError, NonFiniteLossError
from gemfi.interrupt import graceful_interrupt
from gemfi.methods.base import DataFacts, Progress
from gemfi.model import Model
from gemfi.outliers import OutlierConfig
from gemfi.randomness import OwnGenerator, derived_seed
from gemfi.training.checkpoint import Checkpoint, RunState, fingerprint, optimizer_tensors
from gemfi.training.checks import check_run, usable_outliers
from gemfi.training.config import TrainConfig
from gemfi.training.features import FeatureBatches, featurised
from gemfi.training.objective import NonFiniteFeaturesError, Objective, make_optimizer
from gemfi.training.result import FitResult, mean_history
from gemfi.training.run_data import RunData, batches_per_epoch, drawn_split, epoch_rows
from gemfi.training.run_dir import CHECKPOINT, FEATURES, LOG, MEMBER, RunLog, lock_run_dir


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
        cache: the folder for features of a frozen backbone, which runs can share. Defaults to
            `features` below `run_dir`, and to memory where there is none.
        locked: the caller is inside `lock_run_dir(run_dir)`; otherwise `fit` locks it itself.
        progress: a progress bar: yes, no, or (None) if standard error is a terminal.
        label: what the progress bar calls the run.
    """
    check_run(model, train, validation, auxiliary, config)
    data = RunData.of(train, validation, auxiliary, sample_weight, validation_weight)
    model.inputs = model.inputs.trained_on(train)
    folder = None if run_dir is None else Path(run_dir)
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        contextlib.nullcontext() if locked or folder is None else lock_run_dir(folder),
        graceful_interrupt() as interrupted,
    ):
        label = model.head.info.name if label is None else label
        cache = folder and folder / FEATURES if cache is None else Path(cache)
        run = _Run(model, data, config, outliers, folder, cache, interrupted, progress, label)
        return run.go()


class _Run:
    """A run from its first session to its end.

    Args:
        model: what the user gave. On the features of a frozen backbone its head alone is trained.
        data: of the run.
        config: how to train.
        outliers: the user's, or None for the head's own.
        run_dir: where checkpoint and log go, or None.
        cache: where features of a frozen backbone go, or None.
        interrupted: set by the first Ctrl-C or SIGTERM.
        progress: as of `fit`.
        label: likewise.
    """

    def __init__(
        self,
        model: Model,
        data: RunData,
        config: TrainConfig,
        outliers: OutlierConfig | None,
        run_dir: Path | None,
        cache: Path | None,
        interrupted: threading.Event,
        progress: bool | None,
        label: str,
    ) -> None:
        self.user_model, self.data, self.config = model, data, config
        self.run_dir, self.cache = run_dir, cache
        self.interrupted, self.progress, self.label = interrupted, progress, label
        frozen, augments = is_frozen(model.backbone), not config.augmentation.is_nothing
        self.features_once = frozen and not augments
        self.model = model
        if self.features_once:
            self.model = Model(Identity(model.head.num_features), model.head)
        outliers = model.head.outliers if outliers is None else outliers
        outliers, self.notes = usable_outliers(model, outliers, data.auxiliary)
        if frozen and augments:
            self.notes.append(
                "the frozen backbone ran in every step: images are augmented, and features with "
                "them"
            )
        self.objective = Objective(self.model, outliers, bf16=config.bf16)
        self.optimizer = make_optimizer(self.model, config)
        self.batches = batches_per_epoch(len(data.train), config.batch_size)
        self.steps = self.batches * config.epochs
        self.generator = torch.Generator()  # of augmentation and outliers
        self.torch_generator = OwnGenerator(config.seed)  # of dropout
        self.state = RunState()
        self.best: dict[str, Tensor] = {}
        self.resumed_at: int | None = None
        self.saved_at: int | None = None
        self.log = RunLog(None if run_dir is None else run_dir / LOG)
        self.fingerprint: dict[str, Any] = {}
        if run_dir is not None:
            self.fingerprint = fingerprint(self.objective, config, model) | data.fingerprint()

    def go(self) -> FitResult:
        """Train to the end from wherever the run stands."""
        self._begin()
        if not self.state.finished:
            members = self.user_model.members()
            if members:
                self._train_members(members)
            else:
                self._train()
            self._finish()
            if self.interrupted.is_set():
                raise KeyboardInterrupt
        self.user_model.eval()
        return FitResult(
            steps=self.state.step,
            seconds=self.state.seconds,
            history=self.log.epochs,
            best_epoch=self.state.best_epoch,
            notes=self.state.notes,
            resumed_at=self.resumed_at,
        )

    def _begin(self) -> None:
        drawn = drawn_split(self.data.train, self.data.train_weight, self.config.seed)
        self.model.head.prepare(DataFacts(drawn.class_counts, self.steps))
        path = self._checkpoint_path()
        if path is not None and path.exists():
            self._restore(path)
            return
        self.generator.manual_seed(self.config.seed + 1)
        self.log.rewind(-1, finished=False)
        self._save()

    # -- training -------------------------------------------------------------------------------

    def _train(self) -> None:
        if self.features_once:
            started = time.perf_counter()
            self.data = featurised(
                self.user_model, self.data, self.cache, self.interrupted, self.progress
            )
            self.state.seconds += time.perf_counter() - started
        bar = tqdm(
            total=self.steps,
            initial=self.state.step,
            desc=self.label,
            unit="step",
            disable=None if self.progress is None else not self.progress,
            leave=False,
        )
        with bar:
            while self._has_epochs_left():
                self._epoch(bar)

    def _has_epochs_left(self) -> bool:
        ended = self.state.step // self.batches
        patience, best = self.config.patience, self.state.best_epoch
        impatient = patience is not None and best is not None and ended - 1 - best >= patience
        return ended < self.config.epochs and not impatient

    def _epoch(self, bar: Any) -> None:
        state, config = self.state, self.config
        epoch, done = divmod(state.step, self.batches)
        order = epoch_rows(self.data.train.labels, self.data.train_weight, config.seed, epoch)
        started = time.perf_counter()
        self.model.train()
        for index in range(done, self.batches):
            rows = order[index * config.batch_size : (index + 1) * config.batch_size]
            with self.torch_generator.in_place():
                terms = self._step(rows)
            took, started = time.perf_counter() - started, time.perf_counter()
            state.seconds += took
            state.epoch_seconds += took
            bar.update()
            if bar.n % 10 == 0:
                bar.set_postfix({name: f"{value:.3g}" for name, value in terms.items()})
            if index + 1 < self.batches:  # the end of the epoch has work of its own to save
                self._pause(due=self._is_save_step())
        self._end_epoch(epoch, bar)
        self._pause(due=config.checkpoint_steps is None or self._is_save_step())

    def _step(self, rows: Tensor) -> dict[str, float]:
        """One optimiser step on some rows; returns the terms of the loss."""
        data, at = self.data, Progress(self.state.step, self.steps)
        x = self._augmented(data.train.x[rows])
        auxiliary = self._auxiliary_batch(len(rows))
        try:
            terms = self.objective(x, data.train.labels[rows], auxiliary, at, self.generator)
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
        return values

    def _auxiliary_batch(self, count: int) -> Tensor | None:
        auxiliary = self.data.auxiliary
        if auxiliary is None:
            return None
        wanted = max(1, round(self.objective.outliers.ratio * count))
        rows = torch.randint(len(auxiliary), (wanted,), generator=self.generator)
        return self._augmented(auxiliary.x[rows])

    def _augmented(self, x: Tensor) -> Tensor:
        augmentation = self.config.augmentation
        return x if augmentation.is_nothing else augmentation(x, self.generator)

    def _end_epoch(self, epoch: int, bar: Any) -> None:
        state, validation = self.state, self.data.validation
        means = {name: value / self.batches for name, value in state.sums.items()}
        record: dict[str, Any] = {
            "step": state.step,
            "epoch": epoch,
            "loss": sum(means.values()),
            "terms": means,
            "learning_rate": self.config.rate((state.step - 1) / self.steps),
            "seconds": round(state.epoch_seconds, 3),
        }
        if validation is not None:
            with self.torch_generator.in_place():
                record |= judge(self.model, validation, self.data.validation_weight)
            nll = record["validation_nll"]
            if self.config.select == "best" and (state.best_nll is None or nll < state.best_nll):
                state.best_nll, state.best_epoch = nll, epoch
                self.best = {key: value.clone() for key, value in self.model.state_dict().items()}
            bar.set_description_str(f"{self.label} · val nll {nll:.3f}")
        state.sums, state.epoch_seconds = {}, 0.0
        self.log.write(**record)

    def _train_members(self, members: list[Model]) -> None:
        """Train each as a run of its own; this run has no step until all have ended."""
        results: list[FitResult] = []
        for index, member in enumerate(members):
            if self.interrupted.is_set():
                raise KeyboardInterrupt
            folder = None if self.run_dir is None else self.run_dir / f"{MEMBER}{index}"
            result = fit(
                member,
                self.data.train,
                self.data.validation,
                replace(self.config, seed=member_seed(self.config.seed, index, len(members))),
                sample_weight=self.data.train_weight,
                validation_weight=self.data.validation_weight,
                run_dir=folder,
                cache=self.cache,
                progress=self.progress,
                label=f"{self.label} {index + 1}/{len(members)}",
            )
            if len(result.history) * self.batches != result.steps:
                raise CheckpointError(
                    f"{folder} has a checkpoint without its whole {LOG}; delete that folder to "
                    "train the member again"
                )
            results.append(result)
        self.state.step = self.steps
        self.state.seconds = sum(result.seconds for result in results)
        if self.config.select == "best":
            epochs = ", ".join(str(r.best_epoch + 1) for r in results if r.best_epoch is not None)
            self.notes.append(f"each member keeps its best epoch: after {epochs}")
        for record in mean_history([result.history for result in results]):
            self.log.write(**record)

    def _finish(self) -> None:
        """Take the best epoch, fit the statistics, and save for the last time."""
        state, config = self.state, self.config
        if self.best:
            self.model.load_state_dict(self.best)
        spectral.refresh(self.model.head if cannot_learn(self.model.backbone) else self.model)
        started = time.perf_counter()
        with torch.no_grad(), self.torch_generator.in_place():
            self.model.eval()
            train, validation = (
                None if split is None else FeatureBatches(self.model, split)
                for split in self.data.for_statistics(config.seed)
            )
            assert train is not None  # noqa: S101 - a run has training data
            fitted = self.model.head.fit_statistics(train, validation)
        state.seconds += time.perf_counter() - started
        ended = state.step // self.batches
        if state.best_epoch is not None and ended < config.epochs:
            self.notes.append(
                f"training stopped after {ended} of {config.epochs} epochs: validation NLL was "
                f"best after {state.best_epoch + 1}, and that epoch is kept"
            )
        state.notes += [*self.notes, *self.model.head.notes(), *fitted]
        state.finished, self.best = True, {}
        self.log.write(step=state.step, finished=True, notes=state.notes)
        self._save()

    def _non_finite(self, term: str, value: float) -> NonFiniteLossError:
        where = f"step {self.state.step} (epoch {self.state.step // self.batches})"
        saved = "no checkpoint was kept: give run_dir= to have one"
        if self.run_dir is not None:
            path = self._checkpoint_path()
            saved = f"the last good checkpoint is {path} (step {self.saved_at})"
        return NonFiniteLossError(
            f"training stopped: {term} is {value} at {where}; {saved}. A smaller learning rate "
            f"(now {self.config.learning_rate:g}) is the usual remedy"
        )

    # -- checkpoints ----------------------------------------------------------------------------

    def _checkpoint_path(self) -> Path | None:
        return None if self.run_dir is None else self.run_dir / CHECKPOINT

    def _is_save_step(self) -> bool:
        every = self.config.checkpoint_steps
        return every is not None and self.state.step % every == 0

    def _pause(self, *, due: bool) -> None:
        """Between steps: save where due, and leave where a signal asked for it."""
        if due or self.interrupted.is_set():
            self._save()
        if self.interrupted.is_set():
            raise KeyboardInterrupt

    def _save(self) -> None:
        path = self._checkpoint_path()
        if path is None:
            return
        groups = {
            "step": self.objective.state_dict(),
            "optimizer": optimizer_tensors(self.optimizer),
            "generators": {
                "torch": self.torch_generator.state,
                "run": self.generator.get_state(),
            },
            "best": self.best,
        }
        Checkpoint(path, self.state, self.fingerprint, groups).save()
        self.saved_at = self.state.step

    def _restore(self, path: Path) -> None:
        checkpoint = Checkpoint.load(path)
        checkpoint.check_fingerprint(self.fingerprint)
        checkpoint.check_state(self.config.epochs, self.batches)
        checkpoint.restore(self.objective, self.optimizer)
        self.state, self.best = checkpoint.state, checkpoint.groups["best"]
        self.torch_generator.state = checkpoint.groups["generators"]["torch"]
        self.generator.set_state(checkpoint.groups["generators"]["run"])
        self.resumed_at = self.saved_at = self.state.step
        self.log.rewind(self.state.step, finished=self.state.finished)
        begun = self.state.step > 0 or bool(self.user_model.members())
        self.state.note_threads(path, begun=begun)


def judge(model: Model, split: Split, weight: Tensor | None) -> dict[str, Any]:
    """NLL and accuracy in percent and, of a mixture, the mean weights of its heads.

    Args:
        model: to ask.
        split: validation data.
        weight: (N,) of its rows in NLL and accuracy; None where all count alike.
    """
    belief = model.predict(split.x)
    log_p, labels = belief.log_probs(), split.labels
    if weight is None:
        nll, accuracy = metrics.nll(log_p, labels), metrics.accuracy(log_p.exp(), labels)
    else:
        share, of_label = weight / weight.sum(), log_p[torch.arange(len(labels)), labels]
        nll = -float((share * of_label)[share > 0].sum())  # 0·(−inf) is none
        accuracy = 100.0 * float(share @ (log_p.argmax(dim=1) == labels).double())
    record: dict[str, Any] = {"validation_nll": nll, "validation_accuracy": accuracy}
    if belief.log_weight.shape[1] > 1:
        record["router"] = belief.log_weight.exp().mean(dim=0).tolist()
    return record


def member_seed(seed: int, index: int, count: int) -> int:
    """A seed of its own for each member of an ensemble, and no other ensemble's."""
    return derived_seed(f"{seed}:{count}:{index}")
