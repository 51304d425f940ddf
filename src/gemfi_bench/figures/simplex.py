"""What the members of the GEM family believe of the same inputs, on the probability simplex."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Polygon
from matplotlib.ticker import LogLocator, NullLocator
from scipy import special

from gemfi import scores
from gemfi._drawing import INK, MUTED
from gemfi.belief import Belief
from gemfi.data.registry.load import data_set
from gemfi.errors import InputError
from gemfi.metrics import Floats
from gemfi_bench.figures import common
from gemfi_bench.figures.common import FAMILY, FAR, NEAR, TEXT, MethodRuns
from gemfi_bench.observation import named
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import method_label
from gemfi_bench.unavailable import Unavailable

_TINY: Final = float(np.finfo(np.float64).tiny)
_HEIGHT: Final = math.sqrt(3) / 2
_PIXELS: Final = 360
_CORNERS: Final = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, _HEIGHT]])
_NAMES_AT: Final = (
    (-0.07, -0.07, "left"), (1.07, -0.07, "right"), (0.5, _HEIGHT + 0.065, "center")
)  # fmt: skip
_LIMITS: Final = (1e-2, 1e3)  # of the density, in units of the uniform one
_CMAP: Final = ListedColormap(colormaps["BuPu"](np.linspace(0.0, 0.95, 256)), "simplex")
CORNER: Final = 0.99
"""A probability beyond which a point is at a corner: too near for the picture to show."""
_CORNER_COLOR: Final = "#d55e00"


@dataclass(frozen=True)
class Column:
    """One input, the numbers and names of three classes, and what each method believes of it."""

    title: str
    picture: npt.NDArray[Any]
    classes: Sequence[tuple[int, str]]
    beliefs: Mapping[str, Belief]


# -- the density ----------------------------------------------------------------------------------


def log_density(belief: Belief, classes: Sequence[int], points: Floats) -> Floats:
    """Log density of three renormalised probabilities, in units of the uniform density (N,).

    If p is Dir(α) then (p_i, p_j, p_k)/(p_i + p_j + p_k) is Dir(α_i, α_j, α_k) exactly, whatever
    the other classes are; a mixture keeps its weights. ρ is part of α, as in the evidence.

    Args:
        belief: of one input, with evidence.
        classes: three numbers.
        points: (N, 3) positive, each of sum one.
    """
    alpha, log_weight = _components(belief, classes)
    log_norm = special.gammaln(alpha.sum(axis=1)) - special.gammaln(alpha).sum(axis=1)  # (K,)
    log_each = log_norm + np.log(points) @ (alpha - 1).T  # (N, K)
    mixed: Floats = special.logsumexp(log_each + log_weight, axis=1) - math.log(2)
    return mixed


def corner_mass(belief: Belief, classes: Sequence[int], beyond: float = CORNER) -> Floats:
    """Probability that one of three renormalised probabilities exceeds `beyond` ≥ ½, (3,).

    Each of them is Beta(α_i, α_j + α_k) in a component. Where all α are small this is nearly all
    the mass, and the density inside is nearly nothing.
    """
    alpha, log_weight = _components(belief, classes)
    rest = alpha.sum(axis=1, keepdims=True) - alpha
    tail = special.betainc(np.maximum(rest, _TINY), alpha, 1 - beyond)  # (K, 3)
    mass: Floats = np.exp(log_weight) @ tail
    return mass


def _components(belief: Belief, classes: Sequence[int]) -> tuple[Floats, Floats]:
    """α of three classes (K, 3) and the log weights (K,) of the gated components, ρ included."""
    gated = belief.gated()
    log_alpha = gated.log_p[0, :, list(classes)] + gated.need("log_evidence")[0, :, None]
    if gated.log_rho is not None:
        log_alpha = log_alpha + gated.log_rho[0]
    alpha = np.maximum(log_alpha.double().exp().numpy(), _TINY)
    return alpha, gated.log_weight[0].double().numpy()


def simplex_pixels(pixels: int = _PIXELS) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Barycentric coordinates (N, 3) of the pixels in a triangle, and the mask of those pixels."""
    rows = round(pixels * _HEIGHT)
    x = (np.arange(pixels) + 0.5) / pixels
    y = (np.arange(rows) + 0.5) / rows * _HEIGHT
    top = np.broadcast_to((y / _HEIGHT)[:, None], (rows, pixels))
    right = x[None, :] - top / 2
    weights = np.stack([1 - right - top, right, top], axis=-1)  # (rows, columns, 3)
    inside = np.asarray((weights > 0).all(axis=-1))
    return weights[inside], inside


