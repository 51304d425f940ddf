"""The figures of toys, architectures, simplices and embeddings, and how figures are saved."""

from __future__ import annotations

import copy
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy import stats
from sklearn.decomposition import PCA

from gemfi import metrics, scores
from gemfi._files import hold_lock
from gemfi.belief import Belief
from gemfi.errors import InputError
from gemfi.runs import RunSpec
from gemfi_bench import toys
from gemfi_bench.figures import (
    FIGURES,
    PARENT,
    embedding,
    pictures,
    save,
    simplex,
)
from gemfi_bench.figures.common import FAMILY
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

PAPER = [
    "moons-edl", "moons-daedl", "moons-gemfi", "moons-2d", "toy-daedl", "toy-gemfi", "moons-toy-1d",
    "arch-daedl", "arch-gemfi", "arch", "prroc", "dirichlet-comp", "tsne-before", "tsne-after",
    "tsne-id-ood", "tsne-fi", "pr-curves", "roc-curves", "reliability_id", "conf_correct_wrong",
    "hist-ood", "entropy-mi-scatter", "boxplots", "tsne-comparison", "app:lambda", "supp-uncert",
    "supp-calib", "supp-accconf", "supp-energy",
]  # fmt: skip


def without(results: Results, method: str) -> Results:
    """The same results, had a method never been planned."""
    fewer = copy.copy(results)
    fewer.grid = [each for each in results.grid if each.method != method]
    return fewer


# -- the list of figures --------------------------------------------------------------------------


class TestFigures:
    def test_every_label_of_the_paper_has_a_figure(self) -> None:
        assert set(PAPER) <= set(FIGURES) | set(PARENT)
        of_paper = [label for label in PAPER if label in FIGURES]
        assert list(FIGURES)[: len(of_paper)] == of_paper
        assert set(PARENT.values()) <= set(FIGURES)
        assert not set(PARENT) & set(FIGURES)

    def test_every_figure_says_what_it_shows(self) -> None:
        for entry in FIGURES.values():
            assert entry.title
            assert entry.caption.endswith(".")


class TestSave:
    def plot(self) -> Figure:
        figure = Figure(figsize=(2, 1), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], "o-", label="line", clip_on=True)
        axes.set_title(r"$\hat p$ and words")
        axes.legend()
        return figure

    def test_three_files_of_the_right_kind(self, tmp_path: Path) -> None:
        found = save(self.plot(), tmp_path / "new", "moons-2d")
        assert found == {kind: tmp_path / "new" / f"moons-2d.{kind}" for kind in found}
        assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
            "moons-2d.pdf",
            "moons-2d.png",
            "moons-2d.svg",
        ]
        assert found["png"].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert int.from_bytes(found["png"].read_bytes()[16:20], "big") == 2 * 200
        assert b"<svg" in found["svg"].read_bytes()
        assert found["pdf"].read_bytes().startswith(b"%PDF")

    def test_the_same_figure_gives_the_same_bytes(self, tmp_path: Path) -> None:
        first = save(self.plot(), tmp_path / "first", "arch")
        figure = self.plot()
        with mpl.rc_context({"savefig.facecolor": "red", "svg.fonttype": "none"}):
            second = save(figure, tmp_path / "second", "arch")
        for kind, path in first.items():
            data = path.read_bytes()
            assert data == second[kind].read_bytes(), kind
            assert b"CreationDate" not in data
            assert b"<dc:date>" not in data

    def test_ids_do_not_hang_on_the_last_digit_of_a_layout(self) -> None:
        def drawn(width: float) -> bytes:
            figure = Figure(figsize=(2, 1))
            axes = figure.add_axes((0.1, 0.1, width, 0.8))
            axes.plot([0, 1], [0, 1], "o-")
            return pictures(figure)["svg"]

        found = drawn(0.71234567)
        assert found == drawn(0.71234567 + 1e-13)
        defined = set(re.findall(rb'id="([a-z]\d+)"', found))
        used = set(re.findall(rb'url\(#([^)]*)\)|xlink:href="#([a-z]\d+)"', found))
        assert {name for pair in used for name in pair if name} <= defined
        assert len(defined) >= 2  # a clip and a marker

    def test_a_panel_is_in_the_file_of_its_figure(self, tmp_path: Path) -> None:
        assert save(self.plot(), tmp_path, "tsne-before")["pdf"] == tmp_path / "tsne-fi.pdf"
        assert save(self.plot(), tmp_path, "app:lambda")["png"] == tmp_path / "app-lambda.png"
        with pytest.raises(InputError, match="no figure 'fig:arch'; there are: moons-2d, "):
            save(self.plot(), tmp_path, "fig:arch")


