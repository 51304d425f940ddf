"""LaTeX, read back by a reader that knows only what a table may hold: no TeX is needed."""

from __future__ import annotations

import doctest
import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings

from gemfi_bench import latex as latex_module
from gemfi_bench.latex import escaped, latex
from gemfi_bench.tabular import Table
from support.tables import SAMPLE, assert_rows, flags, one_line, shown_head, tables

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lamda mu nu xi pi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lamda Xi Pi Sigma Upsilon Phi Psi Omega"
)
PRINTED = {
    "textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textasciigrave": "`",
    "textquotedblright": "”", "textquotedblleft": "“", "textquoteleft": "‘", "textquoteright": "’",
    "textendash": "–", "textemdash": "—", "ldots": "…", "checkmark": "✓", "dag": "†", "S": "§",
}  # fmt: skip
MATHEMATICS = {
    "<": "<", ">": ">", "|": "|", "-": "−", r"^\circ": "°", r"\frac12": "½", r"\pm": "±",
    r"\times": "×", r"\cdot": "·", r"\infty": "∞", r"\surd": "√", r"\rightarrow": "→",
    r"\leftarrow": "←", r"\uparrow": "↑", r"\downarrow": "↓", r"\Rightarrow": "⇒", r"\leq": "≤",
    r"\geq": "≥", r"\neq": "≠", r"\approx": "≈", r"\propto": "∝", r"\in": "∈", r"\sim": "∼",
    r"\sum": "∑", r"\nabla": "∇", r"\partial": "∂", r"\ell": "ℓ", r"\Vert": "‖",
    r"\varsigma": "ς",
    **{f"^{digit}": sign for digit, sign in zip("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", strict=True)},
    **{f"_{digit}": sign for digit, sign in zip("0123456789-+", "₀₁₂₃₄₅₆₇₈₉₋₊", strict=True)},
    **{
        f"\\{name.replace('amda', 'ambda')}": unicodedata.lookup(
            f"GREEK {'CAPITAL' if name[0].isupper() else 'SMALL'} LETTER {name}"
        )
        for name in GREEK.split()
    },
}  # fmt: skip
SAME = {'"': "”", "✗": "×", "µ": "μ"}  # signs that LaTeX prints alike
LATEX = re.compile(
    r"\\(?P<mark>textbf|underline|textit)(?=\{)"
    r"|\\(?P<word>[A-Za-z]+)\{\}"
    r"|\\(?P<sign>[#$%&_{}])"
    r"|\$(?P<math>[^$]+)\$"
    r"|\{(?P<kept>[\[\]*])\}"
    r"|(?P<brace>[{}])"
    r"|(?P<raw>[^\\#$%&_{}~^`\"<>|*\[\]])"
)


def typeset(source: str) -> str:
    """What a piece of LaTeX prints; fails on a sign that would not print as it stands."""
    source = re.sub(r"\\textsuperscript\{[a-z]+\}", "", source)
    assert LATEX.sub("", source) == ""
    assert not re.search(r"--|''|,,", re.sub(r"\$[^$]*\$", "$", source))  # ligatures
    depth, shown = 0, ""
    for found in LATEX.finditer(source):
        depth += {"{": 1, "}": -1}.get(found["brace"] or "", 0)
        assert depth >= 0
        shown += PRINTED[found["word"]] if found["word"] else ""
        shown += MATHEMATICS[found["math"]] if found["math"] else ""
        shown += found["sign"] or found["kept"] or found["raw"] or ""
    assert depth == 0
    return shown.strip()


def in_latex(text: str) -> str:
    """A text as LaTeX can show it: what it has no sign for as its code."""
    known = {*PRINTED.values(), *MATHEMATICS.values(), *SAME}
    return "".join(
        SAME.get(c, c) if c.isascii() or c in known or (c.isalpha() and 0xC0 <= ord(c) < 0x180)
        else f"[U+{ord(c):04X}]"
        for c in unicodedata.normalize("NFC", text)
    )  # fmt: skip


def latex_row(line: str) -> list[str]:
    """The cells of a row of a table, an empty one for each further column that a cell spans."""
    assert line.endswith(r" \\")
    line = line.removesuffix(r" \\").removeprefix(r"\rowcolor{gray!15} ")
    assert not line.startswith(("[", "*"))  # the \\ above would take it
    cells = []
    for cell in re.split(r"(?<!\\)&", line):
        spanning = re.fullmatch(r"\\multicolumn\{(\d+)\}\{[cl]\}\{(.*)\}", cell.strip())
        cells += [typeset(spanning[2] if spanning else cell)]
        cells += [""] * (int(spanning[1]) - 1 if spanning else 0)
    return cells


