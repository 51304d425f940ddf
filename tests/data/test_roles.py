"""Rule 1: nothing that learns or chooses can reach test data, and no new door is left unguarded.

Three proofs: the table of uses; every public door, with splits that no one may touch; and the
source itself, in which whatever takes a split has to be in a table that somebody has reviewed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import gemfi
import gemfi_bench
from gemfi import Model, Normalisation, TrainConfig, build_model, diagnose, evaluate, fit
from gemfi.bundle import make_bundle
from gemfi.data import TASKS, USES, Role, Split, Task, as_split, require_use
from gemfi.decisions import Policy, operating_points
from gemfi.detectors import (
    DETECTORS,
    ODIN,
    Mahalanobis,
    MahalanobisConfig,
    TemperatureScaling,
)
from gemfi.errors import RoleError
from gemfi.export.parity import figures
from gemfi.monitor import Monitor
from gemfi.runs import RunSpec, train_run
from gemfi.training.checks import check_run

X = torch.arange(24, dtype=torch.float32).reshape(12, 2)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, 0])
TOUCHED = pytest.fail.Exception  # not an Exception: no `except` of the library hides it
LEARNING = [use for use in USES if use != "evaluation"]


class Tripwire:
    """In the place of a tensor: whoever looks at it has failed."""

    def __getattribute__(self, name: str) -> NoReturn:
        pytest.fail(f"data were read: {name}")

    def __len__(self) -> int:
        pytest.fail("data were counted")
        return 0

    def __getitem__(self, index: object) -> NoReturn:
        pytest.fail("data were read")


def split(role: Role | str) -> Split:
    return Split(X, Y, Role(role), "mine", 3)


def trap(role: Role | str) -> Split:
    """A split with a role, and with data that no one may touch."""
    made = split(role)
    for field in ("x", "y"):
        object.__setattr__(made, field, Tripwire())
    return made


def model() -> Model:
    return build_model("softmax", "mlp", 3, in_features=2, width=4)


def asked(x: torch.Tensor) -> dict[str, Any]:
    """What a graph would say."""
    belief = model().predict(x)
    return {"probs": belief.probs().numpy(), "max_prob": belief.probs().amax(dim=1).numpy()}


def fit_layers(place: int, source: Split) -> None:
    splits = [split("train"), split("validation"), split("ood-validation")]
    splits[place] = source
    Mahalanobis(MahalanobisConfig(layers=("first",))).fit_layers(model(), *splits)


CONFIG = TrainConfig(epochs=1, batch_size=4)

# A door: how a split is handed in, and the roles that may pass.
DOORS: dict[str, tuple[Callable[[Split], object], set[str]]] = {
    "fit train": (lambda s: fit(model(), s, config=CONFIG), {"train"}),
    "fit validation": (lambda s: fit(model(), split("train"), s, CONFIG), {"validation"}),
    "fit auxiliary": (
        lambda s: fit(model(), split("train"), config=CONFIG, auxiliary=s),
        {"auxiliary"},
    ),
    "check_run train": (lambda s: check_run(model(), s, None, None, CONFIG), {"train"}),
    "Normalisation.of": (Normalisation.of, {"train"}),
    "carve": (lambda s: s.carve(3), {"train"}),
    "carve calibration": (lambda s: s.carve(3, "calibration"), {"train"}),
    "evaluate": (lambda s: evaluate(model(), s), {"test", "validation"}),
    "evaluate ood": (
        lambda s: evaluate(model(), split("test"), {"it": s}),
        {"ood-test", "ood-validation"},
    ),
    "diagnose": (lambda s: diagnose(model(), s), {"test", "validation"}),
    "diagnose reference": (lambda s: diagnose(model(), split("test"), s), {"train"}),
    "detector fit train": (
        lambda s: Mahalanobis().fit(model(), s, split("validation")),
        {"train"},
    ),
    "detector fit validation": (
        lambda s: TemperatureScaling().fit(model(), split("train"), s),
        {"validation"},
    ),
    "fit_layers train": (lambda s: fit_layers(0, s), {"train"}),
    "fit_layers inside": (lambda s: fit_layers(1, s), {"validation"}),
    "fit_layers outside": (lambda s: fit_layers(2, s), {"ood-validation"}),
    "choose_epsilon": (lambda s: ODIN.choose_epsilon(model(), s), {"validation"}),
    "choose_epsilon outside": (
        lambda s: ODIN.choose_epsilon(model(), split("validation"), s),
        {"ood-validation"},
    ),
    "policy": (lambda s: Policy.fit(model(), s), {"calibration"}),
    "policy outside": (
        lambda s: Policy.fit(model(), split("calibration"), "youden", ood_validation=s),
        {"ood-validation"},
    ),
    "operating points": (lambda s: operating_points(model(), s), {"calibration"}),
    "operating points outside": (
        lambda s: operating_points(model(), split("calibration"), {"it": s}),
        {"ood-validation"},
    ),
    "bundle": (lambda s: make_bundle("it", model(), calibration=s), {"calibration"}),
    "int8": (lambda s: figures(asked, "max_prob", s, {}, 9), {"validation"}),
    "int8 outside": (
        lambda s: figures(asked, "max_prob", split("validation"), {"it": s}, 9),
        {"ood-validation"},
    ),
    "monitor": (lambda s: Monitor.fit(model(), s), {"calibration"}),
    **{
        f"require_use {use}": (lambda s, use=use: require_use(s, use), set(USES[use]))
        for use in USES
    },
}


class TestUses:
    @pytest.mark.parametrize("use", LEARNING)
    @pytest.mark.parametrize("role", ["test", "ood-test"])
    def test_what_learns_or_chooses_refuses_test_data(self, use: str, role: str) -> None:
        assert Role(role) not in USES[use]
        with pytest.raises(RoleError, match=f"role {role}, which {use} refuses"):
            require_use(trap(role), use)

    def test_every_use_is_known_to_this_test(self) -> None:
        assert LEARNING == [
            "training",
            "statistics",
            "selection",
            "density scaling",
            "temperature",
            "policy",
            "auxiliary outliers",
            "tuning",
        ]


class TestDoors:
    @pytest.mark.parametrize("role", Role)
    @pytest.mark.parametrize("door", DOORS)
    def test_a_wrong_role_is_refused_before_anything_is_read(self, door: str, role: Role) -> None:
        enter, allowed = DOORS[door]
        if role in allowed:
            return  # below
        with pytest.raises(RoleError):
            enter(trap(role))

    @pytest.mark.parametrize("door", [d for d in DOORS if not d.startswith("require_use")])
    def test_the_trap_is_armed(self, door: str) -> None:
        """With the right role, the same call does look at the data."""
        enter, allowed = DOORS[door]
        for role in allowed:
            with pytest.raises(TOUCHED, match="data were"):
                enter(trap(role))

    def test_no_door_that_learns_lets_test_data_in(self) -> None:
        for door, (_, allowed) in DOORS.items():
            reports = door.startswith(("evaluate", "diagnose")) or door == "require_use evaluation"
            if not reports:
                assert not allowed & {"test", "ood-test"}, door

    @pytest.mark.parametrize("old", Role)
    @pytest.mark.parametrize("new", Role)
    def test_a_role_does_not_change(self, old: Role, new: Role) -> None:
        with pytest.raises(RoleError, match=f"already has role {old}, and a role does not change"):
            as_split(trap(old), role=new)  # type: ignore[arg-type]

    @pytest.mark.parametrize("role", [r for r in Role if r not in {"validation", "calibration"}])
    def test_carving_gives_no_other_role(self, role: Role) -> None:
        with pytest.raises(RoleError, match=f"cannot carve role {role}"):
            trap("train").carve(3, role)

    @pytest.mark.parametrize("role", Role)
    def test_a_part_of_a_split_keeps_its_role(self, role: Role) -> None:
        assert split(role).subset([0, 3]).role is role


def test_training_a_run_opens_no_test_data(tmp_path: Path) -> None:
    """All that `gemfi train` does: weights, selection, statistics, and the numbers it reports."""
    moons = TASKS["two-moons"](n=200)

    def never() -> Split:
        pytest.fail("test data were opened")

    task = Task(
        "two-moons",
        moons.class_names,
        train=moons.train,
        validation=moons.validation,
        calibration=never,
        test=never,
        ood_validation=dict(moons.ood_validation),
        ood_test=dict.fromkeys(moons.ood_test, never),
    )
    spec = RunSpec(
        "two-moons",
        "gem-fi",
        "mlp",
        {"in_features": 2, "width": 8},
        train=TrainConfig(epochs=1, batch_size=64, select="best"),
    )
    run = train_run(spec, tmp_path / "run", task=task, progress=False)
    assert "test" not in run.metrics()
    assert run.metrics()["validation"]["id"]["role"] == "validation"
    with pytest.raises(TOUCHED):
        _ = task.test


# --- the source -------------------------------------------------------------------------------

LIBRARY, LABORATORY = Path(gemfi.__file__).parent, Path(gemfi_bench.__file__).parent
# what is, or holds, or may be a split
TAKEN = {"Split", "AnySplit", "SplitLike", "Source", "Inputs", "Task", "Observed"}

GUARDED = {
    "bundle/bundle.py make_bundle": "require_use",
    "diagnosis/checks.py diagnose": "require_role",
    "evaluation.py evaluate": "require_role",
    "export/parity.py _of_task": "require_use",
    "export/parity.py figures": "require_role",
    "data/normalisation.py Normalisation.of": "require_use",
    "training/checks.py check_run": "require_use",
    "training/loop.py fit": "check_run",
    "evaluation.py fit_detectors": "require_role",
    "detectors/base.py fit_together": "require_role",
    "detectors/base.py Detector.fit": "fit_together",
    "detectors/gradients.py Mahalanobis.fit_layers": "require_role",
    "detectors/gradients.py ODIN.choose_epsilon": "require_role",
    "runs/work.py _health": "diagnose",
    "runs/work.py train_run": "check_run",
    "gemfi_bench/observation.py training_bank": "require_role",
    "decisions/operating.py operating_points": "require_use",
    "decisions/policy.py Policy.fit": "require_use",
    "decisions/policy.py read_ood_sets": "require_role",
    "interop.py lightning_module": "require_use",
    "monitor/monitor.py Monitor.fit": "require_role",
}
"""File and function -> the guard that it calls."""


def file_of(kind: type) -> str:
    """The file of a class, as it is called here."""
    return kind.__module__.removeprefix("gemfi.").replace(".", "/") + ".py"


REVIEWED = {
    "data/normalisation.py _moments": "of Normalisation.of",
    "detectors/base.py Detector.score_observed": "scores, and learns nothing",
    "finish.py FeatureBatches.__init__": "of finish",
    "finish.py finish": "of fit and of Model.finish, which check the roles",
    "model.py Model.batches": "asks a model",
    "model.py Model.beliefs": "asks a model",
    "detectors/base.py looks": "asks a model",
    "bundle/bundle.py _read": "of make_bundle",
    "decisions/policy.py read_model": "of Policy.fit and operating_points",
    "runs/work.py _judge": "of train_run: validation data",
    "training/features.py _from_cache": "of featurised",
    "training/loop.py _judged": "of judge",
    "training/run_data.py training_order": "of fit",
    # a task, which has checked the role of every split
    "data/task.py Task.__init__": "puts each source in the place of a role",
    "data/task.py Task._check": "is the guard of a task",
    "data/task.py _LazySplits.__init__": "of Task.__init__",
    "runs/folder.py TaskFacts.of": "reads train and validation alone",
    "runs/folder.py begin": "writes TaskFacts.of down",
    "runs/folder.py TaskFacts.check_unchanged": "checksums of train and validation",
    "runs/spec.py matched_spec": "reads the shape of train",
    "runs/spec.py make_spec": "of matched_spec",
    "cli/train.py Choices.spec": "hands it to make_spec",
    "runs/summary.py table_notes": "names of columns, not data",
    "data/own.py _normalisation": "hands train to Normalisation.of",
    # where models are judged, nothing is learnt
    "runs/work.py evaluate_run": "measures",
    "runs/folder.py TaskFacts.check_alike": "compares shapes",
    "evaluation.py SplitFacts.of": "counts, and a checksum",
    "gemfi_bench/runner.py Bench.__init__": "keeps a task",
    "methods/softmax.py _one_pass": "asks a model",
    "model.py Model.passes": "asks a model",
    "gemfi_bench/evaluate.py evaluate_cell": "measures; detectors are fitted by fit_detectors",
    "gemfi_bench/evaluate.py evaluate_cell.observe": "of evaluate_cell",
    "gemfi_bench/estimate.py timed_pace": "times training steps on train",
    "gemfi_bench/grid.py plan": "reads the shape of train",
    "gemfi_bench/grid.py _Planner.__init__": "of plan",
    "gemfi_bench/shift.py shifted_sets": "corrupts test images, which keep their role",
    "gemfi_bench/shift.py _first": "of shifted_sets",
    "gemfi_bench/shift.py _registered": "of shifted_sets",
    "gemfi_bench/shift.py _small": "of shifted_sets",
    "gemfi_bench/shift.py check_shift": "names of corruptions, not data",
    "gemfi_bench/shift.py _check_registered": "of check_shift",
    "gemfi_bench/shift.py _check_small": "of check_shift",
    "gemfi_bench/runner.py _check_sets": "names of sets, not data",
    "gemfi_bench/frozen/features.py cifar10_frozen.features": "labels and role stay",
    "gemfi_bench/trials.py build": "reads the number of classes",
    "gemfi_bench/trials.py _only": "fewer classes; the role stays",
    "gemfi_bench/trials.py _by_class": "judges",
    "gemfi_bench/trials.py _gaussians": "called with the train split of a trial",
    "gemfi_bench/trials.py _scores": "asks",
    # a model that is asked: weights do not change
    "gemfi_bench/observation.py observed_arrays": "asks",
    "gemfi_bench/observation.py parts": "asks",
    "model.py Model.predict": "asks",
    "bundle/bundle.py Bundle.predict": "asks",
    "bundle/bundle.py Bundle.decide": "asks",
    "runs/work.py _policy": "hands the calibration and OOD-validation data to Policy.fit",
    "bundle/bundle.py save": "hands it to make_bundle",
    "bundle/bundle.py _class_names": "reads the names of the classes",
    "model.py Model.embed": "asks",
    "data/inputs.py InputSpec.trained_on": "reads shape and type",
    "model.py Model.warn_of_scale": "asks",
    "methods/softmax.py monte_carlo": "asks",
    "detectors/base.py observe": "asks",
    "detectors/base.py _seen": "asks",
    "detectors/base.py Detector.score": "scores, and learns nothing",
    "detectors/base.py Detector._score": "of Detector.score",
    **{
        f"{file_of(kind)} {kind.__name__}._score": "of Detector.score"
        for name, kind in DETECTORS.items()
        if name != "odin"  # takes inputs
    },
    "evaluation.py score_split": "scores",
    "evaluation.py _scored": "of score_split",
    "evaluation.py _bar": "counts",
    # behind Detector.fit
    "detectors/base.py Detector._from_train": "called by fit_together",
    "detectors/base.py Detector._from_validation": "called by fit_together",
    "detectors/base.py Observed.cat": "puts batches together",
    "detectors/gradients.py Mahalanobis._layer_gaussians": "of fit_layers",
    "detectors/single_pass.py TemperatureScaling._from_validation": "called by fit_together",
    **{
        f"{file_of(DETECTORS[name])} {DETECTORS[name].__name__}._from_train": "likewise"
        for name in ("ddu", "knn", "mahalanobis")
    },
    # behind check_run
    "data/splits.py require_classes": "called with what require_use returned",
    "training/checks.py usable_outliers": "is there an auxiliary split?",
    "training/features.py featurised.features_of": "inputs to features; labels and role stay",
    "training/loop.py judge": "validation data that check_run has seen",
    "training/run_data.py RunData.of": "made by fit, after check_run",
    "training/run_data.py RunData.map_splits": "of featurised",
    "training/run_data.py _checked_weight": "counts the rows of what check_run has seen",
    "training/run_data.py drawn_split": "draws from what check_run has seen",
    "training/checks.py _check_alike": "called by check_run",
    "training/checks.py _check_augmentation": "called by check_run",
    "training/checks.py _check_labels": "called by check_run",
    "training/checks.py _check_pass": "called by check_run",
    "training/checks.py _check_tokens": "called by check_run",
    "interop.py _Training.__init__": "made by lightning_module",
}
"""File and function -> why it may take any split that reaches it."""

READERS = {
    "data/task.py Task.__init__": "keeps it",
    "data/task.py Task.splits": "lists them",
    "data/registry/load.py registered_task": "names of sets, not data",
    "gemfi_bench/data_sets/command.py _splits": "names of sets, not data",
    "cli/train.py train": "names of files, not data",
    "data/own.py OwnData.task": "names of files, not data",
    "runs/spec.py task_of": "names of files, not data",
    "data/task.py Task.__repr__": "names of sets, not data",
    "gemfi_bench/demo/figures_toys.py": "draws, after training",
    "gemfi_bench/demo/runner.py": "judges, after training",
    "runs/work.py evaluate_run": "judges",
    "gemfi_bench/evaluate.py": "judges",
    "gemfi_bench/estimate.py": "counts inputs to be judged",
    "gemfi_bench/results.py": "names of sets, not data",
    "gemfi_bench/runner.py _check_sets": "names of sets, not data",
    "gemfi_bench/runner.py Bench.done": "names of sets, not data",
    "gemfi_bench/runner.py Bench._begin": "names and checksums, to refuse other data",
    "gemfi_bench/shift.py": "corrupts what is judged",
    "gemfi_bench/frozen/features.py": "reads a split when it is asked for",
    "gemfi_bench/figures/toys.py _draw_points": "draws",
    "gemfi_bench/figures/toys.py draw_two_moons": "draws",
    "gemfi_bench/toys.py Run.rows": "names of sets, not data",
    "gemfi_bench/toys.py evaluated": "judges the runs of the demo",
}
"""File, and function where it matters -> why it reads `.test` or `.ood_test`."""


def functions() -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """File, qualified name and tree of every function of the package."""

    def walk(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.FunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                yield ".".join((*names, child.name)), child
            inner = isinstance(child, ast.FunctionDef | ast.ClassDef)
            yield from walk(child, (*names, child.name) if inner else names)  # type: ignore[attr-defined]

    for file, shown in sources():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for name, function in walk(tree, ()):
            yield shown, name, function


def sources() -> Iterator[tuple[Path, str]]:
    """The files of both packages, and what they are called here."""
    for file in sorted(LIBRARY.rglob("*.py")):
        yield file, file.relative_to(LIBRARY).as_posix()
    for file in sorted(LABORATORY.rglob("*.py")):
        yield file, file.relative_to(LABORATORY.parent).as_posix()


def words(node: ast.AST | None) -> set[str]:
    """The names in an annotation, quoted or not."""
    nodes = [] if node is None else list(ast.walk(node))
    found = {n.id for n in nodes if isinstance(n, ast.Name)}
    found |= {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    quoted = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return found.union(*(re.findall(r"\w+", text) for text in quoted))


def parameters(function: ast.FunctionDef) -> list[ast.arg]:
    a = function.args
    named = [*a.posonlyargs, *a.args, *a.kwonlyargs]
    return named + [extra for extra in (a.vararg, a.kwarg) if extra is not None]


def called(function: ast.FunctionDef) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {func.id for func in calls if isinstance(func, ast.Name)}


class TestSource:
    def test_whatever_takes_a_split_was_reviewed(self) -> None:
        """If this fails: call the guard in the new function, and enter it in GUARDED above."""
        found = {
            f"{file} {name}"
            for file, name, function in functions()
            if any(words(parameter.annotation) & TAKEN for parameter in parameters(function))
            and not file.startswith("gemfi_bench/tables/")  # whose Source names the runs of a row
        }
        assert found - set(GUARDED) - set(REVIEWED) == set(), "new, and not reviewed"
        assert (set(GUARDED) | set(REVIEWED)) - found == set(), "reviewed, but gone"

    def test_the_guards_are_called(self) -> None:
        made = {f"{file} {name}": function for file, name, function in functions()}
        for place, guard in GUARDED.items():
            assert guard in called(made[place]), place

    def test_no_alias_hides_a_split(self) -> None:
        """Types that are made of Split by assignment are all in TAKEN."""
        aliases = set()
        for file, _ in sources():
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.Assign) and words(node.value) & {"Split", "AnySplit"}:
                    aliases |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        assert aliases - {"__all__", "_HOMES"} == {"Source", "Inputs", "SplitLike"}

    def test_who_reads_the_test_data_of_a_task(self) -> None:
        found = set()
        for file, name, function in functions():
            nodes = ast.walk(function)
            names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            if names & {"test", "ood_test"} and file not in READERS:
                found.add(f"{file} {name}")
        places = {place for place in READERS if " " in place}
        assert found == places

    def test_the_finder_finds(self) -> None:
        code = "def f(a: 'Split | None', *, b: int = 0, **c: Mapping[str, data.Split]): ..."
        (function,) = ast.parse(code).body
        assert isinstance(function, ast.FunctionDef)
        hits = [p.arg for p in parameters(function) if words(p.annotation) & TAKEN]
        assert hits == ["a", "c"]

    def test_roles_are_given_where_data_enter(self) -> None:
        """A split with its role changed by `replace` would escape: carve alone may do it."""
        found = set()
        for file, name, function in functions():
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and any(k.arg == "role" for k in node.keywords):
                    callee: Any = node.func
                    if getattr(callee, "id", getattr(callee, "attr", "")) == "replace":
                        found.add(f"{file} {name}")
        assert found == {"data/splits.py AnySplit.carve"}
