"""Calibration, distributions, support and conflict: what is drawn, against slow computations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.text import Text
from scipy import stats
from sklearn.metrics import roc_auc_score

from gemfi import metrics
from gemfi._drawing import MUTED
from gemfi.metrics import Floats
from gemfi_bench.figures import calibration, common, conflict, distributions, scatter, support
from gemfi_bench.figures.common import FAR, ID, NEAR, needed, shown_row
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

FAR_SETS = ["noise", "inverted", "shuffled"]
RNG = np.random.default_rng(0)


Adapter = Callable[[Results], Figure]


@pytest.fixture(scope="module")
def drawn(small_results: Results) -> Callable[[Adapter], Figure]:
    """Draws a figure of the small bench, once."""
    return cache(lambda adapter: adapter(small_results))


def first(results: Results, row: str = "gem-fi") -> RunRecord:
    return results.runs(row)[0]


def words(axes: Axes | Figure) -> list[str]:
    return [each.get_text() for each in axes.findobj(Text) if each.get_text()]


def auroc(inside: Floats, outside: Floats) -> float:
    flags = np.arange(len(inside) + len(outside)) >= len(inside)
    return 100 * float(roc_auc_score(flags, np.concatenate([inside, outside])))


class TestReliability:
    def test_bars_are_the_accuracy_of_each_bin(
        self, small_results: Results, drawn: Callable[[Adapter], Figure]
    ) -> None:
        axes = panel(drawn(calibration.reliability), "EDL")
        test = small_results.arrays(first(small_results, "edl"))["test"]
        probs = np.exp(test["log_probs"].astype(np.float64))
        bars = [each for each in axes.patches if isinstance(each, Rectangle)]
        full = 0
        for number in range(15):
            low, high = number / 15, (number + 1) / 15
            inside = [
                (p.max(), p.argmax() == label)
                for p, label in zip(probs, test["label"], strict=True)
                if low < p.max() <= high
            ]
            if not inside:
                continue
            confidence, accuracy = np.mean(inside, axis=0)
            bar, gap = bars[full], bars[len(bars) // 2 + full]
            full += 1
            assert bar.get_x() == pytest.approx(low)
            assert bar.get_height() == pytest.approx(min(accuracy, confidence))
            assert gap.get_y() == bar.get_height()
            assert gap.get_height() == pytest.approx(abs(accuracy - confidence))
            over = same_color(gap, "#c0392b")
            assert over == (confidence > accuracy)
            assert over != same_color(gap, MUTED)  # as the legend has them
        assert full == len(bars) // 2

    def test_the_ece_is_over_all_seeds_and_counts_are_below(
        self, small_results: Results, drawn: Callable[[Adapter], Figure]
    ) -> None:
        figure = drawn(calibration.reliability)
        value = small_results.value("edl", lambda run: run.numbers["test"]["id"]["ece"])
        assert value is not None
        assert f"ECE {value.mean:.1f} ± {value.std:.1f}" in words(panel(figure, "EDL"))
        counts = figure.axes[figure.axes.index(panel(figure, "EDL")) + 1]
        heights = [each.get_height() for each in counts.patches if isinstance(each, Rectangle)]
        assert sum(heights) == 253

    def test_any_number_of_methods_fits(self) -> None:
        probs = RNG.dirichlet(np.ones(3), size=50)
        labels = RNG.integers(0, 3, size=50)
        one = calibration.Calibrated("one", "red", probs, labels, "1.0")
        for count in (1, 4, 5):
            assert len(calibration.draw_reliability([one] * count).axes) == 2 * count


def same_color(bar: Rectangle, color: str) -> bool:
    return bool(np.allclose(bar.get_facecolor()[:3], to_rgb(color)))


def panel(figure: Figure, title: str) -> Axes:
    return next(each for each in figure.axes if each.get_title() == title)


class TestConfidence:
    METHOD = calibration.Confidence(
        "one",
        "red",
        [np.array([0.9, 0.8, 0.4]), np.array([0.7, 0.6, 0.5])],
        [np.array([True, True, False]), np.array([True, True, True])],
    )

    def test_means_are_over_the_runs_that_have_such_predictions(self) -> None:
        assert [run.tolist() for run in self.METHOD.by_run(True)] == [[0.9, 0.8], [0.7, 0.6, 0.5]]
        assert [run.tolist() for run in self.METHOD.by_run(False)] == [[0.4], []]

    def test_diamonds_and_numbers(self) -> None:
        (axes,) = calibration.draw_confidence([self.METHOD]).axes
        diamonds = [each.get_xdata()[0] for each in axes.lines if each.get_marker() == "D"]
        assert diamonds == pytest.approx([0.725, 0.4])
        assert {"5", "1"} <= set(words(axes))

    def test_a_method_without_an_error_has_an_empty_lane(self) -> None:
        method = calibration.Confidence("x", "red", [np.array([0.9])], [np.array([True])])
        (axes,) = calibration.draw_confidence([method]).axes
        assert len(axes.lines) == 3
        assert "0" in words(axes)

    def test_from_results(self, small_results: Results, drawn: Callable[[Adapter], Figure]) -> None:
        (axes,) = drawn(calibration.confidence).axes
        labels = [each.get_text() for each in axes.get_yticklabels()]
        assert labels[0] == "Softmax"
        assert labels[-1] == "GEM-FI"
        right, wrong = [], []
        for run in small_results.runs("softmax"):
            test = small_results.arrays(run)["test"]
            for logs, label in zip(test["log_probs"], test["label"], strict=True):
                (right if logs.argmax() == label else wrong).append(np.exp(logs.max()))
        texts = words(axes)
        assert {str(len(right)), str(len(wrong))} <= set(texts)


class TestHistograms:
    def test_shares_count_what_lies_beyond_in_the_last_bins(self) -> None:
        edges = np.array([0.0, 1.0, 2.0])
        found = distributions.shares(np.array([-np.inf, 0.5, 1.5, 7.0, np.inf]), edges)
        assert found.tolist() == [0.4, 0.6]

    def test_edges_are_even_in_the_logarithm_of_a_positive_score(self) -> None:
        values = 10.0 ** RNG.uniform(-6, 0, size=1000)
        steps = np.diff(np.log10(distributions.histogram_edges("entropy", [values, values])))
        np.testing.assert_allclose(steps, steps[0])
        plain = np.diff(distributions.histogram_edges("evidence", [np.log(values)]))
        np.testing.assert_allclose(plain, plain[0])

    def test_a_score_of_zero_can_be_shown(self) -> None:
        values = {ID: np.zeros(20), NEAR: RNG.uniform(0.1, 1, size=20)}
        panel = distributions.Mirrored("entropy", values, "")
        figure = distributions.draw_histograms({"Entropy": [panel]}, ["a"])
        figure.draw_without_rendering()
        assert figure.axes[0].get_xlim()[0] > 0

    def test_rows_are_scores_and_columns_sets(
        self, small_results: Results, drawn: Callable[[Adapter], Figure]
    ) -> None:
        figure = drawn(distributions.histograms)
        assert len(figure.axes) == 3 * 4
        sets = small_results.arrays(first(small_results))
        expected = auroc(
            sets["test"]["score/mutual_information"], sets["noise"]["score/mutual_information"]
        )
        assert f"AUROC {expected:.1f}" in words(figure.axes[2 * 4 + 1])
        assert [each.get_title() for each in figure.axes[:4]] == ["digits-8-9", *FAR_SETS]
        heights = figure.axes[0].patches[0].get_data().values  # type: ignore[attr-defined]
        assert heights.max() == 1.0

    @pytest.mark.parametrize(
        ("value", "text"),
        [(1.0, "1"), (0.003, "0.003"), (1e-5, "$10^{-5}$"), (3e-5, "3·$10^{-5}$"), (0.0, "")],
    )
    def test_numbers_of_a_logarithmic_axis(self, value: float, text: str) -> None:
        assert common.power_text(value) == text


class TestBoxes:
    def test_lines_are_quantiles(
        self, small_results: Results, drawn: Callable[[Adapter], Figure]
    ) -> None:
        figure = drawn(distributions.boxes)
        index = distributions.BOXES.index("evidence")
        axes = figure.axes[index]
        values = needed(small_results, first(small_results, "edl"), ["test"], "score/evidence")
        medians = {float(np.mean(each.get_ydata())) for each in axes.lines}
        assert min(abs(each - np.median(values)) for each in medians) < 1e-9
        ends = np.concatenate([each.get_ydata() for each in axes.lines])
        inner = values[
            (values >= np.quantile(values, 0.05)) & (values <= np.quantile(values, 0.95))
        ]
        assert np.isclose(ends, inner.max()).any()
        boxes = [each for each in axes.patches if isinstance(each, PathPatch)]
        assert len(boxes) == 6 * 3

    def test_mutual_information_of_one_head_and_no_evidence_is_left_out(self) -> None:
        values = {ID: RNG.normal(size=30), NEAR: np.append(RNG.normal(size=29), np.inf)}
        method = distributions.Boxes("a", "red", values)
        low, high = distributions.finite_range("evidence", [method])
        assert np.isfinite([low, high]).all()
        figure = distributions.draw_boxes({"evidence": [method]})
        figure.draw_without_rendering()  # no warning
        assert distributions.finite_range("entropy", [method])[0] == common.LEAST

    @pytest.mark.parametrize(("others", "name"), [(3, "GEM-FI"), (4, "GEM-\nFI")])
    def test_names_are_broken_where_many_stand_beside_each_other(
        self, others: int, name: str
    ) -> None:
        values = {ID: RNG.normal(size=30), NEAR: RNG.normal(size=30)}
        labels = [*"abcde"[:others], "GEM-FI"]
        figure = distributions.draw_boxes(
            {"evidence": [distributions.Boxes(each, "red", values) for each in labels]}
        )
        assert figure.axes[0].get_xticklabels()[-1].get_text() == name


class TestScatter:
    def test_points_are_the_inputs(
        self, small_results: Results, drawn: Callable[[Adapter], Figure]
    ) -> None:
        figure = drawn(scatter.scatter)
        run = first(small_results)
        axes = figure.axes[1]  # noise
        test, noise = (small_results.arrays(run)[name] for name in ("test", "noise"))
        clouds = [each for each in axes.collections if isinstance(each, PathCollection)]
        points = np.asarray(clouds[1].get_offsets())
        rows = np.linspace(0, len(noise["score/entropy"]) - 1, len(points)).round().astype(int)
        expected = np.clip(noise["score/entropy"][rows], *axes.get_xlim())
        np.testing.assert_allclose(points[:, 0], expected)
        found = [auroc(test[f"score/{s}"], noise[f"score/{s}"]) for s in scatter_scores()]
        assert f"AUROC: entropy {found[0]:.1f}, MI {found[1]:.1f}" in words(axes)

    def test_corruptions_and_errors_have_panels_of_their_own(
        self, small_results: Results, drawn: Callable[[Adapter], Figure]
    ) -> None:
        figure = drawn(scatter.scatter)
        assert len(figure.axes) == 4 + 2
        test = small_results.arrays(first(small_results))["test"]
        wrong = int((test["prediction"] != test["label"]).sum())
        clouds = [each for each in figure.axes[5].collections if isinstance(each, PathCollection)]
        sizes = [len(np.asarray(each.get_offsets())) for each in clouds]
        assert sizes == [len(test["label"]) - wrong, wrong]

    def test_no_error_is_no_area(self) -> None:
        some, none = RNG.uniform(0.1, 1, size=9), np.array([])
        figure = scatter.draw_scatter(
            {"x": (scatter.Cloud(ID, some, some), scatter.Cloud(scatter.WRONG, none, none))}
        )
        assert not any("AUROC" in each for each in words(figure))


def scatter_scores() -> tuple[str, str]:
    return "entropy", "mutual_information"


class TestSupport:
    def test_bins_hold_as_many_inputs_each(self) -> None:
        distance, values = RNG.uniform(size=57), RNG.normal(size=57)
        x, y = support.binned(distance, values, 10)
        pairs = sorted(zip(distance, values, strict=True))
        for number in range(10):
            size = 6 if number < 7 else 5
            chosen, pairs = pairs[:size], pairs[size:]
            assert x[number] == pytest.approx(np.mean([a for a, _ in chosen]))
            assert y[number] == pytest.approx(np.mean([b for _, b in chosen]))
        assert not pairs
        assert len(support.binned(distance[:3], values[:3])[0]) == 3

    def test_a_trend_is_mean_and_range_over_seeds(self, small_results: Results) -> None:
        row = shown_row(small_results, "daedl")
        found = support.trend(small_results, row, FAR_SETS, support.score("entropy"))
        assert found is not None
        runs = [
            support.binned(
                needed(small_results, run, FAR_SETS, "part/distance"),
                needed(small_results, run, FAR_SETS, "score/entropy"),
            )
            for run in row.runs
        ]
        assert len(runs) == 2
        np.testing.assert_allclose(found.distance, (runs[0][0] + runs[1][0]) / 2)
        np.testing.assert_allclose(found.mean, (runs[0][1] + runs[1][1]) / 2)
        np.testing.assert_array_equal(found.low, np.minimum(runs[0][1], runs[1][1]))
        np.testing.assert_array_equal(found.high, np.maximum(runs[0][1], runs[1][1]))

    def test_the_means_of_single_inputs_are_the_metrics(self, small_results: Results) -> None:
        run = first(small_results)
        test = small_results.arrays(run)["test"]
        numbers: dict[str, Any] = run.numbers["test"]["id"]
        for measure, name in (
            (support.log_loss, "nll"), (support.brier, "brier"), (support.accuracy, "accuracy"),
        ):  # fmt: skip
            values = measure(small_results, run, ["test"])
            assert values is not None
            assert len(values) == len(test["label"])
            assert values.mean() == pytest.approx(numbers[name], rel=1e-5)
            assert measure(small_results, run, ["noise"]) is None  # it has no labels

    def test_energy_is_in_units_of_the_test_data(self, small_results: Results) -> None:
        run = first(small_results)
        measure = support.standardised("energy")
        inside = measure(small_results, run, ["test"])
        outside = measure(small_results, run, ["noise"])
        assert inside is not None
        assert outside is not None
        sets = small_results.arrays(run)
        scored = stats.zmap(
            sets["noise"]["score/energy"].astype(float), sets["test"]["score/energy"].astype(float)
        )
        np.testing.assert_allclose(outside, scored)
        assert inside.std() == pytest.approx(1)
        assert measure(small_results, first(small_results, "edl"), ["test"]) is None

    def test_lines_and_panels(
        self, small_results: Results, drawn: Callable[[Adapter], Figure]
    ) -> None:
        figure = drawn(support.uncertainty)
        assert len(figure.axes) == 2 * 3
        assert [len(axes.lines) for axes in figure.axes] == [5] * 6
        row = shown_row(small_results)
        expected = support.trend(small_results, row, ["digits-8-9"], support.score("max_prob"))
        assert expected is not None
        line = figure.axes[4].lines[-1]  # near OOD, GEM-FI is drawn last
        np.testing.assert_array_equal(line.get_ydata(), expected.mean)
        assert len(drawn(support.calibration).axes) == 2
        assert len(drawn(support.accuracy_confidence).axes) == 3

    def test_energies_that_are_not_learned_are_dashed(
        self, drawn: Callable[[Adapter], Figure]
    ) -> None:
        lines = drawn(support.energy).axes[0].lines
        assert [each.get_linestyle() for each in lines].count("-") == 3
        assert len(lines) == 5


class TestConflict:
    def test_half_of_each_is_the_recorded_score(self, small_results: Results) -> None:
        test = small_results.arrays(first(small_results))["test"]
        parts = conflict.Parts(test["part/between"], test["part/within"])
        np.testing.assert_allclose(parts.mixed(0.5), test["score/conflict"], rtol=1e-5)
        np.testing.assert_array_equal(parts.mixed(0), test["part/between"])
        np.testing.assert_array_equal(parts.mixed(1), test["part/within"])

    def test_areas(self, small_results: Results, drawn: Callable[[Adapter], Figure]) -> None:
        figure = drawn(conflict.conflict)
        last = figure.axes[-1]
        near = last.lines[0]
        place = conflict.MIXES.index(0.25)
        expected = []
        for run in small_results.runs("gem-fi"):
            sets = small_results.arrays(run)
            inside, outside = (
                0.75 * sets[name]["part/between"] + 0.25 * sets[name]["part/within"]
                for name in ("test", "digits-8-9")
            )
            expected.append(auroc(inside, outside))
        assert near.get_ydata()[place] == pytest.approx(np.mean(expected), abs=1e-6)
        assert near.get_xdata()[place] == 0.25

    def test_medians(self, small_results: Results, drawn: Callable[[Adapter], Figure]) -> None:
        axes = drawn(conflict.conflict).axes[-2]
        far = axes.lines[2]
        between, within = (
            needed(small_results, first(small_results), FAR_SETS, f"part/{name}")
            for name in ("between", "within")
        )
        assert far.get_ydata()[-1] == pytest.approx(np.median(within))
        assert far.get_ydata()[0] == pytest.approx(np.median(between))

    def test_the_plane_is_the_score_of_both_parts(self) -> None:
        run = {
            group: conflict.Parts(10.0 ** RNG.uniform(-5, -1, 40), 10.0 ** RNG.uniform(-5, -1, 40))
            for group in (ID, NEAR, FAR)
        }
        figure = conflict.draw_conflict([run])
        titles = [each.get_title(loc="left") for each in figure.axes[:5]]
        assert [title[-4:].strip(" =") for title in titles] == ["0", "0.25", "0.5", "0.75", "1"]
        assert len(figure.axes) == 5 + 1 + 2  # planes, colour bar, medians and areas
        assert (
            metrics.auroc(run[ID].mixed(1), run[FAR].mixed(1)) == conflict.areas([run], FAR)[0][-1]
        )

    def test_one_head_has_no_conflict_between_heads(
        self, small_results: Results, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(common, "shown_row", lambda results: shown_row(results, "gem-core"))
        with pytest.raises(Unavailable, match=r"^GEM-CORE has one head here"):
            conflict.conflict(small_results)
