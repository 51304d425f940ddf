"""The paper's numbers against its LaTeX, where that lies beside the checkout."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemfi import scores
from gemfi._config import to_plain
from gemfi.detectors import DETECTORS
from gemfi.errors import InputError
from gemfi.methods import METHODS
from gemfi.methods.gem_paper import SWITCHES, ablation, presets, switches
from gemfi_bench import published as package
from gemfi_bench.published import (
    LABELS,
    PAIRS,
    PUBLISHED,
    Published,
    find,
    published,
    read_table,
)

PAPER = Path(__file__).parents[2].parent / "shared" / "paper"

NUMBERS = {
    "table2": 104,
    "table2b": 104,
    "ood_aupr_auroc": 55,
    "shift_detection_corruptions": 42,
    "table3": 42,
    "table13-cifar10": 36,
    "ts_calibration": 21,
    "table5": 60,
    "lambda_fi_appendix": 10,
    "lambda_kl_appendix": 8,
    "gemfi_k_cifar": 15,
    "fair_vos_appendix": 12,
    "vos_replace_appendix": 4,
    "rho_one_appendix": 4,
    "related_work_comparison": 25,
    "hparams": 26,
    "energy_support_corr_appendix": 4,
    "energy_bins_appendix": 10,
    "head_diversity_appendix": 6,
    "routing_specialization_appendix": 6,
    "overhead": 20,
    "abstract": 17,
    "text": 51,
}

NAMES = {  # as the paper writes them, in lower case, where ours differ
    "dropout": "mc-dropout",
    "cedl+": "cedl-plus",
    "ts (post-hoc)": "temperature",
    "ryu et al.": "dirichlet-mixture",
    "deng et al.": "i-edl",
    "zhang et al.": "gated-dirichlet",
    "daedl + vos": "daedl+vos",
    "re-edl + vos": "re-edl+vos",
    "gem-fi (without vos)": "gem-fi-without-vos",
    "gem-fi (with vos)": "gem-fi",
    "gem-fi + vos": "gem-fi",
    "gem-fi + feature-space noise": "gem-fi+noise",
    "gem-fi with rho(z)": "gem-fi",
    "gem-fi with rho(z)=1": "gem-fi-without-rho",
    "gem-mix (k=3)": "gem-mix",
    "gem-fi (k=3)": "gem-fi",
    "gem-fi (k=5)": "gem-fi-k5",
    "cifar-10": "cifar10",
    "mnist->kmnist": "mnist>kmnist",
    "mnist->fmnist": "mnist>fmnist",
    "cifar-10->svhn": "cifar10>svhn",
    "cifar-10->cifar-100": "cifar10>cifar100",
    "cifar-10->tinyimagenet": "cifar10>tinyimagenet",
    "id (cifar-10 test)": "cifar10",
    "near-ood (cifar-100)": "cifar100",
    "far-ood (svhn)": "svhn",
    "easy id (high-conf., correct)": "easy",
    "boundary (low-conf., correct)": "boundary",
    "ood (svhn)": "svhn",
    "0.10": "0.1",
    "0.30": "0.3",
    "1.00": "1",
}


def test_no_number_is_there_twice_and_none_was_lost() -> None:
    assert len({each.key for each in PUBLISHED}) == len(PUBLISHED)
    assert {label: len(published(label)) for label in LABELS} == NUMBERS


def test_rows_have_our_names() -> None:
    known = {*METHODS, *DETECTORS, *presets()}
    for label in ("table2", "table2b", "shift_detection_corruptions", "table3", "table13-cifar10"):
        assert {row for row, _ in published(label)} <= known
    assert list(dict.fromkeys(row for row, _ in published("table5"))) == list(ablation())
    by_score = {column.split("/")[0] for _, column in published("ood_aupr_auroc")} - {"accuracy"}
    assert by_score <= set(scores.SCORES)


def test_every_number_has_a_convention_and_a_pair_its_sizes() -> None:
    assert all(each.convention for each in PUBLISHED)
    pairs = {
        name
        for each in PUBLISHED
        if each.metric in {"aupr_id", "auroc"} and each.column != "mean_auroc"
        for name in (each.row, each.column.split("/")[0])
        if ">" in name
    }
    assert pairs == set(PAIRS)
    assert PAIRS["cifar10>svhn"].base_rate_id == pytest.approx(0.2775, abs=5e-5)
    assert PAIRS["cifar10>svhn"].base_rate_ood == pytest.approx(0.7225, abs=5e-5)


def test_brier_in_table3_mixes_definitions() -> None:
    phrases = {row: found.convention for (row, column), found in published("table3").items()
               if column == "brier"}  # fmt: skip
    assert phrases["daedl"].startswith("sum over classes")
    assert phrases["gem-core"].startswith("mean over classes")
    assert phrases["re-edl"].startswith("mean L2 norm")
    assert phrases["gem-fi"].startswith("softmax of probabilities")


def test_find() -> None:
    found = find("table2", "gem-fi", "cifar10>svhn/epistemic")
    assert found is not None
    assert (found.mean, found.std, found.metric) == (92.59, 0.31, "aupr_id")
    assert "ID positive" in found.convention
    assert str(found) == "92.59±0.31"
    assert find("table2", "mc-dropout", "cifar10>svhn/epistemic") is None


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(InputError, match="unknown label 'table9'; known: table2, "):
        published("table9")


def test_differences_in_the_abstract_are_right() -> None:
    said = published("abstract")
    for metric in ("accuracy", "brier", "aupr_correct"):
        difference = said["gem-fi", metric].mean - said["daedl", metric].mean
        assert said["gem-fi", f"{metric}/over-daedl"].mean == pytest.approx(difference)


class TestTable:
    def test_reads_cells(self) -> None:
        found = read_table("t", "accuracy a=nll", "\n x 1.50±0.2 1e-3 \n y -- -2\n")
        right = "share of right predictions"
        assert found == [
            Published("t", "x", "accuracy", "accuracy", 1.5, 0.2, right),
            Published("t", "x", "a", "nll", 0.001, None, ""),
            Published("t", "y", "a", "nll", -2.0, None, ""),
        ]

    def test_all_columns_may_have_one_metric(self) -> None:
        found = read_table("t", "a b=nll", "x 1 2", "auroc")
        assert [(number.column, number.metric) for number in found] == [
            ("a", "auroc"),
            ("b", "nll"),
        ]

    def test_refuses_a_row_of_the_wrong_length(self) -> None:
        with pytest.raises(InputError, match="t: row 'x' has 1 cells, expected 2"):
            read_table("t", "a b", "x 1")

    @pytest.mark.parametrize("cell", ["1,5", "1±", "±1", "-", "1.", "nan", "1±-2"])
    def test_refuses_what_is_no_number(self, cell: str) -> None:
        with pytest.raises(InputError, match="a cell must be a mean, mean±std or --, got"):
            read_table("t", "a b", f"x 1 {cell}")

    def test_refuses_a_row_twice(self) -> None:
        with pytest.raises(InputError, match="t: row 'x' is there twice"):
            read_table("t", "a b", "x 1 2\nx 1 2")


def test_the_example_in_the_docstring_is_true() -> None:
    outcome = doctest.testmod(package)
    assert outcome.attempted > 0
    assert outcome.failed == 0


# --- the LaTeX ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def latex() -> str:
    files = sorted(PAPER.glob("*.txt"))
    if not files:
        pytest.skip("needs the paper's LaTeX in shared/paper beside the checkout")
    return "".join(path.read_text(encoding="utf-8") for path in files)


def rows_of(latex: str, label: str) -> Iterator[list[str]]:
    """The cells of each row of a table, without LaTeX's commands."""
    start = latex.index(rf"\label{{tab:{label}}}")
    body = latex[latex.index(r"\midrule", start) : latex.index(r"\bottomrule", start)]
    for row in body.split(r"\\"):
        cells = [plain(cell) for cell in row.split("&")]
        if len(cells) > 1:
            yield cells


