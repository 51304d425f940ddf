from __future__ import annotations

import io
import itertools
import struct
import subprocess
import sys
from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from gemfi import metrics, scores
from gemfi._drawing import require_matplotlib, styled
from gemfi.errors import GemfiError, InputError
from gemfi.methods import METHODS
from gemfi.scores import SCORE_LABELS, SCORES
from gemfi_bench import demo
from gemfi_bench.demo import draw_figures
from gemfi_bench.figures import distributions
from gemfi_bench.figures import toys as figures_toys
from gemfi_bench.style import METHOD_COLORS, method_color
from gemfi_bench.toys import Run

SIZES = {  # inches × 150 dots
    "two-moons": (1200, 612),
    "line": (1200, 952),
    "reliability": (1200, 457),
    "histograms": (1200, 1050),
}


def of(runs: list[Run], task: str) -> list[Run]:
    return [run for run in runs if run.plan.task == task]


class TestDrawing:
    def test_names_and_sizes(self, figures: dict[str, bytes]) -> None:
        assert list(figures) == list(SIZES)
        for name, png in figures.items():
            assert png.startswith(b"\x89PNG\r\n\x1a\n")
            assert struct.unpack(">II", png[16:24]) == SIZES[name]

    def test_pictures_can_be_read_and_are_not_blank(self, figures: dict[str, bytes]) -> None:
        for png in figures.values():
            picture = Image.open(io.BytesIO(png)).convert("RGB")
            assert len(picture.getcolors(2**24) or []) > 50
            assert (
                np.asarray(picture)[0] == 255
            ).all()  # white ground, so that a dark page does no harm

    def test_the_same_runs_give_the_same_bytes(
        self, runs: list[Run], figures: dict[str, bytes]
    ) -> None:
        """Whatever the user's own settings of matplotlib are."""
        with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "image.cmap": "jet"}):
            assert draw_figures(runs) == figures

    def test_no_global_state_is_touched(self, runs: list[Run]) -> None:
        settings, modules = dict(mpl.rcParams), set(sys.modules)
        torch.manual_seed(7)
        state = torch.get_rng_state()
        draw_figures(of(runs, "line"))
        assert dict(mpl.rcParams) == settings
        assert "matplotlib.pyplot" not in set(sys.modules) - modules
        assert torch.equal(torch.get_rng_state(), state)

    @pytest.mark.parametrize(
        ("task", "names"),
        [("line", ["line"]), ("digits", ["reliability", "histograms"])],
    )
    def test_only_what_was_run_is_drawn(self, runs: list[Run], task: str, names: list[str]) -> None:
        assert list(draw_figures(of(runs, task)[-1:])) == names


class TestWithoutMatplotlib:
    @pytest.fixture
    def _missing(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        return

    @pytest.mark.usefixtures("_missing")
    def test_the_error_says_what_to_install(self) -> None:
        with pytest.raises(InputError, match=r"pip install '\.\[plot\]' in the clone") as caught:
            require_matplotlib()
        assert isinstance(caught.value, GemfiError)
        with pytest.raises(InputError, match="gemfi"):
            draw_figures([])

    @pytest.mark.usefixtures("_missing")
    def test_the_command_fails_before_training(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: object
    ) -> None:
        def train(*_: object, **__: object) -> None:
            pytest.fail("it trained")

        monkeypatch.setattr(demo, "run_demo", train)
        with pytest.raises(InputError, match="matplotlib"):
            demo.demo(out=str(tmp_path), quick=True)

    def test_the_demo_imports_without_it(self) -> None:
        code = "import sys; sys.modules['matplotlib'] = None; import gemfi_bench.demo"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


class TestStyle:
    def test_every_method_has_a_name_and_a_colour_of_its_own(self) -> None:
        assert set(METHODS) <= set(METHOD_COLORS)
        assert len(set(METHOD_COLORS.values())) == len(METHOD_COLORS)
        assert method_color("not yet") not in METHOD_COLORS.values()

    def test_every_score_that_a_method_names_has_a_label(self) -> None:
        named = {
            name for head in METHODS.values() for name in (head.info.aleatoric, head.info.epistemic)
        }
        assert named <= set(SCORE_LABELS) <= set(SCORES)


class TestToys:
    def test_relative_evidence_is_zero_at_the_median_and_ranks_as_evidence(
        self, runs: list[Run]
    ) -> None:
        for run in of(runs, "two-moons"):
            inside = figures_toys.relative_evidence(run, run.evaluation.belief)
            assert float(inside.median()) == 0
            outside = run.evaluation.ood_beliefs["cluster"]
            shifted = metrics.auroc(inside, figures_toys.relative_evidence(run, outside))
            assert shifted == pytest.approx(
                metrics.auroc(scores.evidence(run.evaluation.belief), scores.evidence(outside))
            )

    def test_a_tenth_of_the_evidence_is_one_more(self, runs: list[Run]) -> None:
        run = of(runs, "two-moons")[-1]
        belief = run.evaluation.belief
        poorer = type(belief)(
            **{**vars(belief), "log_evidence": belief.need("log_evidence") - np.log(10)}
        )
        difference = figures_toys.relative_evidence(run, poorer) - figures_toys.relative_evidence(
            run, belief
        )
        assert torch.allclose(difference, torch.ones_like(difference))

    @pytest.mark.parametrize("n", [1, 19, 20, 21, 500])
    def test_the_line_keeps_as_few_as_it_may(self, n: int) -> None:
        values = torch.rand(n, generator=torch.Generator().manual_seed(n))
        inside = int((values <= figures_toys.keeping(95, values)).sum())
        assert (inside - 1) / n < 0.95 <= inside / n

    def test_titles_side_by_side_do_not_touch(self, runs: list[Run]) -> None:
        with styled():
            figure = figures_toys.draw_line(of(runs, "line"), demo.WIDTH)
            FigureCanvasAgg(figure).draw()
        titles = [
            text
            for axes in figure.axes
            for text in (axes.title, axes._left_title)
            if text.get_text()
        ]
        boxes = [text.get_window_extent() for text in titles]
        assert len(boxes) == 6  # the methods above, their AUROC below
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))

    def test_weighted_heads_sum_to_the_predicted_curve(self, runs: list[Run]) -> None:
        """What the thin lines of the figure are."""
        belief = of(runs, "line")[-1].evaluation.belief
        heads = belief.gated()
        mixed = (heads.log_weight.exp()[..., None] * heads.log_p.exp()).sum(dim=1)
        assert torch.allclose(mixed, belief.probs())


class TestHistogramBins:
    @pytest.mark.parametrize("score", ["evidence", "unfamiliarity"])
    @pytest.mark.parametrize(
        "values",
        [[0.0, 0.0, 0.0], [0.5], [1e-30, 1.0], list(np.linspace(0.01, 1, 50))],
        ids=["zeros", "one", "tiny", "many"],
    )
    def test_edges_rise_and_hold_the_data(self, values: list[float], score: str) -> None:
        edges = distributions.histogram_edges(score, [np.array(values)])
        assert (np.diff(edges) > 0).all()
        inside = np.clip(values, edges[0], edges[-1])
        assert np.histogram(inside, edges)[0].sum() == len(values)

    def test_an_infinite_score_does_not_set_the_axis(self) -> None:
        edges = distributions.histogram_edges("evidence", [np.array([1.0, 2.0, np.inf])])
        assert np.isfinite(edges).all()
        assert edges[-1] < 3
