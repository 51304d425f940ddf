"""A table as LaTeX with booktabs, and any text as LaTeX that prints it, for pdfLaTeX and later."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from gemfi_bench.formats import ShownCell, layout
from gemfi_bench.tabular import Table

_NEEDS: Final = (
    r"% needs \usepackage{booktabs} \usepackage[table]{xcolor} \usepackage{amssymb} "
    r"\usepackage{adjustbox}"
)


def latex(table: Table) -> str:
    r"""A `table` with its caption, label `tab:` and flags and notes below it.

    The best number is bold, the second best underlined, rows of ours are gray. It shrinks to the
    width of the text where it is wider; for one over two columns write `table*` instead.
    """
    shown = layout(table)
    width = len(shown.heads) + 1
    lines = [
        _NEEDS,
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escaped(shown.title)}}}",
        rf"\label{{tab:{shown.label}}}",
        r"\begin{adjustbox}{max width=\linewidth}",
        rf"\begin{{tabular}}{{l{'c' * len(shown.heads)}}}",
        r"\toprule",
    ]
    if shown.spans:
        cells, rules = [""], ""
        for span in shown.spans:
            first, last = span.columns[0] + 2, span.columns[-1] + 2  # from 1, after the names
            if span.title:
                cells.append(rf"\multicolumn{{{len(span.columns)}}}{{c}}{{{escaped(span.title)}}}")
                rules += rf"\cmidrule(lr){{{first}-{last}}}"
            else:
                cells += [""] * len(span.columns)
        lines += [_row(cells), rules]
    lines.append(_row([escaped(shown.stub), *map(escaped, shown.heads)]))
    for heading, rows in shown.blocks:
        lines.append(r"\midrule")
        if heading:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escaped(heading)}}}}} \\")
        for row in rows:
            shade = r"\rowcolor{gray!15} " if row.row.ours else ""
            lines.append(shade + _row([escaped(row.name), *map(_cell, row.cells)]))
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}"]
    if shown.remarks:
        lines += [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize"]
        for letter, text in shown.remarks:
            lines.append(rf"{_superscript(letter) + ' ' if letter else ''}{escaped(text)}\par")
        lines.append(r"\end{minipage}")
    return "\n".join([*lines, r"\end{table}", ""])


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: ShownCell) -> str:
    text = escaped(cell.text)
    if cell.mark:
        text = rf"\{'textbf' if cell.mark == 'best' else 'underline'}{{{text}}}"
    return text + (_superscript(cell.footnote) if cell.footnote else "")


def _superscript(letter: str) -> str:
    return rf"\textsuperscript{{{letter}}}"


# -- text -----------------------------------------------------------------------------------------

_GREEK: Final = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta",
    "η": "eta", "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu",
    "ξ": "xi", "π": "pi", "ρ": "rho", "ς": "varsigma", "σ": "sigma", "τ": "tau",
    "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma",
    "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma",
    "Υ": "Upsilon", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_MATHEMATICS: Final = {
    "±": "pm", "×": "times", "·": "cdot", "✗": "times", "∞": "infty", "√": "surd",
    "→": "rightarrow", "←": "leftarrow", "↑": "uparrow", "↓": "downarrow", "⇒": "Rightarrow",
    "≤": "leq", "≥": "geq", "≠": "neq", "≈": "approx", "∝": "propto", "∈": "in", "∼": "sim",
    "∑": "sum", "∇": "nabla", "∂": "partial", "ℓ": "ell", "‖": "Vert",
}  # fmt: skip
_SIGNS: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    '"': r"\textquotedblright{}",
    **{sign: f"\\{sign}" for sign in "#$%&_{}"},
    **{sign: f"${sign}$" for sign in "<>|"},
    **{sign: f"{{{sign}}}" for sign in "[]*"},  # at the begin of a row they would belong to \\
    **{sign: rf"$\{name}$" for sign, name in (_GREEK | _MATHEMATICS).items()},
    **{sign: f"$^{plain}$" for sign, plain in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+", strict=True)},
    **{sign: f"$_{plain}$" for sign, plain in zip("₀₁₂₃₄₅₆₇₈₉₋₊", "0123456789-+", strict=True)},
    "−": "$-$",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\ldots{}",
    "✓": r"\checkmark{}",
    "°": r"$^\circ$",
    "µ": r"$\mu$",  # the micro sign
    "½": r"$\frac12$",
    "‘": r"\textquoteleft{}",
    "’": r"\textquoteright{}",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "†": r"\dag{}",
    "§": r"\S{}",
}
_LIGATURE: Final = re.compile(r"([-',])(?=\1)")  # two of these print as another sign


def escaped(text: str) -> str:
    r"""Text as LaTeX; a character that has no form in it is printed as its code, `[U+2603]`.

    >>> print(escaped("50% of λ"))
    50\% of $\lambda$
    """
    composed = unicodedata.normalize("NFC", text)
    return "".join(map(_sign, _LIGATURE.sub("\\1\0", composed)))


def _sign(sign: str) -> str:
    if sign == "\0":  # where a ligature was broken
        return "{}"
    if sign in _SIGNS:
        return _SIGNS[sign]
    if sign.isascii() or (sign.isalpha() and "À" <= sign <= "ſ"):  # letters that LaTeX composes
        return sign
    return f"{{[}}U+{ord(sign):04X}{{]}}"