# -- toys -----------------------------------------------------------------------------------------


def small_spec(plan: toys.Plan) -> RunSpec:
    """The specification of a toy with a smaller network and two epochs."""
    spec = SPEC_OF(plan)
    return replace(
        spec,
        backbone_options={**spec.backbone_options, "width": 16, "depth": 1},
        train=replace(spec.train, epochs=2, batch_size=256, learning_rate=0.02),
    )


SPEC_OF = toys.spec_of


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toys, "spec_of", small_spec)
        toys.train_toys(folder, progress=False)
    return folder


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toys, "spec_of", small_spec)


def results_in(folder: Path) -> Results:
    """Results of which nothing but the folder is looked at."""
    results = object.__new__(Results)
    results.folder, results.lacking = folder, {}
    return results


class TestToys:
    def test_the_specs_are_those_of_the_demo(self) -> None:
        plans = toys.toy_plans()
        assert set(plans) <= set(toys.PLANS)
        assert [f"{plan.task} {plan.method}" for plan in plans] == [
            "two-moons edl",
            "two-moons daedl",
            "two-moons gem-fi",
            "line daedl",
            "line gem-fi",
        ]
        for plan in plans:
            spec = toys.spec_of(plan)
            assert (spec.task, spec.method, spec.backbone) == (plan.task, plan.method, "mlp")
            assert spec.backbone_options["in_features"] == {"two-moons": 2, "line": 1}[plan.task]
            assert spec.backbone_options["spectral"]["kind"] == "soft"
        assert toys.spec_of(plans[-1]).head == toys.TOY_GEM

    @pytest.mark.usefixtures("_small")
    def test_runs_are_trained_once(self, toy_folder: Path) -> None:
        files = sorted(toy_folder.glob("runs/*/checkpoint.safetensors"))
        before = [path.stat().st_mtime_ns for path in files]
        toys.train_toys(toy_folder, progress=False)
        assert len(files) == len(toys.toy_plans())
        assert [path.stat().st_mtime_ns for path in files] == before

    def test_two_processes_take_turns(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that came second was once told that another is training, and failed."""
        begun = threading.Event()
        monkeypatch.setattr(toys, "train_run", lambda *_, **__: begun.set())
        thread = threading.Thread(target=toys.train_toys, args=(tmp_path,))
        with hold_lock(tmp_path / toys._LOCK):
            thread.start()
            assert not begun.wait(1.0)
        thread.join(60)
        assert begun.is_set()

    def test_what_is_not_there_is_unavailable(self, tmp_path: Path, toy_folder: Path) -> None:
        with pytest.raises(Unavailable, match="not trained on line: daedl, gem-fi"):
            toys.trained_toys(tmp_path, "line")
        with pytest.raises(Unavailable, match="not trained on two-moons: edl, daedl, gem-fi"):
            FIGURES["moons-2d"].draw(results_in(toy_folder))  # others are there, not these

    @pytest.mark.usefixtures("_small")
    def test_two_moons_show_the_models(self, toy_folder: Path) -> None:
        figure = FIGURES["moons-2d"].draw(results_in(toy_folder))
        assert figure.get_figwidth() == pytest.approx(6.8)
        panels = figure.axes[:6]
        runs = toys.trained_toys(toy_folder, "two-moons")
        assert [run.plan.method for run in runs] == ["edl", "daedl", "gem-fi"]
        for run, panel in zip(runs, panels, strict=False):
            (image,) = panel.images
            shown = np.asarray(image.get_array())
            left, right, bottom, top = image.get_extent()
            row, column = 40, 150
            steps = shown.shape[0] - 1
            at = [
                left + (right - left) * column / steps,
                bottom + (top - bottom) * row / steps,
            ]
            belief = run.model.predict(torch.tensor([at]))
            assert shown[row, column] == pytest.approx(float(scores.entropy(belief)), abs=1e-5)
            inside, outside = (
                scores.entropy(each)
                for each in (run.evaluation.belief, run.evaluation.ood_beliefs["cluster"])
            )
            auroc = metrics.auroc(inside, outside)
            assert f"AUROC: cluster {auroc:.1f}" in [text.get_text() for text in panel.texts]
        titles = [panel.get_title(loc="left") for panel in panels[:3]]
        assert [re.sub(r"^\$.*\$\s+", "", title) for title in titles] == ["EDL", "DAEDL", "GEM-FI"]

    @pytest.mark.usefixtures("_small")
    def test_the_line_has_a_column_a_method(self, toy_folder: Path) -> None:
        figure = FIGURES["moons-toy-1d"].draw(results_in(toy_folder))
        assert len(figure.axes) == 6
        top = figure.axes[1]  # GEM-FI
        run = toys.trained_toys(toy_folder, "line")[1]
        curve = top.lines[1]
        x = torch.from_numpy(np.array(curve.get_xdata())).float()
        expected = run.model.predict(x[:, None]).probs()[:, 1]
        assert np.allclose(np.array(curve.get_ydata()), expected.numpy())
        assert len(top.collections) == toys.TOY_GEM.num_components  # a line a head


# -- simplices ------------------------------------------------------------------------------------


def belief_of(alphas: Any, weights: Any, rho: float | None = None) -> Belief:
    """A belief on one input from α (K, C) and weights (K,)."""
    alpha = torch.tensor(alphas, dtype=torch.float64)
    total = alpha.sum(dim=1)
    return Belief(
        log_p=(alpha / total[:, None]).log()[None],
        log_weight=torch.tensor(weights, dtype=torch.float64).log()[None],
        log_evidence=total.log()[None],
        log_rho=None if rho is None else torch.tensor([rho], dtype=torch.float64).log(),
    )


MIXED = ([[4.0, 2.0, 1.5, 0.5], [1.2, 6.0, 2.5, 3.0]], [0.3, 0.7])


class TestSimplex:
    points = np.random.default_rng(0).dirichlet([1, 1, 1], size=20)

    @pytest.mark.parametrize("rho", [None, 0.25])
    def test_the_density_is_scipys(self, rho: float | None) -> None:
        found = simplex.log_density(belief_of(*MIXED, rho), [2, 0, 1], self.points)
        scale = 1.0 if rho is None else rho
        expected = sum(
            weight * stats.dirichlet.pdf(self.points.T, scale * np.array(alpha)[[2, 0, 1]])
            for alpha, weight in zip(*MIXED, strict=True)
        )
        assert np.allclose(found, np.log(expected / 2))  # 2 is the uniform density

    def test_it_is_the_law_of_renormalised_probabilities(self) -> None:
        """Against a histogram of draws of all four classes."""
        rng = np.random.default_rng(1)
        alphas, weights = MIXED
        counts = rng.multinomial(200_000, weights)
        draws = np.concatenate(
            [rng.dirichlet(alpha, count) for alpha, count in zip(alphas, counts, strict=True)]
        )[:, :3]
        draws /= draws.sum(axis=1, keepdims=True)
        points, inside = simplex.simplex_pixels(120)
        density = np.exp(simplex.log_density(belief_of(*MIXED), [0, 1, 2], points))
        share = density / inside.sum()  # every pixel has the same area
        assert share.sum() == pytest.approx(1, abs=0.02)
        for column in range(3):
            for low, high in ((0, 0.2), (0.2, 0.5), (0.5, 1)):
                there = (points[:, column] >= low) & (points[:, column] < high)
                drawn = (draws[:, column] >= low) & (draws[:, column] < high)
                assert share[there].sum() == pytest.approx(drawn.mean(), abs=0.02)

    def test_a_gate_moves_the_components(self) -> None:
        gated = replace(belief_of(*MIXED), log_gate=torch.tensor([[0.2, 0.9, 0.5, 0.5]]).log())
        found = simplex.log_density(gated, [0, 1, 2], self.points)
        assert np.allclose(found, simplex.log_density(gated.gated(), [0, 1, 2], self.points))
        plain = simplex.log_density(belief_of(*MIXED), [0, 1, 2], self.points)
        assert not np.allclose(found, plain)

    @pytest.mark.parametrize("size", [1e-300, 1e-8, 1e8])
    def test_extreme_evidence_stays_a_number(self, size: float) -> None:
        belief = belief_of([[size, 2 * size, 3 * size]], [1.0])
        assert not np.isnan(simplex.log_density(belief, [0, 1, 2], self.points)).any()
        assert np.isfinite(simplex.corner_mass(belief, [0, 1, 2])).all()

    def test_little_evidence_lies_at_the_corners(self) -> None:
        """In the limit a draw is a corner, with the probability of its class."""
        found = simplex.corner_mass(belief_of([[1e-6, 2e-6, 7e-6]], [1.0]), [0, 1, 2])
        assert np.allclose(found, [0.1, 0.2, 0.7], atol=1e-3)

    def test_the_mass_at_a_corner_is_scipys(self) -> None:
        found = simplex.corner_mass(belief_of(*MIXED), [3, 1, 2], beyond=0.6)
        expected = np.zeros(3)
        for alpha, weight in zip(*MIXED, strict=True):
            chosen = np.array(alpha)[[3, 1, 2]]
            expected += weight * stats.beta.sf(0.6, chosen, chosen.sum() - chosen)
        assert np.allclose(found, expected)

    def test_pixels_are_barycentric(self) -> None:
        points, inside = simplex.simplex_pixels(30)
        assert np.allclose(points.sum(axis=1), 1)
        assert (points > 0).all()
        assert inside.shape == (26, 30)
        assert inside.mean() == pytest.approx(0.5, abs=0.03)
        row, column = np.argwhere(inside)[7]
        at = points[7] @ simplex._CORNERS
        assert at == pytest.approx([(column + 0.5) / 30, (row + 0.5) / 26 * np.sqrt(3) / 2])

    def test_inputs_and_classes_are_chosen_by_all_methods(self) -> None:
        def batch(*rows: list[float]) -> Belief:
            p = torch.tensor(rows, dtype=torch.float64)
            return Belief(p.log()[:, None], torch.zeros(len(rows), 1, dtype=torch.float64))

        sure, unsure, other = [0.96, 0.02, 0.01, 0.01], [0.25] * 4, [0.4, 0.4, 0.1, 0.1]
        assert simplex.extremes([batch(other, sure, unsure), batch(other, sure, other)]) == (1, 2)
        one, two = batch([0.5, 0.1, 0.15, 0.25]), batch([0.1, 0.1, 0.6, 0.2])
        assert simplex.top_classes([one, two]) == [2, 0, 3]

    def test_from_records(self, small_results: Results) -> None:
        figure = FIGURES["dirichlet-comp"].draw(small_results)
        assert figure.get_figwidth() == pytest.approx(6.8)
        assert len(figure.axes) == 4 * 4 + 1  # inputs, three methods, and the colours
        labels = [axes.get_ylabel() for axes in figure.axes]
        assert [label for label in labels[:-1] if label] == ["GEM-CORE", "GEM-MIX", "GEM-FI"]
        titles = [axes.get_title() for axes in figure.axes[:4]]
        assert [re.sub(r"\d+", "n", title) for title in titles[:2]] == [
            "test n:\nsurest",
            "test n:\nleast sure",
        ]
        assert titles[2:] == ["near OOD:\ndigits-8-9", "far OOD:\nnoise"]
        run = small_results.runs("gem-mix")[0]
        belief = simplex.example_beliefs(small_results, run, "noise")[0]
        evidence = float(torch.exp(-scores.evidence(belief)))
        vacuity = 7 / (7 + evidence)
        (told,) = [text for text in texts_of(figure.axes[8 + 3]) if text.startswith("S = ")]
        first, second = told.removeprefix("S = ").split("\nvacuity ")
        assert number(first) == pytest.approx(evidence, rel=0.06)
        assert number(second) == pytest.approx(vacuity, rel=0.06)

    def test_examples_are_those_of_the_model(self, small_results: Results) -> None:
        run = small_results.runs("gem-fi")[0]
        belief = simplex.example_beliefs(small_results, run, "test")
        arrays = small_results.arrays(run)["test"]
        for name in ("evidence", "entropy", "vacuity", "mutual_information"):
            found = scores.SCORES[name](belief)
            assert np.allclose(found, arrays[f"score/{name}"][: len(found)], rtol=1e-3, atol=1e-5)

    def test_what_is_missing_is_said(self, small_results: Results) -> None:
        with pytest.raises(Unavailable, match="no run of GEM-CORE is here"):
            FIGURES["dirichlet-comp"].draw(without(small_results, "gem-core"))
        run = small_results.runs("softmax")[0]
        with pytest.raises(Unavailable, match="no examples of test with evidence"):
            simplex.example_beliefs(small_results, run, "test")

    @pytest.mark.parametrize(
        ("value", "told"),
        [(0.0, "0"), (12.345, "12.3"), (1234.6, "1,235"), (2.4e-5, r"$2.4\cdot 10^{-5}$")],
    )
    def test_numbers_are_short(self, value: float, told: str) -> None:
        assert simplex._number(value) == told

    def test_pictures_of_every_kind(self) -> None:
        belief = belief_of(*MIXED)
        classes = [(0, "a"), (1, "b"), (2, "c")]
        grey = np.zeros((1, 4, 4), dtype=np.uint8)
        colour = np.random.default_rng(0).normal(size=(3, 4, 4))
        columns = [
            simplex.Column(title, picture, classes, {"gem-fi": belief})
            for title, picture in (("g", grey), ("c", colour), ("f", np.zeros(1280)))
        ]
        figure = simplex.draw_simplices(columns)
        assert [len(axes.images) for axes in figure.axes[:3]] == [1, 1, 0]
        alone = simplex.draw_simplices(columns[2:] * 3)
        assert alone.get_figheight() < figure.get_figheight()  # no room for what cannot be seen
        shown = np.asarray(figure.axes[1].images[0].get_array())
        assert shown.shape == (4, 4, 3)
        assert shown.min() >= 0
        assert shown.max() <= 1


def texts_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def number(text: str) -> float:
    """A number as the figure tells it."""
    plain = text.strip("$").replace(",", "").replace(r"\cdot 10^{", "e").rstrip("}")
    return float(plain)


# -- embeddings -----------------------------------------------------------------------------------


class TestEmbedding:
    def test_unit_norm(self) -> None:
        features = np.array([[3.0, 4.0], [0.0, 0.0], [-1e-20, 0.0]])
        assert np.allclose(embedding.unit(features), [[0.6, 0.8], [0, 0], [-1, 0]])

    def test_groups_come_out_apart_and_the_same_each_time(self) -> None:
        rng = np.random.default_rng(0)
        features = np.concatenate([rng.normal(size=(15, 6)), 30 + rng.normal(size=(15, 6))])
        points = embedding.embedded(features)
        assert points.shape == (30, 2)
        assert np.array_equal(points, embedding.embedded(features))
        groups = np.repeat([0, 1], 15)
        assert embedding.purity(points, groups, 5) == 100

    def test_features_that_are_all_the_same_have_no_picture(self) -> None:
        with pytest.raises(Unavailable, match="features differ"):
            embedding.embedded(np.ones((20, 3)))
        with pytest.raises(Unavailable, match="at least four inputs"):
            embedding.embedded(np.arange(6.0).reshape(3, 2))

    @pytest.mark.parametrize(("count", "neighbours"), [(40, 10), (6, 10), (12, 1)])
    def test_purity_is_that_of_a_slow_search(self, count: int, neighbours: int) -> None:
        rng = np.random.default_rng(count)
        features, groups = rng.normal(size=(count, 3)), rng.integers(0, 3, count)
        shares: dict[int, list[float]] = {}
        for i in range(count):
            distance = [
                (float(np.linalg.norm(features[i] - features[j])), j)
                for j in range(count)
                if j != i
            ]
            nearest = [j for _, j in sorted(distance)[:neighbours]]
            same = [groups[j] == groups[i] for j in nearest]
            shares.setdefault(int(groups[i]), []).append(sum(same) / len(same))
        expected = 100 * np.mean([np.mean(each) for each in shares.values()])
        assert embedding.purity(features, groups, neighbours) == pytest.approx(expected)

    @pytest.fixture
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Principal components in place of t-SNE, which has a test of its own."""
        monkeypatch.setattr(embedding, "embedded", PCA(2).fit_transform)

    @pytest.mark.usefixtures("_quick")
    def test_legends_below_leave_room_for_absent_sets(
        self, small_results: Results, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Results, "is_absent", lambda _, name: name == "shuffled")
        figure = FIGURES["tsne-fi"].draw(small_results)
        figure.draw_without_rendering()
        note = next(each for each in figure.texts if "absent" in each.get_text())
        lowest = min(each.get_window_extent().y0 for each in figure.legends)
        highest = max(each.get_window_extent().y1 for each in figure.legends)
        assert note.get_window_extent().y1 <= lowest
        assert highest < min(each.get_window_extent().y0 for each in figure.axes)

    @pytest.mark.usefixtures("_quick")
    def test_one_row_of_three(self, small_results: Results) -> None:
        figure = FIGURES["tsne-fi"].draw(small_results)
        before, after, outside = figure.axes
        arrays = small_results.arrays(small_results.runs("gem-fi")[0])
        features = arrays["test"]["features"].astype(np.float64)
        count = len(features)
        for axes, embedded in ((before, features), (after, embedding.unit(features))):
            (drawn,) = axes.collections
            expected = PCA(2).fit_transform(embedded)
            found = np.asarray(drawn.get_offsets())
            assert np.allclose(np.sort(found, axis=0), np.sort(expected, axis=0))
        (drawn,) = outside.collections
        far = sum(len(arrays[name]["features"]) for name in ("noise", "inverted", "shuffled"))
        near = len(arrays["digits-8-9"]["features"])
        assert len(np.asarray(drawn.get_offsets())) == count + min(near, 400) + min(far, 400)
        purity = embedding.purity(features, arrays["test"]["label"][:count].astype(np.int64))
        assert [each.get_text() for each in before.texts] == [f"10-NN {purity:.1f} %"]
        names = [[t.get_text() for t in legend.get_texts()] for legend in figure.legends]
        assert names == [list("0123456"), ["ID test", "near OOD", "far OOD"]]

    @pytest.mark.usefixtures("_quick")
    def test_three_by_three(self, small_results: Results) -> None:
        figure = FIGURES["tsne-comparison"].draw(small_results)
        assert len(figure.axes) == 9
        labels = [axes.get_ylabel() for axes in figure.axes[::3]]
        assert labels == ["GEM-CORE", "GEM-MIX", "GEM-FI"]
        with pytest.raises(Unavailable, match="no run of GEM-MIX"):
            FIGURES["tsne-comparison"].draw(without(small_results, FAMILY[1]))

    def test_frozen_features_are_not_drawn_three_times(
        self, small_results: Results, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backbone = small_results.runs("gem-fi")[0].spec["backbone"]
        monkeypatch.setattr(embedding, "FROZEN", backbone)
        with pytest.raises(Unavailable, match="the features are the same for every method"):
            FIGURES["tsne-comparison"].draw(small_results)

    def test_colours_stay_with_their_groups(self) -> None:
        points = np.arange(12.0).reshape(6, 2)
        groups = np.array([0, 1, 2, 0, 1, 2])
        panel = embedding.Panel(
            "t", points, groups, ["x", "y", "z"], ["#ff0000", "#00ff00", "#0000ff"], 1.0
        )
        figure = embedding.draw_panels({"gem-fi": [panel]})
        (drawn,) = figure.axes[0].collections
        for at, color in zip(np.asarray(drawn.get_offsets()), drawn.get_facecolor(), strict=True):
            index = int(np.flatnonzero((points == at).all(axis=1))[0])
            assert int(np.argmax(color[:3])) == groups[index]
