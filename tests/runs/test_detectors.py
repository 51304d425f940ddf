"""`gemfi evaluate --detectors`: one pass a split, numbers in the files, and tables to read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gemfi import Belief, Model, metrics
from gemfi._text import CONVENTIONS, WIDTH
from gemfi.data import two_moons
from gemfi.detectors import DETECTORS, ODIN, observe
from gemfi.errors import InputError, RoleError
from gemfi.evaluation import evaluate, fit_detectors
from gemfi.methods.softmax import Softmax
from gemfi.runs import Run, evaluate_run, train_run
from gemfi.runs.folder import METRICS, SUMMARY
from gemfi_bench.side_by_side import comparison, means
from support.commands import Capture, printed, refused
from support.detectors import fit_observed

from .conftest import toy_spec

MOONS = two_moons()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Softmax on two moons with two seeds, trained and not evaluated."""
    root = tmp_path_factory.mktemp("pair")
    for seed in range(2):
        train_run(toy_spec("softmax", seed=seed), root / str(seed), progress=False)
    return [root / "0", root / "1"]


def rows(text: str, first: str) -> list[list[str]]:
    """The words of the lines that begin with one word."""
    return [line.split() for line in text.splitlines() if line.split()[:1] == [first]]


def test_the_numbers_are_those_of_the_detectors(pair: list[Path]) -> None:
    run = evaluate_run(pair[0], detectors=["all"])
    section = json.loads((pair[0] / METRICS).read_text())["test"]
    train, validation, test = (
        observe(run.model, each) for each in (MOONS.train, MOONS.validation, MOONS.test)
    )
    for key, split in {**MOONS.ood_test, **MOONS.ood_validation}.items():
        found = section["ood"][key]["by_detector"]
        assert list(found) == list(DETECTORS)
        for name, kind in DETECTORS.items():
            detector = kind()
            fit_observed(detector, train, validation)
            if detector.needs == "inputs":
                both = [detector.score(run.model, each.x) for each in (MOONS.test, split)]
            else:
                both = [detector.score_observed(each) for each in (test, observe(run.model, split))]
            assert found[name] == metrics.ood_metrics(*both), name
    assert section["detectors"]["odin"] == {
        "needs": "inputs",
        "settings": {"temperature": 1000.0, "epsilon": 0.0014},
        "notes": [],
    }
    assert section["detectors"]["temperature"]["notes"][0].startswith("T = ")
    assert section["detectors"]["maxp"]["settings"] == {}


def test_scores_of_the_belief_agree_with_their_detectors(pair: list[Path]) -> None:
    run = evaluate_run(pair[0], detectors=["maxp", "energy"])
    for entry in run.metrics()["test"]["ood"].values():
        assert entry["by_detector"]["maxp"] == entry["by_score"]["max_prob"]
        assert entry["by_detector"]["energy"] == entry["by_score"]["logit_energy"]


def test_the_section_is_that_of_evaluation(pair: list[Path]) -> None:
    model = Run.open(pair[0]).model
    outside = dict(MOONS.ood_test)
    wanted = evaluate(model, MOONS.test, outside)
    found = evaluate_run(pair[0]).metrics()["test"]
    assert wanted.classification.items() <= found["id"].items()
    for key, numbers in wanted.ood.items():
        assert numbers.items() <= found["ood"][key].items()
        assert "by_detector" not in found["ood"][key]
        assert "disagreement" not in found["ood"][key]["by_score"]  # of one component it is 0
    assert "detectors" not in found


