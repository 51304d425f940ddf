"""The tables of outliers name all of them, and how many there were from when on."""

from __future__ import annotations

from dataclasses import replace

from gemfi.methods import PRESETS
from gemfi.outliers import NONE, VOS, OutlierConfig
from gemfi_bench.results import Results
from gemfi_bench.tables import TABLES
from gemfi_bench.tables.labels import OUTLIER_LABELS, outlier_words


def test_the_default_is_named_whole(small_results: Results) -> None:
    assert PRESETS["gem-fi"].outliers.scrambled > 0
    names = [row.name for row in TABLES["vos_replace_appendix"](small_results).rows]
    assert names[-1] == "GEM-FI (default: halo and scrambled inputs)" == OUTLIER_LABELS["gem-fi"]


def test_both_sources_of_outliers_have_words() -> None:
    assert outlier_words(NONE) == "none"
    assert outlier_words(VOS) == "vos"
    assert outlier_words(OutlierConfig("scrambled")) == "scrambled inputs"
    assert outlier_words(replace(VOS, scrambled=0.1)) == "vos and scrambled inputs"


def test_the_note_has_ratio_and_start_of_the_runs(small_results: Results) -> None:
    (note,) = [
        each
        for each in TABLES["vos_replace_appendix"](small_results).notes
        if "for each ID" in each
    ]
    assert "GEM-FI + VOS 0.3, from 0.1;" in note
    assert "GEM-FI + feature-space noise 0.3, from 0.1;" in note
    assert "scrambled inputs) 1 and 0.3 scrambled, from 0." in note
