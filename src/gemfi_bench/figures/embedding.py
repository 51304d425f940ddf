"""Features of the GEM family as t-SNE lays them out: raw, of unit norm, and beside OOD data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from gemfi._drawing import MUTED, styled
from gemfi.metrics import Floats
from gemfi_bench.figures.common import (
    FAMILY,
    GROUP_COLORS,
    ID,
    SMALL,
    TEXT,
    FigureEntry,
    even_choice,
    needed,
    noting,
    ood_groups,
    panel_title,
    shown_row,
)
from gemfi_bench.figures.simplex import class_names
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import method_label
from gemfi_bench.unavailable import Unavailable

FROZEN: Final = "identity"
"""The backbone of runs on features that are given."""

PERPLEXITY: Final = 30
NEIGHBOURS: Final = 10
_TEST: Final = "test"
_MOST: Final = 400  # points of a group
_Place = Literal["outside lower left", "outside lower right"]
_WIDE: Final = 4.0  # inches that a line of a legend may have
_NAMES: Final = 20  # that a legend may have


@dataclass(frozen=True)
class Panel:
    """Points of the plane in groups.

    Attributes:
        title: of the panel.
        points: (N, 2).
        groups: (N,) numbers of their groups.
        names: of the groups.
        colors: of the groups.
        purity: share of the nearest features that are of one's own group, in percent.
    """

    title: str
    points: Floats
    groups: npt.NDArray[np.int64]
    names: Sequence[str]
    colors: Sequence[Any]
    purity: float


# -- numbers --------------------------------------------------------------------------------------


def unit(features: Floats) -> Floats:
    """Rows on the unit sphere; a row of zeros stays."""
    norm = np.linalg.norm(features, axis=1, keepdims=True)
    scaled: Floats = features / np.where(norm > 0, norm, 1.0)
    return scaled


def embedded(features: Floats, seed: int = 0) -> Floats:
    """Features (N, D) as points of the plane (N, 2), the same at every call on one machine.

    Args:
        features: of at least four inputs, not all the same.
        seed: of the optimiser.
    """
    if len(features) < 4 or not np.ptp(features, axis=0).any():
        raise Unavailable("t-SNE needs at least four inputs whose features differ")
    perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
    method = TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
    with threadpool_limits(limits=1):  # sums depend on the number of threads
        points: Floats = method.fit_transform(features.astype(np.float32)).astype(np.float64)
    return points


def purity(features: Floats, groups: npt.NDArray[np.int64], neighbours: int = NEIGHBOURS) -> float:
    """Share of each input's nearest others that are of its own group, in percent.

    Each group counts alike, whatever its size. It says in numbers, on the features themselves,
    what the eye looks for in the picture.

    Args:
        features: (N, D).
        groups: (N,).
        neighbours: how many, fewer where there are not so many others.
    """
    count = min(neighbours, len(features) - 1)
    search = NearestNeighbors(n_neighbors=count).fit(features)
    nearest = search.kneighbors(return_distance=False)  # (N, count), oneself left out
    same = (groups[nearest] == groups[:, None]).mean(axis=1)
    return 100 * float(np.mean([same[groups == each].mean() for each in np.unique(groups)]))


# -- panels from arrays ---------------------------------------------------------------------------


def class_panel(
    title: str, features: Floats, labels: npt.NDArray[np.int64], names: Sequence[str]
) -> Panel:
    """Test inputs by class.

    Args:
        title: of the panel.
        features: (N, D).
        labels: (N,).
        names: of all classes.
    """
    cmap = colormaps["tab10" if len(names) <= 10 else "tab20"]
    colors = [cmap(each % cmap.N) for each in range(len(names))]
    groups = labels.astype(np.int64)
    return Panel(title, embedded(features), groups, names, colors, purity(features, groups))


def set_panel(title: str, features: Mapping[str, Floats]) -> Panel:
    """Test and OOD inputs, by kind.

    Args:
        title: of the panel.
        features: kind -> (N, D), a key of the colours above.
    """
    every = np.concatenate(list(features.values()))
    groups = np.concatenate(
        [np.full(len(each), number) for number, each in enumerate(features.values())]
    )
    colors = [GROUP_COLORS[name] for name in features]
    return Panel(title, embedded(every), groups, list(features), colors, purity(every, groups))


def draw_panels(rows: Mapping[str, Sequence[Panel]], width: float = TEXT) -> Figure:
    """A row a method, a column a kind of panel.

    Args:
        rows: method -> its panels.
        width: of the figure, in inches.
    """
    columns = len(next(iter(rows.values())))
    side = (width - 0.3) / columns
    figure = Figure(figsize=(width, 0.45 + (side + 0.12) * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, (method, panels) in enumerate(rows.items()):
        for column, panel in enumerate(panels):
            _scatter(axes[row, column], panel)
            title = panel.title if row == 0 else ""
            panel_title(axes[row, column], row * columns + column, title)
        if len(rows) > 1:
            axes[row, 0].set_ylabel(method_label(method), fontsize=9.5, fontweight="bold")
    first = next(iter(rows.values()))
    _legend(figure, first[0], "outside lower left")
    _legend(figure, first[-1], "outside lower right")
    return figure


def _scatter(axes: Axes, panel: Panel) -> None:
    order = np.random.default_rng(0).permutation(len(panel.points))  # no group hides the others
    colors = np.array([panel.colors[group] for group in panel.groups], dtype=object)
    x, y = panel.points[order].T
    axes.scatter(x, y, s=6, c=list(colors[order]), linewidths=0, alpha=0.8)
    axes.set(xticks=[], yticks=[])
    low, high = panel.points.min(axis=0), panel.points.max(axis=0)
    middle, half = (low + high) / 2, 0.53 * (high - low).max()
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    axes.set_aspect("equal")
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color("#d5dae1")
    told = f"{NEIGHBOURS}-NN {panel.purity:.1f} %"
    behind = {"facecolor": "white", "alpha": 0.8, "pad": 1, "linewidth": 0}
    axes.text(
        0.985, 0.02, told, ha="right", va="bottom", fontsize=SMALL, color=MUTED,
        transform=axes.transAxes, bbox=behind,
    )  # fmt: skip


def _legend(figure: Figure, panel: Panel, place: _Place) -> None:
    """Names of the groups, in two lines where one would be too long; none for very many."""
    if len(panel.names) > _NAMES:
        return
    wide = sum(0.28 + 0.062 * len(name) for name in panel.names)  # inches, more or less
    across = len(panel.names) if wide < _WIDE else -(-len(panel.names) // 2)
    handles = [
        Line2D([], [], linestyle="", marker="o", markersize=4, color=color, label=name)
        for name, color in zip(panel.names, panel.colors, strict=True)
    ]
    figure.legend(
        handles=handles, loc=place, ncols=across,
        handletextpad=0.1, columnspacing=0.8, borderaxespad=0.2,
    )  # fmt: skip


# -- from records ---------------------------------------------------------------------------------


def panels_of(results: Results, run: RunRecord) -> list[Panel]:
    """Before and after normalisation, and ID against OOD.

    Args:
        results: of a bench.
        run: with arrays.
    """
    sets = results.arrays(run)
    tested = sets.get(_TEST, {})
    if "features" not in tested or "label" not in tested:
        raise Unavailable(f"the arrays of {run.title} have no features of test data")
    features = tested["features"].astype(np.float64)
    labels = tested["label"][: len(features)]
    known = class_names(results.protocol.task)
    names = known or [str(each) for each in range(tested["log_probs"].shape[1])]
    return [
        class_panel("before normalisation", features, labels, names),
        class_panel("after normalisation", unit(features), labels, names),
        set_panel("ID and OOD", {ID: unit(features)} | _outside(results, run)),
    ]


def _outside(results: Results, run: RunRecord) -> dict[str, Floats]:
    """Unit-norm features of each kind of OOD data, an even choice of all its sets."""
    found = {}
    for kind, names in ood_groups(results).items():
        joined = needed(results, run, names, "features")
        found[kind] = unit(joined[even_choice(len(joined), _MOST)])
    return found


@styled()
def tsne_ours(results: Results) -> Figure:
    """GEM-FI: one row of three."""
    shown = shown_row(results)
    return draw_panels({shown.method: panels_of(results, shown.first)})


@styled()
def tsne_family(results: Results) -> Figure:
    """The GEM family: a row a method; not where all of them see the same features."""
    shown = [shown_row(results, name) for name in FAMILY]
    if all(each.first.spec["backbone"] == FROZEN for each in shown):
        raise Unavailable(
            "no backbone is trained: the features are the same for every method, as in tsne-fi"
        )
    return draw_panels({each.method: panels_of(results, each.first) for each in shown})


_WHAT: Final = (
    "t-SNE of the features of at most 400 test inputs, by class: as the backbone gives them, and "
    "scaled to unit norm, as the density sees them by default; and, of unit norm, beside at most "
    "400 near and 400 far OOD inputs. The number above each panel is the share of the ten nearest "
    "neighbours, among the features themselves and not in the plane, that are of one's own group "
    "(mean over groups). First seed; perplexity 30, started from the principal components, fixed "
    "random state. Distances between clusters mean nothing in t-SNE."
)
EMBEDDING_FIGURES: Final[Mapping[str, FigureEntry]] = {
    "tsne-fi": FigureEntry("Features of GEM-FI", f"GEM-FI: {_WHAT}", noting(tsne_ours)),
    "tsne-comparison": FigureEntry(
        "Features of the GEM variants",
        f"Rows: GEM-CORE, GEM-MIX, GEM-FI. {_WHAT}",
        noting(tsne_family),
    ),
}
"""Label -> figure."""