def plain(cell: str) -> str:
    """The words and numbers of a cell."""
    for pattern, text in (
        (r"~?\\cite\w*\{[^}]*\}", ""),
        (r"\\(midrule|oursrow|text\w+|secondbest|underline|mathcal)", ""),
        (r"\\rightarrow", "->"),
        (r"\\rho", "rho"),
        (r"\\pm", "±"),
        (r"\\times 10\^", "e"),
        (r"(?<!\d)10\^", "1e"),
        (r"\\(cmark|checkmark)", "1"),
        (r"\\xmark", "0"),
        (r"\\gemcore", "GEM-CORE"),
        (r"\\gemmix", "GEM-MIX"),
        (r"\\gemfi", "GEM-FI"),
        (r"\\(EDL|DAEDL|MaxP|TS)", r"\1"),
        (r"[{}$%\\<]", ""),
        (r"\s*(±|e-)\s*", r"\1"),
        (r"\s+", " "),
    ):
        cell = re.sub(pattern, text, cell)
    return cell.strip()


NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)(?:±(\d+(?:\.\d+)?))?")


def numbers_in(cells: list[str]) -> list[tuple[float, float | None]]:
    """The numbers of cells that are nothing else; `(0.1, 0.9)` holds two."""
    parts = [part.strip("( )") for cell in cells for part in cell.split(",")]
    found = [match for part in parts if (match := NUMBER.fullmatch(part))]
    return [(float(match[1]), float(match[2]) if match[2] else None) for match in found]