def latex_parts(table: Table) -> tuple[list[list[str]], list[str]]:
    """The rows of a table and the remarks below it, after a check of all that is around them."""
    comment, *lines = latex(table).splitlines()
    assert comment.startswith(r"% needs \usepackage{booktabs} \usepackage[table]{xcolor}")
    top, bottom = lines.index(r"\toprule"), lines.index(r"\bottomrule")
    caption = lines[2].removeprefix(r"\caption{").removesuffix("}")
    assert typeset(caption) == in_latex(one_line(table.title))
    around = [*lines[:2], *lines[3:top], *lines[bottom + 1 :]]
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", "\n".join(around)):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    assert lines[top - 1] == rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}"
    rules = re.compile(r"\\midrule|(?:\\cmidrule\(lr\)\{\d+-\d+\})+")
    rows = [latex_row(line) for line in lines[top + 1 : bottom] if not rules.fullmatch(line)]
    remarks = [typeset(line.removesuffix(r"\par")) for line in lines if line.endswith(r"\par")]
    return rows, remarks


def test_latex_of_the_sample() -> None:
    source = latex(SAMPLE).replace(r"\textendash{}", "–").replace(r"\checkmark{}", "✓")
    lines = source.splitlines()
    assert lines[4:] == [
        r"\label{tab:table2}",
        r"\begin{adjustbox}{max width=\linewidth}",
        r"\begin{tabular}{lcccc}",
        r"\toprule",
        r" & \multicolumn{2}{c}{MNIST $\rightarrow$ KMNIST} &  &  \\",
        r"\cmidrule(lr){2-3}",
        r"Method & Alea. $\uparrow$ & Epis. $\uparrow$ & NLL $\downarrow$ & one pass \\",
        r"\midrule",
        r"EDL & 97.02 $\pm$ 0.80 & – & \underline{0.250} & ✓ \\",
        r"I-EDL & \underline{98.34} & data absent & $\infty$ & $\times$ \\",
        r"\rowcolor{gray!15} GEM-FI & \textbf{99.95} & – & \textbf{0.000} & ✓ \\",
        r"\midrule",
        r"\multicolumn{5}{l}{\textit{Published}} \\",
        r"GEM-FI & 99.95 $\pm$ 0.00 & $-$1.50\textsuperscript{a} & – & – \\",
        r"DAEDL & – & – & 0.100\textsuperscript{a} & – \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{adjustbox}",
        r"\par\smallskip",
        r"\begin{minipage}{\linewidth}\footnotesize",
        r"\textsuperscript{a} impossible: $<$ 0\par",
        r"ID is positive.\par",
        r"5 seeds \& more.\par",
        r"\end{minipage}",
        r"\end{table}",
    ]


@settings(max_examples=60)
@given(tables())
def test_latex_prints_every_name_in_its_cell(table: Table) -> None:
    rows, remarks = latex_parts(table)
    assert {len(row) for row in rows} == {len(table.columns) + 1}
    groups = [one_line(column.group) for column in table.columns]
    if any(groups):  # the first column of a group has its title
        spanned = [group == before for before, group in pairwise(["", *groups])]
        titles = ["" if joined else in_latex(g) for g, joined in zip(groups, spanned, strict=True)]
        assert rows.pop(0) == ["", *titles]
    head = [one_line(table.stub), *map(shown_head, table.columns)]
    assert rows.pop(0) == [in_latex(text).strip() for text in head]
    assert_rows(rows, table, in_latex)
    assert remarks == [in_latex(text) for text in (*flags(table), *map(one_line, table.notes))]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("a -- b --- c", "a -{}- b -{}-{}- c"),
        ("λ_FI = 10⁻³", r"$\lambda$\_FI = 10$^-$$^3$"),
        ("[1] 5 % of {x}", r"{[}1{]} 5 \% of \{x\}"),
        (r"C:\x ~^", r"C:\textbackslash{}x \textasciitilde{}\textasciicircum{}"),
        ("Müller, e\u0301", "Müller, é"),
        ("snow ☃", "snow {[}U+2603{]}"),
    ],
)
def test_text_in_latex(text: str, source: str) -> None:
    assert escaped(text) == source


def test_an_empty_table_in_latex() -> None:
    assert latex_parts(Table("t", "nothing", (), ())) == ([["Method"]], [])


def test_the_examples_in_the_docstrings_are_true() -> None:
    outcome = doctest.testmod(latex_module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