# -- drawing --------------------------------------------------------------------------------------


def draw_simplices(columns: Sequence[Column]) -> Figure:
    """A column an input: the input, and below it a triangle for each of the methods."""
    methods, side = list(columns[0].beliefs), (TEXT - 0.9) / len(columns)
    top = 0.6 if any(map(_is_picture, columns)) else 0.06  # of features there is nothing to see
    height = 0.9 + side * (0.02 + top + 1.12 * len(methods))
    figure = Figure(figsize=(TEXT, height), layout="constrained")
    axes = figure.subplots(
        1 + len(methods), len(columns), squeeze=False,
        gridspec_kw={"height_ratios": (top, *[1.08] * len(methods))},
    )  # fmt: skip
    for panels, column in zip(axes.T, columns, strict=True):
        _draw_picture(panels[0], column)
        for panel, method in zip(panels[1:], methods, strict=True):
            image = _draw_triangle(panel, column, column.beliefs[method])
    for row, method in enumerate(methods, start=1):
        axes[row, 0].set_ylabel(method_label(method), fontsize=9.5, fontweight="bold", labelpad=8)
    bar = figure.colorbar(
        image, ax=axes[1:], location="right", aspect=45, pad=0.01, extend="both", extendfrac=0.02
    )
    bar.set_label("density, relative to the uniform one")
    bar.ax.yaxis.set_major_locator(LogLocator())
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.outline.set_visible(False)
    mean, corner = (
        "mean of a component, larger with its weight",
        f"mass at a corner, p > {CORNER:g}",
    )
    handles = [
        common.point_handle(mean, INK, markersize=6, markerfacecolor="none"),
        common.point_handle(corner, _CORNER_COLOR, markersize=6, markeredgewidth=0),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _is_picture(column: Column) -> bool:
    return column.picture.ndim == 3 and column.picture.shape[0] in (1, 3)


def _draw_picture(axes: Axes, column: Column) -> None:
    axes.set_title(column.title.replace(": ", ":\n"), fontsize=8.5, fontweight="normal")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    picture = column.picture
    if not _is_picture(column):
        return
    if picture.dtype == np.uint8:
        picture = picture / 255.0
    low, high = min(0.0, float(picture.min())), max(1.0, float(picture.max()))
    shown = np.moveaxis((picture - low) / (high - low), 0, -1)
    options: dict[str, Any] = {"cmap": "gray_r"} if shown.shape[-1] == 1 else {}
    axes.imshow(shown.squeeze(-1) if options else shown, vmin=0, vmax=1, **options)


def _draw_triangle(axes: Axes, column: Column, belief: Belief) -> AxesImage:
    numbers = [number for number, _ in column.classes]
    points, inside = simplex_pixels()
    values = np.full(inside.shape, np.nan)
    # what is beyond the colours is drawn as their ends, and must not overflow before
    values[inside] = np.exp(np.clip(log_density(belief, numbers, points), -50, 50))
    image = axes.imshow(
        values, cmap=_CMAP, norm=LogNorm(*_LIMITS), extent=(0, 1, 0, _HEIGHT), origin="lower",
        interpolation="nearest", zorder=1,
    )  # fmt: skip
    edge = Polygon(_CORNERS, closed=True, fill=False, edgecolor=MUTED, linewidth=0.9, zorder=2)
    axes.add_patch(edge)
    image.set_clip_path(edge)
    _draw_means(axes, belief, numbers)
    for (_, name), (x, y, place) in zip(column.classes, _NAMES_AT, strict=True):
        axes.text(x, y, name, fontsize=7, ha=place, va="top" if y < 0 else "bottom")
    evidence = float(torch.exp(-scores.evidence(belief))[0])
    vacuity = float(scores.vacuity(belief)[0])
    told = f"S = {_number(evidence)}\nvacuity {_number(vacuity)}"
    axes.text(0.5, -0.15, told, fontsize=7, ha="center", va="top")
    axes.set(xlim=(-0.1, 1.1), ylim=(-0.35, _HEIGHT + 0.17), aspect="equal")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return image


def _draw_means(axes: Axes, belief: Belief, classes: Sequence[int]) -> None:
    """A ring at the mean of each component, a disc at each corner; areas are weights and masses."""
    mass = corner_mass(belief, classes)
    axes.scatter(
        _CORNERS[:, 0], _CORNERS[:, 1], s=110 * mass, color=_CORNER_COLOR, linewidths=0, zorder=2.5
    )
    gated = belief.gated()
    log_p = gated.log_p[0, :, list(classes)]
    weights = torch.softmax(log_p.double(), dim=-1).numpy()  # renormalised (K, 3)
    x, y = (weights @ _CORNERS).T
    size = 10 + 60 * gated.log_weight[0].exp().numpy()
    axes.scatter(x, y, s=size, facecolors="none", edgecolors="white", linewidths=2.0, zorder=3)
    axes.scatter(x, y, s=size, facecolors="none", edgecolors=INK, linewidths=0.9, zorder=4)


def _number(value: float) -> str:
    """Three digits, and a power of ten where they would need many zeros."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"${mantissa}\\cdot 10^{{{int(exponent)}}}$"


# -- from records ---------------------------------------------------------------------------------


def dirichlet_comparison(results: Results) -> Figure:
    """The GEM family on the surest and the least sure test input, and on one of each OOD kind."""
    rows = common.shown_rows(results, FAMILY)
    here = [row.method for row in rows]
    if absent := ", ".join(method_label(name) for name in FAMILY if name not in here):
        raise Unavailable(f"no run of {absent} is here with its arrays")
    runs = _same_seed(results, rows)
    beliefs = [example_beliefs(results, run, "test") for run in runs.values()]
    if beliefs[0].log_p.shape[-1] < 3:
        raise Unavailable("a simplex needs three classes, and this task has two")
    surest, least = extremes(beliefs)
    chosen = {f"test {surest + 1}: surest": ("test", surest)}
    chosen |= {f"test {least + 1}: least sure": ("test", least)}
    for kind, names in ((NEAR, results.protocol.near), (FAR, results.protocol.far)):
        present = [name for name in names if not results.is_absent(name)]
        chosen |= {f"{kind}: {results.title(name)}": (name, 0) for name in present[:1]}
    columns = [_column(results, runs, title, *place) for title, place in chosen.items()]
    return draw_simplices(columns)


def _same_seed(results: Results, rows: Sequence[MethodRuns]) -> dict[str, RunRecord]:
    """The runs of the first seed that every method has."""
    by_seed = [
        {seed: run for seed, run in results.by_seed(row.row).items() if results.has_arrays(run)}
        for row in rows
    ]
    for seed in by_seed[0]:
        if all(seed in runs for runs in by_seed):
            return {row.method: runs[seed] for row, runs in zip(rows, by_seed, strict=True)}
    raise Unavailable("the GEM variants have no seed in common")


def example_beliefs(results: Results, run: RunRecord, name: str) -> Belief:
    """The belief on the first inputs of a set, as the arrays of a run hold it."""
    examples = named(results.arrays(run).get(name, {}), "example")
    examples.pop("input", None)
    if not {"log_p", "log_weight", "log_evidence"} <= examples.keys():
        raise Unavailable(f"the arrays of {run.title} have no examples of {name} with evidence")
    tensors: Any = {key: torch.from_numpy(array).double() for key, array in examples.items()}
    return Belief(**tensors)


def extremes(beliefs: Sequence[Belief]) -> tuple[int, int]:
    """Of the inputs that all methods saw: of the least and the greatest mean entropy."""
    entropy = torch.stack([scores.entropy(belief) for belief in beliefs]).mean(dim=0)
    return int(entropy.argmin()), int(entropy.argmax())


def top_classes(beliefs: Sequence[Belief]) -> list[int]:
    """The three classes of the greatest mean probability, of beliefs on one input."""
    mean = torch.stack([belief.probs()[0] for belief in beliefs]).mean(dim=0)
    order: list[int] = mean.argsort(descending=True, stable=True)[:3].tolist()
    return order


def _column(
    results: Results, runs: Mapping[str, RunRecord], title: str, name: str, index: int
) -> Column:
    beliefs = {method: example_beliefs(results, run, name)[index] for method, run in runs.items()}
    names = dict(enumerate(class_names(results.protocol.task)))
    classes = [(c, names.get(c, str(c))) for c in top_classes(list(beliefs.values()))]
    picture = results.arrays(next(iter(runs.values())))[name]["example/input"][index]
    return Column(title, picture, classes, beliefs)


def class_names(task: str) -> tuple[str, ...]:
    """The names of a registered task's classes; none where they are not known without its data."""
    try:
        return data_set(task.removesuffix("-frozen")).class_names or ()
    except InputError:
        return ()


FIGURES: Final = {"dirichlet-comp": dirichlet_comparison}