def ours(label: str, row: str | None = None) -> list[tuple[float, float | None]]:
    found = published(label).values()
    return [(each.mean, each.std) for each in found if row in {None, each.row}]


def prose(latex: str) -> tuple[str, str]:
    """The abstract, and what is said outside of it, tables, figures and lengths."""
    body = latex[latex.index(r"\begin{document}") :]
    abstract = re.search(r"(?s)\\begin\{abstract\}.*?\\end\{abstract\}", body)
    assert abstract
    text = body.replace(abstract[0], "")
    for environment in ("table", "figure"):
        text = re.sub(rf"(?s)\\begin\{{{environment}.*?\\end\{{{environment}\*?\}}", "", text)
    text = re.sub(r"Sections~[\d.]+--[\d.]+|[\d.]+(in|\\textheight|\\textwidth)\b", "", text)
    return abstract[0], text


def decimals(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"(?<![\d.])\d+\.\d+", text)]


class TestAgainstThePaper:
    TABLES = [label for label in LABELS if label not in {"abstract", "text"}]  # noqa: RUF012

    def test_every_table_of_numbers_is_here(self, latex: str) -> None:
        symbols_only = {"notation-summary", "table1"}
        assert set(re.findall(r"\\label\{tab:([\w-]+)\}", latex)) - symbols_only == set(self.TABLES)

    @pytest.mark.parametrize("label", TABLES)
    def test_each_number_is_as_printed(self, latex: str, label: str) -> None:
        rows = list(rows_of(latex, label))
        if label == "energy_bins_appendix":  # deciles are columns there
            means, stds = (numbers_in(row[1:]) for row in rows)
            assert ours(label) == [(m, s) for (m, _), (s, _) in zip(means, stds, strict=True)]
            return
        switches = len(SWITCHES) - 1 if label == "table5" else 0
        printed = [numbers_in(row[1 + switches :]) for row in rows]
        found = [number for row in printed for number in row]
        assert len(found) == NUMBERS[label]
        if label == "hparams":  # the gate's two bounds are one cell there
            assert sorted(ours(label), key=str) == sorted(found, key=str)
        else:
            assert ours(label) == found

    @pytest.mark.parametrize(
        "label",
        [each for each in TABLES if each not in {"energy_bins_appendix", "hparams", "table5"}],
    )
    def test_each_row_is_named_as_printed(self, latex: str, label: str) -> None:
        for name, *cells in rows_of(latex, label):
            assert ours(label, NAMES.get(name.lower(), name.lower())) == numbers_in(cells)

    def test_switches_of_the_ablation(self, latex: str) -> None:
        printed = ["".join(row[: len(SWITCHES)]) for row in rows_of(latex, "table5")]
        configs = ablation().values()
        assert printed == [
            "".join(str(int(on)) for on in switches(to_plain(config)).values())
            for config in configs
        ]

    def test_the_abstract(self, latex: str) -> None:
        abstract, _ = prose(latex)
        said = [abs(each.mean) for each in published("abstract").values()]
        assert sorted(said) == sorted(decimals(abstract))

    def test_the_text(self, latex: str) -> None:
        _, text = prose(latex)
        said = {each.mean for each in published("text").values()}
        whole = {15.0, 20.0, 10.0, 50.0, 128.0}  # whole numbers are in the text for other reasons
        assert said - whole == set(decimals(text))
        for words in (
            r"\approx 15$--$20$",
            "warmup of 10 epochs",
            "batch size $128$",
            "batch size $50$",
            "k{=}10",
        ):
            assert words in text
