"""What a diagnosis says: findings, and the health of a model, in numbers and in words."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One number of a model, with what it means."""

    name: str  # what was measured
    value: float  # a share lies in [0, 1]
    healthy: bool  # whether it is within its limit, or has none
    meaning: str  # what the number says, in one sentence
    remedy: str = ""  # of a warning, which settings to change
    limit: str = ""  # what is asked of the number, in words; empty where it is reported only
    unit: Literal["number", "share"] = "number"  # a share is shown in percent

    @property
    def mark(self) -> str:
        """`!` outside its limit, `✓` within, `·` without one."""
        return ("✓" if self.limit else "·") if self.healthy else "!"

    @property
    def shown(self) -> str:
        """The value as a text."""
        return f"{100 * self.value:.1f} %" if self.unit == "share" else f"{self.value:.2f}"


@dataclass(frozen=True)
class Health:
    """The findings on a model, and what could not be measured."""

    method: str
    split: str  # its name
    n: int  # its inputs
    findings: tuple[Finding, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)  # measure -> why it does not apply
    spectral_norms: Mapping[str, float] = field(default_factory=dict)  # layer -> its largest norm

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings outside their limits."""
        return tuple(finding for finding in self.findings if not finding.healthy)

    @property
    def healthy(self) -> bool:
        """Whether there is no warning."""
        return not self.warnings

    def __getitem__(self, name: str) -> Finding:
        """The finding of a name."""
        findings = {finding.name: finding for finding in self.findings}
        if name not in findings:
            raise KeyError(self.skipped.get(name, name))
        return findings[name]

    def __str__(self) -> str:
        return self.text()

    def reasons(self) -> dict[str, list[str]]:
        """Why something was skipped -> what was."""
        names: dict[str, list[str]] = {}
        for name, why in self.skipped.items():
            names.setdefault(why, []).append(name)
        return names

    def text(self) -> str:
        """Every finding in a line, each warning with its remedy below it, and what was skipped."""
        lines = [self.title(), *_lines(self.findings)]
        if self.skipped:
            lines.append("  Not measured")
            for why, names in self.reasons().items():
                lines += _wrapped(f"    {why}: ", names)
        return "\n".join(lines)

    def brief(self) -> str:
        """The warnings in full, and the names of what is within its limit."""
        within = [finding.name for finding in self.findings if finding.mark == "✓"]
        lines = [self.title(), *_lines(self.warnings)]
        if within:
            lines += _wrapped("  ✓ ", within)
        return "\n".join(lines)

    def title(self) -> str:
        """Model, data, and how many warnings there are."""
        count = len(self.warnings)
        warnings = "no warning" if not count else f"{count} warning{'s' if count > 1 else ''}"
        inputs = f"{self.n:,} input{'' if self.n == 1 else 's'}"
        return f"Health of {self.method} on {self.split} ({inputs}): {warnings}"


def _lines(findings: tuple[Finding, ...]) -> list[str]:
    """Mark, name, value, limit and meaning in columns."""
    if not findings:
        return []
    rows = [(finding.name, finding.shown, finding.limit) for finding in findings]
    name, value, limit = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for finding in findings:
        cells = f"{finding.name:<{name}}  {finding.shown:>{value}}  {finding.limit:<{limit}}"
        lines.append(f"  {finding.mark} {cells}  {finding.meaning}")
        if finding.remedy:
            lines.append(f"      remedy: {finding.remedy}")
    return lines


def _wrapped(first: str, names: list[str]) -> list[str]:
    """Names with commas between them, in lines of at most 100 that start below the first."""
    below = " " * (len(first) - len(first.lstrip()) + 2)
    text = first + ", ".join(name.replace(" ", "\xa0") for name in names)  # a name is not broken
    lines = textwrap.wrap(text, 100, subsequent_indent=below, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]
