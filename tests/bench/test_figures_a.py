"""Curves and distributions: figures have the data that they claim, and nothing overlaps."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from gemfi import metrics
from gemfi._drawing import styled
from gemfi.metrics import Floats
from gemfi_bench.figures import FIGURES, common, curves
from gemfi_bench.figures.common import FAR, ID, NEAR, OTHER
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import method_label
from gemfi_bench.unavailable import Unavailable

LABELS = [
    "prroc", "pr-curves", "roc-curves", "reliability_id", "conf_correct_wrong", "hist-ood",
    "entropy-mi-scatter", "boxplots", "app:lambda", "supp-uncert", "supp-calib", "supp-accconf",
    "supp-energy",
]  # fmt: skip
FAR_SETS = ["noise", "inverted", "shuffled"]
RNG = np.random.default_rng(0)


Drawn = Callable[[str], Figure]


@pytest.fixture(scope="module")
def drawn(small_results: Results) -> Drawn:
    """Draws the figure of a label, once."""
    return cache(lambda label: FIGURES[label].draw(small_results))


@pytest.fixture
def empty_results(small_folder: Path, tmp_path: Path) -> Results:
    """A bench of which nothing has been run."""
    for name in ("protocol.json", "grid.json"):
        shutil.copy(small_folder / name, tmp_path / name)
    return Results(tmp_path)


def first(results: Results, row: str = "gem-fi") -> RunRecord:
    return results.runs(row)[0]


def panels(figure: Figure) -> list[Axes]:
    """Axes that show something."""
    return [each for each in figure.axes if each.axison]


def words(axes: Axes | Figure) -> list[str]:
    return [each.get_text() for each in axes.findobj(Text) if each.get_text()]


def together(*parts: Floats) -> tuple[Floats, Floats]:
    """Values one after the other, and 1 for those of the last part."""
    flags = np.concatenate([np.zeros(len(parts[0])), np.ones(len(parts[1]))])
    return np.concatenate(parts), flags


class TestEveryFigure:
    def test_the_labels_are_those_of_the_paper(self) -> None:
        assert set(LABELS) <= set(FIGURES)
        for entry in (FIGURES[label] for label in LABELS):
            assert len(entry.title) < 60
            assert entry.caption.endswith(".")
            assert "seed" in entry.caption

    @pytest.mark.parametrize("label", LABELS)
    def test_it_is_as_wide_as_a_column_or_the_text(self, drawn: Drawn, label: str) -> None:
        width, height = drawn(label).get_size_inches()
        assert width in (common.COLUMN, common.TEXT)
        assert 1.5 < height < 9.2

    @pytest.mark.parametrize("label", [each for each in LABELS if each != "roc-curves"])
    def test_texts_lie_inside_and_do_not_overlap(
        self, drawn: Drawn, label: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        figure = drawn(label)
        texts = placed_texts(figure, monkeypatch)
        assert len(texts) > 8
        page = figure.bbox
        for text, box in texts:
            outside = [page.x0 - box.x0, box.x1 - page.x1, page.y0 - box.y0, box.y1 - page.y1]
            assert max(outside) < 2, text
        for (one, a), (other, b) in combinations(texts, 2):
            across = min(a.x1, b.x1) - max(a.x0, b.x0)
            along = min(a.y1, b.y1) - max(a.y0, b.y0)
            assert min(across, along) < 2, f"{one!r} and {other!r}"

    def test_users_settings_change_nothing_and_are_kept(self, small_results: Results) -> None:
        usual = png(FIGURES["boxplots"].draw(small_results))
        with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "lines.linewidth": 9}):
            before = dict(mpl.rcParams)
            assert png(FIGURES["boxplots"].draw(small_results)) == usual
            assert dict(mpl.rcParams) == before

    @pytest.mark.parametrize("label", LABELS)
    def test_without_runs_it_says_so(self, empty_results: Results, label: str) -> None:
        with pytest.raises(Unavailable, match=r"no run of .* is here with its arrays|no OOD set"):
            FIGURES[label].draw(empty_results)

    def test_without_arrays_it_says_so(
        self, small_folder: Path, tmp_path: Path, empty_results: Results
    ) -> None:
        shutil.copy(small_folder / "records.jsonl", tmp_path / "records.jsonl")
        with pytest.raises(Unavailable, match=r"no run of GEM-FI is here with its arrays"):
            FIGURES["hist-ood"].draw(Results(tmp_path))


def placed_texts(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Every text that a figure really draws, and where it lies, in dots."""
    found: list[tuple[str, Any]] = []
    plain = Text.draw

    def noted(self: Text, renderer: Any) -> None:
        if self.get_text().strip() and self.get_visible():
            found.append((self.get_text(), self.get_window_extent(renderer)))
        plain(self, renderer)

    monkeypatch.setattr(Text, "draw", noted)
    with styled():
        figure.draw_without_rendering()
    return found


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format="png", metadata={"Software": None}, dpi=60)
    return buffer.getvalue()


