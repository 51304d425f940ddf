"""Features of the GEM family as t-SNE lays them out: raw, of unit norm, and beside OOD data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from gemfi._drawing import MUTED
from gemfi.metrics import Floats
from gemfi_bench.figures import common
from gemfi_bench.figures.common import FAMILY, GROUP_COLORS, ID, SMALL, TEXT, Ints
from gemfi_bench.figures.simplex import class_names
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import method_label
from gemfi_bench.unavailable import Unavailable

FROZEN: Final = "identity"
"""The backbone of runs on features that are given."""

PERPLEXITY: Final = 30
NEIGHBOURS: Final = 10
_MOST: Final = 400  # points of a group
_WIDE: Final = 4.0  # inches that a line of a legend may have
_NAMES: Final = 20  # that a legend may have


@dataclass(frozen=True)
class Panel:
    """Points (N, 2) with the numbers of their groups (N,), and names and colours of the groups."""

    title: str
    points: Floats
    groups: Ints
    names: Sequence[str]
    colors: Sequence[Any]
    purity: float


# -- numbers --------------------------------------------------------------------------------------


def unit(features: Floats) -> Floats:
    """Rows on the unit sphere; a row of zeros stays."""
    norm = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.where(norm > 0, norm, 1.0))


def embedded(features: Floats) -> Floats:
    """Features (N, D) as points of the plane (N, 2), the same at every call on one machine."""
    if len(features) < 4 or not np.ptp(features, axis=0).any():
        raise Unavailable("t-SNE needs at least four inputs whose features differ")
    perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
    method = TSNE(2, perplexity=perplexity, init="pca", random_state=0)
    with threadpool_limits(limits=1):  # sums depend on the number of threads
        points: Floats = method.fit_transform(features.astype(np.float32)).astype(np.float64)
    return points


def purity(features: Floats, groups: Ints, neighbours: int = NEIGHBOURS) -> float:
    """Share of each input's nearest others that are of its own group, in percent.

    Each group counts alike, whatever its size. It says in numbers, on the features (N, D)
    themselves, what the eye looks for in the picture.
    """
    count = min(neighbours, len(features) - 1)
    search = NearestNeighbors(n_neighbors=count).fit(features)
    nearest = search.kneighbors(return_distance=False)  # (N, count), oneself left out
    same = (groups[nearest] == groups[:, None]).mean(axis=1)
    return 100 * float(np.mean([same[groups == group].mean() for group in np.unique(groups)]))


# -- drawing --------------------------------------------------------------------------------------


def draw_panels(rows: Mapping[str, Sequence[Panel]]) -> Figure:
    """A row a method, a column a kind of panel."""
    first = next(iter(rows.values()))
    side = (TEXT - 0.3) / len(first)
    figure = Figure(figsize=(TEXT, 0.45 + (side + 0.12) * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), len(first), squeeze=False)
    for row, (method, panels) in enumerate(rows.items()):
        for column, panel in enumerate(panels):
            _draw_points(axes[row, column], panel)
            title = panel.title if row == 0 else ""
            common.panel_title(axes[row, column], row * len(first) + column, title)
        if len(rows) > 1:
            axes[row, 0].set_ylabel(method_label(method), fontsize=9.5, fontweight="bold")
    _add_legend(figure, first[0], "outside lower left")
    _add_legend(figure, first[-1], "outside lower right")
    return figure


def _draw_points(axes: Axes, panel: Panel) -> None:
    order = np.random.default_rng(0).permutation(len(panel.points))  # no group hides the others
    x, y = panel.points[order].T
    colors = [panel.colors[group] for group in panel.groups[order]]
    axes.scatter(x, y, s=6, c=colors, linewidths=0, alpha=0.8)
    low, high = panel.points.min(axis=0), panel.points.max(axis=0)
    middle, half = (low + high) / 2, 0.53 * (high - low).max()
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    axes.set(xticks=[], yticks=[], aspect="equal")
    for spine in axes.spines.values():
        spine.set(visible=True, color="#d5dae1")
    axes.text(
        0.985, 0.02, f"{NEIGHBOURS}-NN {panel.purity:.1f} %", ha="right", va="bottom",
        fontsize=SMALL, color=MUTED, transform=axes.transAxes,
        bbox={"facecolor": "white", "alpha": 0.8, "pad": 1, "linewidth": 0},
    )  # fmt: skip


def _add_legend(
    figure: Figure, panel: Panel, place: Literal["outside lower left", "outside lower right"]
) -> None:
    """Names of the groups, in two lines where one would be too long; none for very many."""
    if len(panel.names) > _NAMES:
        return
    wide = sum(0.28 + 0.062 * len(name) for name in panel.names)  # inches, more or less
    across = len(panel.names) if wide < _WIDE else -(-len(panel.names) // 2)
    figure.legend(
        handles=list(map(common.point_handle, panel.names, panel.colors)), loc=place, ncols=across,
        handletextpad=0.1, columnspacing=0.8, borderaxespad=0.2,
    )  # fmt: skip


# -- from records ---------------------------------------------------------------------------------


def panels_of(results: Results, run: RunRecord) -> list[Panel]:
    """The classes before and after normalisation, and ID against OOD, of a run with arrays."""
    tested = results.arrays(run).get("test", {})
    if "features" not in tested or "label" not in tested:
        raise Unavailable(f"the arrays of {run.title} have no features of test data")
    features = tested["features"].astype(np.float64)
    labels = tested["label"][: len(features)].astype(np.int64)
    names = class_names(results.protocol.task) or [
        str(number) for number in range(tested["log_probs"].shape[1])
    ]
    cmap = colormaps["tab10" if len(names) <= 10 else "tab20"]
    classes = names, [cmap(number % cmap.N) for number in range(len(names))]
    sets = {ID: unit(features)}
    for group, members in common.ood_groups(results).items():
        joined = common.needed(results, run, members, "features")
        sets[group] = unit(joined[common.even_choice(len(joined), _MOST)])
    every = np.concatenate(list(sets.values()))
    groups = np.repeat(np.arange(len(sets)), [len(part) for part in sets.values()])
    kinds = list(sets), [GROUP_COLORS[group] for group in sets]

    def panel(title: str, points: Floats, numbers: Ints, key: tuple[Any, Any]) -> Panel:
        return Panel(title, embedded(points), numbers, *key, purity(points, numbers))

    return [
        panel("before normalisation", features, labels, classes),
        panel("after normalisation", unit(features), labels, classes),
        panel("ID and OOD", every, groups, kinds),
    ]


def tsne_ours(results: Results) -> Figure:
    """GEM-FI: one row of three."""
    row = common.shown_row(results)
    return draw_panels({row.method: panels_of(results, row.first)})


def tsne_family(results: Results) -> Figure:
    """The GEM family: a row a method; not where all of them see the same features."""
    rows = [common.shown_row(results, method) for method in FAMILY]
    if all(row.first.spec["backbone"] == FROZEN for row in rows):
        raise Unavailable(
            "no backbone is trained: the features are the same for every method, as in tsne-fi"
        )
    return draw_panels({row.method: panels_of(results, row.first) for row in rows})


FIGURES: Final = {"tsne-fi": tsne_ours, "tsne-comparison": tsne_family}
