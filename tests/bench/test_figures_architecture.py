"""The diagrams of architectures: true to the model, and readable."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyBboxPatch

from gemfi._drawing import styled
from gemfi.methods import PRESETS, GEMConfig
from gemfi.methods.daedl import DAEDLConfig
from gemfi.methods.gem import GEM
from gemfi.model import Model, build_model
from gemfi.outliers import NONE, VOS
from gemfi.spectral import SOFT, Spectral
from gemfi_bench.figures import FIGURES, architecture
from gemfi_bench.figures.architecture import (
    PAGE_WIDTH,
    Box,
    draw_diagrams,
    fitting,
    layer_lines,
    norms_line,
    sample_line,
    sizes_line,
)
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

OURS = PRESETS["gem-fi"]
BARE = replace(OURS, num_components=1, fi_reg_weight=0.0, ebm_weight=0.0, outliers=NONE)


def gem(config: GEMConfig = OURS, **options: Any) -> Model:
    return build_model(
        "gem-fi", "mlp", 5, config=config, **{"in_features": 3, "width": 8} | options
    )


def boxes(config: GEMConfig = OURS) -> dict[str, Box]:
    return dict(architecture.gem_diagram(gem(config)).boxes)


def arrows(config: GEMConfig) -> set[tuple[str, str]]:
    return set(architecture.gem_diagram(gem(config)).arrows)


CONFIGS = {
    "ours": OURS,
    "core": PRESETS["gem-core"],
    "bare": BARE,
    "many": replace(OURS, num_components=12, feature_space="unit", density_space="raw"),
    "no Fisher terms": replace(OURS, fi_reg_weight=0.0, fi_mod_strength=0.0),
}


class TestLayers:
    def test_equal_neighbours_are_counted(self) -> None:
        convnet = build_model("softmax", "convnet", 3, size=8, channels=6).backbone
        assert layer_lines(convnet) == ["3 × conv 5×5, 6"]
        assert sample_line(convnet, 6) == "1×8×8"
        mlp = build_model("softmax", "mlp", 3, in_features=2, width=9, depth=2).backbone
        assert layer_lines(mlp) == ["linear 2–9", "2 × linear 9–9"]
        assert sample_line(mlp, 9) == "2"

    def test_deep_networks_are_cut_short(self) -> None:
        resnet = build_model("softmax", "resnet18", 3, width=4, shortcut="project").backbone
        lines = layer_lines(resnet)
        assert len(lines) == 5
        assert lines[0] == "5 × conv 3×3, 4"
        assert lines[3:] == ["…", "2 × conv 3×3, 32"]

    def test_without_layers_inputs_are_features(self) -> None:
        identity = build_model("softmax", "identity", 3, in_features=7).backbone
        assert layer_lines(identity) == []
        assert sample_line(identity, 7) == "7"

    def test_sizes_and_norms(self) -> None:
        model = build_model("gem-fi", "mlp", 5, in_features=3, width=8)
        head = model.head
        assert isinstance(head, GEM)
        assert sizes_line(head.heads) == "8–5"
        assert sizes_line(head.energy) == "8–64–1"
        assert norms_line(head.heads) is None
        assert norms_line(model.backbone) is None
        paper = build_model("gem-paper", "mlp", 5, in_features=3, width=8).head
        assert sizes_line(paper.heads) == "8–128–5"
        hard = build_model("softmax", "mlp", 5, in_features=3, width=8, spectral=Spectral("hard"))
        assert norms_line(hard.backbone) == "spectral norm = 1"
        soft = build_model("softmax", "mlp", 5, in_features=3, width=8, spectral=SOFT)
        assert norms_line(soft.backbone) == "spectral norm ≤ 3"


class TestGEM:
    def test_it_shows_what_is_built(self) -> None:
        found = boxes()
        assert found["x"].lines == ("3",)
        assert found["backbone"].lines[:2] == ("linear 3–8", "4 × linear 8–8")
        assert found["z"].lines == ("8",)
        assert (found["heads"].title, found["heads"].stack) == ("3 heads", 3)
        assert found["router"].lines[0] == "9–64–3"
        assert found["energy"].lines[0] == "8–64–1"
        assert found["density"].lines[:2] == ("5 Gaussians", "one covariance")
        assert found["gate"].title == "gate: energy"
        assert found["outliers"].title == "outliers: halo"
        assert found["outliers"].kind == found["fisher"].kind == "training"

    @pytest.mark.parametrize(
        ("changes", "key", "expected"),
        [
            ({"num_components": 5}, "heads", "5 heads"),
            ({"num_components": 5}, "router", "9–64–5"),
            ({"feature_space": "unit"}, "heads", "unit-norm z"),
            ({"density_covariance": "class"}, "density", "shrinkage 0.3"),
            ({"density_space": "raw"}, "density", "raw z"),
            ({"rho_floor": 0.2}, "scaler", "at least 0.2"),
            ({"fi_reg_weight": 0.7}, "fisher", "penalty 0.7"),
            ({"outliers": VOS}, "outliers", "outliers: vos"),
            ({"num_components": 1}, "heads", "one head"),
            ({"num_components": 1}, "belief", "Dirichlet"),
        ],
    )
    def test_a_change_of_the_configuration_is_seen(
        self, changes: dict[str, Any], key: str, expected: str
    ) -> None:
        def told(config: GEMConfig) -> str:
            box = boxes(config)[key]
            return "\n".join([box.title, *box.lines])

        assert expected in told(replace(OURS, **changes))
        assert expected not in told(OURS)

    @pytest.mark.parametrize(
        ("changes", "gone"),
        [
            ({"num_components": 1}, {"router", "weights"}),
            ({"fi_reg_weight": 0.0, "fi_mod_strength": 0.0}, {"fisher"}),
            ({"num_components": 1, "fi_reg_weight": 0.0}, {"router", "weights", "fisher"}),
            ({"outliers": NONE}, {"outliers"}),
        ],
    )
    def test_what_is_switched_off_is_not_drawn(
        self, changes: dict[str, Any], gone: set[str]
    ) -> None:
        assert set(boxes()) - set(boxes(replace(OURS, **changes))) == gone

    @pytest.mark.parametrize("name", CONFIGS)
    def test_what_feeds_what(self, name: str) -> None:
        """The energy gates the evidence; density scales it; a router sees the energy too."""
        found, mixed = arrows(CONFIGS[name]), CONFIGS[name].num_components > 1
        assert {("energy", "gate"), ("gate", "alpha"), ("scaler", "output")} <= found
        assert (("energy", "router") in found) == (("weights", "belief") in found) == mixed

    @pytest.mark.parametrize("key", ["energy", "router"])
    def test_the_energy_sees_unit_norm_features(self, key: str) -> None:
        assert "unit-norm z" in boxes(OURS)[key].lines

    def test_one_head_is_no_mixture(self) -> None:
        found = boxes(PRESETS["gem-core"])
        assert (found["heads"].title, found["heads"].stack) == ("one head", 1)
        assert found["belief"].title == "Dirichlet"
        assert set(boxes(BARE)) == {
            "x", "backbone", "z", "energy", "gate", "heads", "alpha", "belief", "density",
            "scaler", "prediction", "output",
        }  # fmt: skip


class TestDAEDL:
    def test_it_shows_what_is_built(self) -> None:
        model = build_model("daedl", "convnet", 4, size=8, channels=6)
        found = architecture.daedl_diagram(model).boxes
        assert found["head"].lines == ("linear 6–4",)
        assert found["density"].lines[0] == "4 Gaussians"
        assert "outliers" not in found
        assert architecture.titled(model) == (
            f"DAEDL, {sum(each.numel() for each in model.parameters()):,} parameters"
        )

    def test_a_change_of_the_configuration_is_seen(self) -> None:
        config = DAEDLConfig(shrinkage=0.25, outliers=VOS)
        model = build_model("daedl", "mlp", 4, in_features=2, config=config)
        found = architecture.daedl_diagram(model).boxes
        assert "shrinkage 0.25" in found["density"].lines
        assert found["outliers"].title == "outliers: vos"


class TestDrawing:
    @pytest.mark.parametrize("name", CONFIGS)
    def test_boxes_are_apart_and_on_the_page(self, name: str) -> None:
        shown = architecture.gem_diagram(gem(CONFIGS[name]))
        height = shown.height
        places = shown.frames(height)
        for first, second in combinations(places.values(), 2):
            beside = first.x1 <= second.x0 or second.x1 <= first.x0
            above = first.y0 >= second.y1 or second.y0 >= first.y1
            assert beside or above
        for place in places.values():
            assert place.x0 < place.x1 <= PAGE_WIDTH
            assert -1e-9 <= place.y0 < place.y1 <= height + 1e-9

    @pytest.mark.parametrize("name", CONFIGS)
    def test_arrows_end_at_their_boxes_and_cross_none(self, name: str) -> None:
        shown = architecture.gem_diagram(gem(CONFIGS[name]))
        for ends in shown.arrows:
            source, target = (shown.boxes[key] for key in ends)
            row = shown.row_of(*ends)
            if row is None:
                assert source.columns[0] <= target.columns[0] <= source.columns[1]
                assert 1 in (target.rows[0] - source.rows[1], source.rows[0] - target.rows[1])
                continue
            for box in (source, target):
                assert box.rows[0] <= row <= box.rows[1]
            passed = [
                box
                for box in shown.boxes.values()
                if source.columns[1] < box.columns[0] < target.columns[0]
                and box.rows[0] <= row <= box.rows[1]
            ]
            assert passed == []

    @pytest.mark.parametrize("name", CONFIGS)
    def test_every_text_is_inside_its_box_and_large_enough(self, name: str) -> None:
        model = gem(CONFIGS[name])
        with styled():
            figure = draw_diagrams({"title": architecture.gem_diagram(model)})
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
        renderer: Any = canvas.get_renderer()
        (axes,) = figure.axes
        cards = [
            patch.get_window_extent(renderer)
            for patch in axes.patches
            if isinstance(patch, FancyBboxPatch)
        ]
        centred = [text for text in axes.texts if text.get_ha() == "center"]
        boxes = architecture.gem_diagram(model).boxes.values()
        assert len(centred) == sum(1 + len(box.lines) for box in boxes)
        for text in centred:
            extent = text.get_window_extent(renderer)
            assert text.get_fontsize() >= 5.4, text.get_text()
            assert any(
                card.x0 <= extent.x0 and extent.x1 <= card.x1
                and card.y0 <= extent.y0 + 1 and extent.y1 - 1 <= card.y1
                for card in cards
            ), text.get_text()  # fmt: skip

    def test_a_long_text_is_made_smaller(self) -> None:
        assert fitting("short", 6.0, 2.0) == 6.0
        smaller = fitting("a text that is rather long", 6.0, 1.0)
        assert 4.5 < smaller < 6.0
        assert fitting("a text that is rather long", smaller, 1.0) == pytest.approx(
            smaller, rel=0.01
        )


class TestFromRecords:
    def test_both_methods_as_they_were_run(self, small_results: Results) -> None:
        figure = FIGURES["arch"].draw(small_results)
        assert figure.get_figwidth() == pytest.approx(6.8, abs=0.02)
        told = [text.get_text() for text in figure.axes[0].texts]
        for row, name in (("daedl", "DAEDL"), ("gem-fi", "GEM-FI")):
            run = small_results.runs(row)[0]
            title = f"{name}, {run.training['parameters']:,} parameters"
            assert [text for text in told if text.endswith(title)]
        assert told.count("3 × conv 5×5, 16") == 2
        assert "3 heads" in told

    def test_without_arrays_the_task_is_asked(self, small_results: Results) -> None:
        class Bare(Results):
            def has_arrays(self, run: object) -> bool:
                return False

        bare = copy.copy(small_results)
        bare.__class__ = Bare
        run = bare.runs("daedl")[0]
        assert architecture.num_classes(bare, run) == 7
        lost = replace(run, spec={**run.spec, "task": "mnst"})
        with pytest.raises(Unavailable, match="neither the arrays nor the data"):
            architecture.num_classes(bare, lost)

    def test_what_is_missing_is_said(self, small_results: Results) -> None:
        fewer = copy.copy(small_results)
        fewer.grid = [each for each in small_results.grid if each.method != "daedl"]
        with pytest.raises(Unavailable, match="no run of DAEDL is here"):
            FIGURES["arch"].draw(fewer)