def test_each_split_goes_through_the_model_once(
    pair: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    features = Model.features

    def counted(self: Model, x: Tensor) -> Tensor:
        seen.append(len(x))
        return features(self, x)

    monkeypatch.setattr(Model, "features", counted)
    splits = [MOONS.train, MOONS.validation, MOONS.test]
    splits += [*MOONS.ood_test.values(), *MOONS.ood_validation.values()]
    evaluate_run(pair[0], detectors=[name for name in DETECTORS if name != "odin"])
    assert sum(seen) == 1 + sum(map(len, splits))  # one input shows what the model has
    seen.clear()
    evaluate_run(pair[0], detectors=["odin", "knn"])  # neither learns from validation data
    rest = sum(map(len, splits[2:]))
    assert sum(seen) == 1 + len(splits[0]) + rest + 2 * rest


def test_one_run_is_shown_with_every_detector(pair: list[Path], capsys: Capture) -> None:
    text = printed(["evaluate", str(pair[0]), "--detectors", "all"], capsys)
    section = Run.open(pair[0]).metrics()["test"]
    summary = (pair[0] / SUMMARY).read_text()
    for name in DETECTORS:
        wanted = [
            [
                f"{entry['by_detector'][name][metric]:.2f}"
                for metric in ("auroc", "aupr_id", "fpr95")
            ]
            for entry in section["ood"].values()
        ]
        assert [row[1:] for row in rows(text, name)] == wanted
        for cells in wanted:
            assert [name, *cells] in [line.split() for line in summary.splitlines()]
    note = f"temperature: {section['detectors']['temperature']['notes'][0]}."
    assert note in text.splitlines()
    assert note in summary.splitlines()
    assert text.splitlines()[-1] == CONVENTIONS


def test_without_detectors_nothing_is_said_of_them(pair: list[Path], capsys: Capture) -> None:
    evaluate_run(pair[0], detectors=["knn"])
    assert "knn" not in printed(["evaluate", str(pair[0])], capsys)
    assert "knn" not in (pair[0] / SUMMARY).read_text()
    assert "detectors" not in Run.open(pair[0]).metrics()["test"]


def test_several_runs_have_a_table_by_detector(pair: list[Path]) -> None:
    runs = [evaluate_run(folder, detectors=["all"]) for folder in pair]
    text = comparison(runs)
    assert max(map(len, text.splitlines()[:-2])) <= WIDTH
    blocks = text.split("cluster (ood-test, n 500): AUROC by detector\n")[1:]
    head, _, first, second, _, mean = blocks[0].splitlines()[:6]
    shown = head.split()[2:]
    assert shown == list(DETECTORS)[: len(shown)]
    values = [
        [run.metrics()["test"]["ood"]["cluster"]["by_detector"][name]["auroc"] for name in shown]
        for run in runs
    ]
    for line, found in zip((first, second), values, strict=True):
        assert line.split()[3:] == [f"{value:.2f}" for value in found]
    averages = [f"{sum(pair) / 2:.2f}" for pair in zip(*values, strict=True)]
    assert mean.split()[5:] == averages
    rest = blocks[1].splitlines()[0].split()[2:]
    assert [*shown, *rest] == list(DETECTORS)
    (group,) = means(runs)
    mine = [each for each in group["values"] if each["score"] == "detector knn"]
    assert {(each["set"], each["metric"]) for each in mine} >= {("cluster", "auroc")}


def test_a_run_without_them_has_dashes(pair: list[Path]) -> None:
    runs = [evaluate_run(pair[0], detectors=["knn"]), evaluate_run(pair[1])]
    block = comparison(runs).split("cluster (ood-test, n 500): AUROC by detector\n")[1]
    assert block.splitlines()[3].split()[3:] == ["-"]
    assert "by detector" not in comparison(runs[:1])


def test_an_unknown_detector_is_refused_before_the_work(pair: list[Path], capsys: Capture) -> None:
    before = (pair[0] / METRICS).read_bytes()
    line = refused(["evaluate", str(pair[0]), "--detectors", "odin", "nn"], capsys)
    assert "unknown detector 'nn'; known: maxp, energy, odin" in line
    assert (pair[0] / METRICS).read_bytes() == before


def test_the_help_says_what_odin_costs(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        printed(["evaluate", "--help"], capsys)
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name in DETECTORS:
        assert name in text
    assert "odin goes through the model twice more, and once backwards" in text


def test_roles(pair: list[Path]) -> None:
    model = Run.open(pair[0]).model
    ring = MOONS.ood_validation["ring"]
    for train, validation in ((MOONS.test, MOONS.validation), (MOONS.train, MOONS.test)):
        with pytest.raises(RoleError, match="fitting detectors as"):
            fit_detectors(model, ["knn"], train, validation)
    with pytest.raises(RoleError, match="evaluation as ID data refuses"):
        evaluate(model, MOONS.train, {})
    with pytest.raises(RoleError, match="evaluation as OOD data refuses"):
        evaluate(model, MOONS.test, {"ring": ring, "test": MOONS.test})


def test_all_leaves_out_what_a_method_has_nothing_for(
    pair: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Softmax.forward

    def bare(self: Softmax, z: Tensor) -> Belief:
        return replace(forward(self, z), logits=None)

    monkeypatch.setattr(Softmax, "forward", bare)
    model = Run.open(pair[0]).model
    made = fit_detectors(model, ["all"], MOONS.train, MOONS.validation)
    assert [each.info.name for each in made] == [
        "maxp", "odin", "mahalanobis", "temperature", "ddu", "knn",
    ]  # fmt: skip
    with pytest.raises(InputError, match="lts needs logits, and the method"):
        fit_detectors(model, ["lts", "knn"], MOONS.train, MOONS.validation)


def test_a_bar_counts_inputs(pair: list[Path], capsys: Capture) -> None:
    model = Run.open(pair[0]).model
    fitted: list[Any] = [ODIN(), *fit_detectors(model, ["knn"], MOONS.train, MOONS.validation)]
    outside = dict(MOONS.ood_test)
    total = 2 * (len(MOONS.test) + sum(map(len, outside.values())))
    loud = evaluate(model, MOONS.test, outside, fitted, progress=True).section()
    assert f"{total}" in capsys.readouterr().err
    assert evaluate(model, MOONS.test, outside, fitted).section() == loud
    assert capsys.readouterr().err == ""


def test_wholes_and_parts_agree(pair: list[Path]) -> None:
    """Scores by inputs are asked for in pieces."""
    model = Run.open(pair[0]).model
    whole = ODIN().score(model, MOONS.train.x)
    part = ODIN().score(model, MOONS.train.x[600:700])
    torch.testing.assert_close(whole[600:700], part, rtol=1e-6, atol=1e-9)