class TestCommon:
    def test_rows_are_in_the_order_of_the_methods_asked_for(self, small_results: Results) -> None:
        rows = common.shown_rows(small_results, ["gem-fi", "no-such", "edl"])
        assert [each.row for each in rows] == ["gem-fi", "edl"]
        assert [each.label for each in rows] == ["GEM-FI", "EDL"]
        assert [each.is_ours for each in rows] == [True, False]
        assert list(rows[1].runs) == small_results.runs("edl")
        assert rows[1].first.spec["train"]["seed"] == 0

    def test_a_method_that_was_not_run_is_named(self, small_results: Results) -> None:
        with pytest.raises(Unavailable, match=r"^no run of PostNet, I-EDL is here"):
            common.shown_rows(small_results, ["postnet", "i-edl"])

    def test_leading_rows_are_filled_up_with_others(
        self, small_results: Results, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = ["softmax", "ensemble", "edl", "daedl", "re-edl", "gem-core", "gem-mix", "gem-fi"]
        assert [each.method for each in common.leading_rows(small_results)] == names
        monkeypatch.setattr(common, "METHODS", ("daedl", "gem-fi"))
        found = common.leading_rows(small_results, 4)
        assert [each.method for each in found] == ["softmax", "edl", "daedl", "gem-fi"]

    def test_groups_of_sets(self, small_results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
        assert common.ood_groups(small_results) == {NEAR: ["digits-8-9"], FAR: FAR_SETS}
        assert common.group_of(small_results)["inverted"] == FAR
        assert list(common.set_groups(small_results)) == [ID, NEAR, FAR]
        monkeypatch.setattr(Results, "is_absent", lambda _, name: name == "digits-8-9")
        assert common.ood_groups(small_results) == {FAR: FAR_SETS}

    def test_a_set_that_is_neither_near_nor_far(self, small_folder: Path) -> None:
        results = Results(small_folder)
        object.__setattr__(results.protocol, "near", ())
        object.__setattr__(results.protocol, "far", ("noise",))
        assert common.ood_groups(results) == {
            FAR: ["noise"],
            OTHER: ["digits-8-9", "inverted", "shuffled"],
        }

    def test_pooled_puts_sets_one_after_the_other(self, small_results: Results) -> None:
        run = first(small_results)
        sets = small_results.arrays(run)
        found = common.needed(small_results, run, FAR_SETS, "score/entropy")
        expected = [value for name in FAR_SETS for value in sets[name]["score/entropy"].tolist()]
        assert found.tolist() == expected
        assert common.pooled(small_results, run, ["test", "noise"], "label") is None
        with pytest.raises(Unavailable, match=rf"^run {run.key} has not kept part/x of test$"):
            common.needed(small_results, run, ["test"], "part/x")

    def test_limits_hold_the_bulk_of_every_set(self) -> None:
        many, few = np.arange(10_001.0), np.array([-500.0, -400.0, np.inf])
        low, high = common.quantile_limits([many, few], 0.01, margin=0.1)
        ends = -499.0, 9_900.0  # 1 % of the way between the two, and the 99th hundredth
        room = 0.1 * (ends[1] - ends[0])
        assert low == pytest.approx(ends[0] - room)
        assert high == pytest.approx(ends[1] + room)

    def test_an_even_choice_has_both_ends(self) -> None:
        assert common.even_choice(5, 9).tolist() == [0, 1, 2, 3, 4]
        assert common.even_choice(101, 5).tolist() == [0, 25, 50, 75, 100]
        assert common.even_choice(0, 5).tolist() == []

    def test_spread(self) -> None:
        assert common.spread([1.0, 3.0], 2) == "2.00 ± 1.41"
        assert common.spread([1.25]) == "1.2"

    def test_absent_sets_are_named_at_the_foot(
        self,
        small_results: Results,
        drawn: Drawn,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        assert not any("absent" in each for each in words(drawn("hist-ood")))
        monkeypatch.setattr(Results, "is_absent", lambda _, name: name in FAR_SETS[1:])
        figure = FIGURES["hist-ood"].draw(small_results)
        assert "data absent: inverted, shuffled" in words(figure)
        figure.draw_without_rendering()
        note = next(each for each in figure.texts if "absent" in each.get_text())
        lowest = min(each.get_tightbbox().y0 for each in figure.axes)  # type: ignore[union-attr]
        assert note.get_window_extent().y1 < lowest

    @pytest.mark.parametrize(
        ("absent", "said"),
        [
            ((), "seen in pretraining: digits-8-9"),
            (("noise",), "data absent: noise; seen in pretraining: digits-8-9"),
        ],
    )
    def test_sets_that_a_network_has_seen_are_named_at_the_foot(
        self,
        absent: tuple[str, ...],
        said: str,
        small_results: Results,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(Results, "is_absent", lambda _, name: name in absent)
        twin = small_results.watched()
        twin.protocol = replace(twin.protocol, seen=("digits-8-9",))
        assert said in words(FIGURES["hist-ood"].draw(twin))

    @pytest.mark.parametrize("label", ["reliability_id", "roc-curves"])
    def test_rows_without_arrays_are_named_at_the_foot(
        self, label: str, small_results: Results, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gone = [run.key for run in small_results.runs("edl")]
        gone.append(small_results.runs("daedl")[0].key)
        monkeypatch.setattr(Results, "has_arrays", lambda _, run: run.key not in gone)
        figure = FIGURES[label].draw(small_results.watched())
        assert "arrays absent: EDL, DAEDL (1 of 2 runs)" in words(figure)
        figure.draw_without_rendering()
        texts = {each.get_text(): each.get_window_extent() for each in figure.texts}
        (note,) = (extent for text, extent in texts.items() if "absent" in text)
        shared = texts[figure.get_supxlabel()]
        assert note.y1 <= shared.y0  # the label of all panels stands above the note
        below = min(each.get_tightbbox().y0 for each in figure.axes)  # type: ignore[union-attr]
        assert shared.y1 <= below


class TestCurves:
    def lines(self, axes: Axes) -> dict[str, Any]:
        return {str(each.get_label()): each for each in axes.lines}

    def test_overall_lines_are_the_curves_of_the_first_seed(
        self, small_results: Results, drawn: Drawn
    ) -> None:
        run = first(small_results, "daedl")
        key = f"score/{run.scores['epistemic']}"
        inside = common.needed(small_results, run, ["test"], key)
        near = common.needed(small_results, run, ["digits-8-9"], key)
        far = common.needed(small_results, run, FAR_SETS, key)
        expected = [
            metrics.pr_curve(inside, near, "id"), metrics.pr_curve(inside, far, "id"),
            metrics.roc_curve(inside, near), metrics.roc_curve(inside, far),
        ]  # fmt: skip
        for axes, curve in zip(panels(drawn("prroc")), expected, strict=True):
            line = self.lines(axes)["DAEDL"]
            begin = len(line.get_xdata()) - len(curve.x)  # 1 for precision: from no recall on
            np.testing.assert_array_equal(line.get_xdata()[begin:], curve.x)
            np.testing.assert_array_equal(line.get_ydata()[begin:], curve.y)

    def test_the_area_under_a_step_is_the_average_precision(self) -> None:
        """Also with many inputs of the same score."""
        inside, outside = RNG.integers(0, 4, size=40), RNG.integers(2, 7, size=60)
        scored = curves.Scored("a", "red", inside.astype(float), outside.astype(float), "", 0.0)
        x, y = curves.points("pr", scored)
        assert x[0] == 0
        values, is_ood = together(scored.inside, scored.outside)
        expected = average_precision_score(1 - is_ood, -values)
        assert float(np.diff(x) @ y[1:]) == pytest.approx(expected)
        assert y[0] == y[1]

    def test_a_line_of_precision_begins_with_the_first_id_input(self) -> None:
        """OOD inputs that are surer than all ID inputs have no recall to stand at."""
        inside, outside = np.array([1.0, 2.0]), np.array([0.0, 3.0])
        x, y = curves.points("pr", curves.Scored("a", "red", inside, outside, "", 0.0))
        np.testing.assert_allclose(x, [0, 0.5, 1, 1])
        np.testing.assert_allclose(y, [1 / 2, 1 / 2, 2 / 3, 1 / 2])

    def test_overall_areas_are_over_all_seeds(self, small_results: Results, drawn: Drawn) -> None:
        found: dict[str, list[float]] = {"AUPR": [], "AUROC": []}
        for run in small_results.runs("gem-fi"):
            key = f"score/{run.scores['epistemic']}"
            inside, outside = (
                common.needed(small_results, run, names, key) for names in (["test"], FAR_SETS)
            )
            values, is_ood = together(inside, outside)
            found["AUPR"].append(100 * average_precision_score(1 - is_ood, -values))
            found["AUROC"].append(100 * roc_auc_score(is_ood, values))
        legends = [axes for axes in drawn("prroc").axes if not axes.axison]
        for axes, (name, values_of) in zip(legends, found.items(), strict=True):
            assert words(axes)[0] == name
            last = words(axes)[-1].replace("±", " ± ")  # of GEM-FI, far OOD
            assert last == common.spread(values_of, 2)

    def test_chance_is_the_share_of_id(self, drawn: Drawn) -> None:
        near = panels(drawn("prroc"))[0].lines[-1]
        assert near.get_ydata()[0] == pytest.approx(253 / (253 + 354), abs=0.002)

    def test_by_score_has_a_panel_for_each_score_and_set(
        self, small_results: Results, drawn: Drawn
    ) -> None:
        axes = panels(drawn("roc-curves"))
        assert len(axes) == len(curves.SCORES) * 4
        lines = self.lines(axes[4 * curves.SCORES.index("entropy") + 1])
        assert len(lines) == 8 + 1  # and chance
        sets = small_results.arrays(first(small_results, "edl"))
        curve = metrics.roc_curve(sets["test"]["score/entropy"], sets["noise"]["score/entropy"])
        np.testing.assert_array_equal(lines["EDL"].get_xdata(), curve.x)

    def test_only_methods_that_have_a_score_are_there(self, drawn: Drawn) -> None:
        axes = panels(drawn("pr-curves"))
        several = self.lines(axes[4 * curves.SCORES.index("disagreement")])
        assert {"Ensemble", "GEM-MIX", "GEM-FI"} == set(several) - {chance(several)}
        energy = self.lines(axes[4 * curves.SCORES.index("energy")])
        assert {"GEM-CORE", "GEM-MIX", "GEM-FI"} == set(energy) - {chance(energy)}

    def test_ours_and_the_best_other_are_named(self, small_results: Results, drawn: Drawn) -> None:
        def mean(row: str) -> float:
            found = []
            for run in small_results.runs(row):
                sets = small_results.arrays(run)
                values, is_ood = together(
                    sets["test"]["score/max_prob"], sets["noise"]["score/max_prob"]
                )
                found.append(100 * roc_auc_score(is_ood, values))
            return float(np.mean(found))

        others = {row: mean(row) for row in small_results.rows() if row != "gem-fi"}
        best = max(others, key=others.__getitem__)
        texts = words(panels(drawn("roc-curves"))[1])
        assert f"GEM-FI {mean('gem-fi'):.1f}" in texts
        assert f"{method_label(best)} {others[best]:.1f}" in texts

    def test_the_axis_of_precision_begins_below_every_line(self) -> None:
        good = curves.Scored("a", "red", np.arange(50.0), np.arange(40.0, 90.0), "", 1.0)
        bad = curves.Scored("b", "blue", np.arange(40.0, 90.0), np.arange(50.0), "", 0.0)
        panels_of = {"entropy": {"x": [good], "y": [good]}, "energy": {"x": [bad], "y": [good]}}
        figure = curves.draw_by_score("pr", panels_of)
        bottoms = [axes.get_ylim()[0] for axes in figure.axes]
        assert bottoms[:2] == pytest.approx([0.5, 0.5], abs=0.05)
        assert bottoms[2] == bottoms[3] < 0.1

    @pytest.mark.parametrize("kind", ["pr", "roc"])
    def test_good_curves_are_shown_in_their_corner(self, kind: curves.Kind) -> None:
        """The bend of a normal score lies at an error rate of Φ(-distance / 2), about."""
        inside = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
        shown = {}
        for distance in (1.0, 3.0, 4.0, 9.0):
            scored = curves.Scored("a", "red", inside, inside + distance, "", 1.0)
            shown[distance] = curves.zoom(kind, [scored])
        assert shown == {1.0: 1.0, 3.0: 0.2, 4.0: 0.05, 9.0: 0.01}
        good, bad = (
            curves.Scored("a", "red", inside, inside + distance, "", 1.0) for distance in (4, 1)
        )
        assert curves.zoom(kind, [good, bad]) == 1.0
        figure = curves.draw_overall({kind: {"near OOD: x": [good], "far OOD: y": [bad]}})
        left, right = figure.axes[:2]
        assert left.get_ylim() == pytest.approx((0.949, 1.001))
        assert left.get_xlim() == pytest.approx(
            (-0.001, 0.051) if kind == "roc" else (0.949, 1.001)
        )
        assert right.get_xlim() == (-0.02, 1.02)


def chance(lines: Mapping[str, Any]) -> str:
    """The label that matplotlib gives to a line without one."""
    return next(name for name in lines if name.startswith("_"))
