"""The one training loop. It knows heads, splits and checkpoints, and no method by name."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from gemfi.backbones import Identity, is_frozen
from gemfi.data.splits import AnySplit, Rows, Share, require_use
from gemfi.devices import autocast_type, checked_every, device_of, on_host, place
from gemfi.errors import CheckpointError, InputError, NonFiniteLossError
from gemfi.finish import finish
from gemfi.interrupt import graceful_interrupt
from gemfi.model import Model
from gemfi.modes import evaluating
from gemfi.outliers import OutlierConfig
from gemfi.processes import (
    agree,
    any_process,
    in_turn,
    own_share,
    shared_by_processes,
)
from gemfi.randomness import derived_generator, derived_seed, forked_generator
from gemfi.synchronised import synchronised
from gemfi.training.checkpoint import Checkpoint, RunState, fingerprint, optimizer_tensors
from gemfi.training.checks import check_run, usable_outliers
from gemfi.training.config import TrainConfig
from gemfi.training.features import featurised
from gemfi.training.objective import Objective, make_optimizer
from gemfi.training.result import FitResult, mean_history
from gemfi.training.run_data import RunData, batches_per_epoch, drawn_split, training_order
from gemfi.training.run_dir import CHECKPOINT, FEATURES, LOG, MEMBER, RunLog, lock_run_dir

_JUDGED: Final = 512  # validation samples at a time


def fit(
    model: Model,
    train: AnySplit,
    validation: AnySplit | None = None,
    config: TrainConfig = TrainConfig(),  # noqa: B008 - frozen
    *,
    auxiliary: AnySplit | None = None,
    outliers: OutlierConfig | None = None,
    sample_weight: Any = None,
    validation_weight: Any = None,
    run_dir: Path | str | None = None,
    cache: Path | str | None = None,
    device: str | torch.device | None = None,
    locked: bool = False,
    progress: bool | None = None,
    label: str | None = None,
) -> FitResult:
    """Train a model in place, then fit its statistics.

    With a `run_dir` the run is resumable: called again with the same arguments it goes on from its
    checkpoint, bit for bit, and returns at once if it had finished. Ctrl-C and SIGTERM finish the
    step, save and raise KeyboardInterrupt. With another number of torch's threads than before it
    goes on as well, but warns, and says so in its notes: its weights are then its own. Data that
    come in an order of their own resume at the end of an epoch.

    Inside a process group (torchrun's, say) each process gives its share of every batch and ends
    with the same model; the first one writes. `run_dir` is then a folder that all of them see.

    Runs in several threads take turns, step by step, and each gives the weights that it gives
    alone (see `gemfi.randomness`). `torch.no_grad` and `inference_mode` around it change nothing.

    The features of a `Frozen` backbone are computed once, in full precision, and its head trains on
    them; but with an augmentation the backbone runs in every step.

    Args:
        model: as `build_model` made it.
        train: role `train`: a split, or a stream that `as_split` made of a data set or a loader.
        validation: role `validation`; needed for `select="best"` and for scaling ρ.
        config: how to train.
        auxiliary: role `auxiliary`, real outliers for a method whose outliers are of that kind.
        outliers: overrides the head's own outliers.
        sample_weight: (N,) how often training samples are drawn: 2 is a sample twice, 0 never.
        validation_weight: (N,) of validation samples, in their NLL and in statistics.
        run_dir: where checkpoint and log go.
        cache: the folder for features of a frozen backbone, which runs can share. Defaults to
            `features` below `run_dir`, and to memory where there is none.
        device: where to train, and where the model is afterwards: `auto`, or a name such as `cuda`.
            Defaults to where it is.
        locked: the caller is inside `lock_run_dir(run_dir)`; otherwise `fit` locks it itself.
        progress: a progress bar: yes, no, or (None) if standard error is a terminal.
        label: what the progress bar calls the run.
    """
    place(model, device)
    if config.batch_size is None:
        size = require_use(train, "training").batch_size
        config = replace(config, batch_size=size or config.samples_a_step)
    check_run(model, train, validation, auxiliary, config)
    data = RunData.of(train, validation, auxiliary, sample_weight, validation_weight)
    model.inputs = model.inputs.trained_on(train)
    folder = None if run_dir is None else Path(run_dir)
    free = locked or folder is None or own_share().rank > 0
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        contextlib.nullcontext() if free or folder is None else lock_run_dir(folder),
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
        self.interrupted, self.label = interrupted, label
        self.device, self.share = device_of(model), own_share()
        self.progress = progress if self.share.rank == 0 else False
        self.features_once = is_frozen(model.backbone) and not self._augments
        self.model = model
        if self.features_once:
            self.model = Model(Identity(model.head.num_features), model.head)
        outliers = model.head.outliers if outliers is None else outliers
        outliers, self.notes = usable_outliers(model, outliers, data.auxiliary)
        self.notes += self._notes_on_data()
        self.batch_size = config.samples_a_step
        self.batches = batches_per_epoch(len(data.train), self.batch_size, self.share.count)
        self.steps = self.batches * config.epochs
        drawn = drawn_split(data.train, data.train_weight, config.seed)
        self.objective = Objective(
            self.model,
            self.steps,
            class_counts=lambda: drawn.class_counts,
            outliers=outliers,
            precision=config.precision,
            compile=config.compile,
            seed=config.seed,
        )
        if config.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.step_loss: torch.nn.Module = self.objective
        if self.share.count > 1 and not model.members():
            self.step_loss = shared_by_processes(self.objective)
        self.optimizer = make_optimizer(self.model, config)
        scales = autocast_type(config.precision, self.device) is torch.float16
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scales)
        self.state = RunState()
        self.sums: dict[str, Tensor] = {}  # of the terms in this epoch, on the device
        self.best: dict[str, Tensor] = {}
        self.resumed_at: int | None = None
        self.saved_at: int | None = None
        self.log = RunLog(run_dir / LOG if run_dir is not None and self.share.rank == 0 else None)
        self.fingerprint: dict[str, Any] = {}
        if run_dir is not None:
            self.fingerprint = fingerprint(self.objective, config, model) | data.fingerprint()
            if self.share.count > 1:
                self.fingerprint["processes"] = self.share.count

    @property
    def _augments(self) -> bool:
        """Whether the backbone sees another form of an image in each epoch."""
        varies = any(split.is_random for split in (self.data.train, self.data.auxiliary) if split)
        return varies or not self.config.augmentation.is_nothing

    def _notes_on_data(self) -> list[str]:
        notes = []
        if is_frozen(self.user_model.backbone) and not self.features_once:
            notes.append(
                "the frozen backbone ran in every step: images are augmented, and features with "
                "them"
            )
        if not self.data.train.has_rows:
            notes.append(
                "the training data come in an order of their own: this run resumes at the end of "
                "an epoch, and repeats exactly if the data do"
            )
        return notes

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
        path = self._checkpoint_path()
        if path is not None and agree(path.exists):
            self._restore(path)
            return
        agree(lambda: self.log.rewind(-1, finished=False))
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
        order = training_order(
            self.data.train,
            self.data.train_weight,
            self.config.seed,
            self.batch_size,
            self.batches,
            self.state.step,
        )
        batches = self.data.train.read(order, self.share, pin=self.device.type == "cuda")
        with bar, synchronised(self.model), contextlib.closing(batches):  # type: ignore[type-var]
            while self._has_epochs_left():
                self._epoch(batches, bar)

    def _has_epochs_left(self) -> bool:
        ended = self.state.step // self.batches
        patience, best = self.config.patience, self.state.best_epoch
        impatient = patience is not None and best is not None and ended - 1 - best >= patience
        return ended < self.config.epochs and not impatient

    def _epoch(self, batches: Iterator[Any], bar: Any) -> None:
        state = self.state
        epoch, done = divmod(state.step, self.batches)
        started = time.perf_counter()
        self.model.train()
        for index in range(done, self.batches):
            x, y = next(batches)
            self._step(x, y)
            took, started = time.perf_counter() - started, time.perf_counter()
            state.seconds += took
            state.epoch_seconds += took
            bar.update()
            if bar.n % 10 == 0 and not bar.disable:
                terms = self.objective.terms.items()
                bar.set_postfix({name: f"{float(term):.3g}" for name, term in terms})
            if index + 1 < self.batches:  # the end of the epoch has work of its own to save
                self._pause(due=self._is_save_step())
        self._end_epoch(epoch, bar)
        self._pause(due=self.config.checkpoint_steps is None or self._is_save_step())

    def _step(self, x: Tensor, y: Tensor) -> None:
        """One optimiser step on some samples, in as many parts as `accumulate` says."""
        config, step = self.config, self.state.step
        draws = derived_generator(f"{config.seed}:{step}:{self.share.rank}:augmentation")
        self._check_labels(y)
        self.optimizer.zero_grad(set_to_none=True)
        with forked_generator(derived_seed(f"{config.seed}:{step}:{self.share.rank}"), self.device):
            parts = min(config.accumulate, len(x))
            for number, (inputs, labels) in enumerate(
                zip(x.tensor_split(parts), y.tensor_split(parts), strict=True)
            ):
                last = number == parts - 1
                self.objective.step = step
                hold = contextlib.nullcontext() if last else self._no_sync()
                with hold:
                    auxiliary = self._auxiliary_batch(len(inputs), number, draws)
                    loss = self.step_loss(self._prepared(inputs, draws), labels, auxiliary)
                    share = len(inputs) / len(x)
                    self._note_terms(share)
                    self._check_finite()
                    self.scaler.scale(loss if parts == 1 else share * loss).backward()
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_norm)
        self._check_finite(norm)
        for group in self.optimizer.param_groups:
            group["lr"] = config.rate(step / self.steps)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.state.step += 1

    def _no_sync(self) -> Any:
        """Gradients of a part stay in their process until the last part has its own."""
        if isinstance(self.step_loss, DistributedDataParallel):
            return self.step_loss.no_sync()
        return contextlib.nullcontext()

    def _check_labels(self, y: Tensor) -> None:
        """Streams were not looked at before."""
        with on_host():
            classes = self.model.head.num_classes
            if y.device.type == "cpu" and int(y.max()) >= classes:
                raise InputError(
                    f"split {self.data.train.name!r} has label {int(y.max())}, but the model has "
                    f"classes 0 to {classes - 1}"
                )

    def _auxiliary_batch(self, count: int, part: int, draws: torch.Generator) -> Tensor | None:
        auxiliary = self.data.auxiliary
        if auxiliary is None:
            return None
        wanted = max(1, round(self.objective.outliers.ratio * count))
        seed = f"{self.config.seed}:{self.state.step}:{part}:{self.share.rank}:auxiliary"
        rows = torch.randint(len(auxiliary), (wanted,), generator=derived_generator(seed))
        x, _ = next(iter(auxiliary.read([Rows(rows, seed)])))
        return self._prepared(x, draws)

    def _prepared(self, x: Tensor, draws: torch.Generator) -> Tensor:
        augmentation = self.config.augmentation
        x = x if augmentation.is_nothing else augmentation(x, draws)
        is_image = self.config.channels_last and x.ndim == 4
        return x.contiguous(memory_format=torch.channels_last) if is_image else x

    def _note_terms(self, share: float) -> None:
        for name, term in self.objective.terms.items():
            value = share * (term if term.device.type == "mps" else term.double())
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def _check_finite(self, norm: Tensor | None = None) -> None:
        """Stop where the loss or its gradient is not finite; not in every step of a GPU."""
        if (self.state.step + 1) % checked_every(self.device) or self.scaler.is_enabled():
            return
        with on_host():
            if norm is not None:
                if not bool(torch.isfinite(norm)):
                    raise self._non_finite("gradient norm", float(norm))
                return
            if not bool(self.objective.is_finite):
                raise self._non_finite("features", math.nan)
            for name, term in self.objective.terms.items():
                if not math.isfinite(value := float(term)):
                    raise self._non_finite(name, value)

    def _end_epoch(self, epoch: int, bar: Any) -> None:
        state, validation = self.state, self.data.validation
        means = {name: value / self.batches for name, value in self._summed().items()}
        for name, value in means.items():
            if not math.isfinite(value):
                raise self._non_finite(name, value)
        record: dict[str, Any] = {
            "step": state.step,
            "epoch": epoch,
            "loss": sum(means.values()),
            "terms": means,
            "learning_rate": self.config.rate((state.step - 1) / self.steps),
            "seconds": round(state.epoch_seconds, 3),
        }
        if validation is not None:
            with forked_generator(derived_seed(f"{self.config.seed}:{epoch}:judge"), self.device):
                record |= judge(self.model, validation, self.data.validation_weight)
            nll = record["validation_nll"]
            if self.config.select == "best" and (state.best_nll is None or nll < state.best_nll):
                state.best_nll, state.best_epoch = nll, epoch
                self.best = {key: value.clone() for key, value in self.model.state_dict().items()}
            bar.set_description_str(f"{self.label} · val nll {nll:.3f}")
        self.sums, state.epoch_seconds = {}, 0.0
        self.log.write(**record)

    def _summed(self) -> dict[str, float]:
        """The sums of the terms in this epoch, over all processes."""
        mine = {name: float(value) for name, value in self.sums.items()}
        sums: dict[str, float] = {}
        for part in in_turn(iter([mine])):
            for name, value in part.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums

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
        started = time.perf_counter()
        fitted = finish(self.model, *self.data.for_statistics(config.seed), seed=config.seed)
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
        within = self.state.step % self.batches > 0
        resumable = self.data.train.has_rows or not within
        interrupted = False
        if self.state.step % checked_every(self.device) == 0 or not within:
            interrupted = any_process(self.interrupted.is_set())
        if resumable and (due or interrupted):
            self._save()
        if interrupted:
            self.interrupted.set()
            raise KeyboardInterrupt

    def _save(self) -> None:
        path = self._checkpoint_path()
        if path is None:
            return
        self.state.sums = self._summed()
        if self.share.rank == 0:
            groups = {
                "step": self.objective.state_dict(),
                "optimizer": optimizer_tensors(self.optimizer),
                "best": self.best,
            }
            Checkpoint(path, self.state, self.fingerprint, groups).save()
        self.saved_at = self.state.step

    def _restore(self, path: Path) -> None:
        checkpoint = agree(lambda: Checkpoint.load(path))
        checkpoint.check_fingerprint(self.fingerprint)
        checkpoint.check_state(self.config.epochs, self.batches)
        checkpoint.restore(self.objective, self.optimizer)
        self.state, self.best = checkpoint.state, checkpoint.groups["best"]
        if self.share.rank == 0:
            self.sums = {
                name: torch.tensor(v, dtype=torch.float64) for name, v in self.state.sums.items()
            }
        self.resumed_at = self.saved_at = self.state.step
        self.log.records = agree(self._rewound)
        begun = self.state.step > 0 or bool(self.user_model.members())
        self.state.note_threads(path, begun=begun)

    def _rewound(self) -> list[dict[str, Any]]:
        self.log.rewind(self.state.step, finished=self.state.finished)
        return self.log.records


def judge(model: Model, split: AnySplit, weight: Tensor | None) -> dict[str, Any]:
    """NLL and accuracy in percent and, of a mixture, the mean weights of its heads.

    Args:
        model: to ask; of several processes each asks about its part.
        split: validation data.
        weight: (N,) of its rows in NLL and accuracy; None where all count alike.
    """
    parts = list(in_turn(_judged(evaluating(model), split, weight, own_share())))
    sums = torch.stack(parts).sum(dim=0)
    samples, weights, nll, right, *router = sums.tolist()
    record: dict[str, Any] = {
        "validation_nll": nll / weights,
        "validation_accuracy": 100.0 * right / weights,
    }
    if len(router) > 1:
        record["router"] = [value / samples for value in router]
    return record


@torch.no_grad()
def _judged(model: Model, split: AnySplit, weight: Tensor | None, share: Share) -> Iterator[Tensor]:
    """Of each batch: samples, their weight, sums of −log p(y) and of hits, and of the router."""
    first = share.rank * _JUDGED
    for x, y in split.walk(_JUDGED, share):
        _, belief = model.ask(x, first)
        log_p, labels = belief.log_probs(), y.cpu()  # type: ignore[union-attr] # it has labels
        each = torch.ones(len(x), dtype=torch.float64)
        if weight is not None:
            each = weight[first : first + len(x)]
        loss = -log_p.gather(1, labels[:, None])[:, 0]
        hits = (log_p.argmax(dim=1) == labels).double()
        yield torch.cat(
            [
                torch.tensor([len(x)], dtype=torch.float64),
                each.sum()[None],
                (each * loss)[each > 0].sum()[None],  # 0·∞ is none
                (each @ hits)[None],
                belief.log_weight.exp().sum(dim=0),
            ]
        )
        first += share.count * _JUDGED


def member_seed(seed: int, index: int, count: int) -> int:
    """A seed of its own for each member of an ensemble, and no other ensemble's."""
    return derived_seed(f"{seed}:{count}:{index}")
