"""Any text as LaTeX that prints it, in whatever font encoding the document has."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

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
