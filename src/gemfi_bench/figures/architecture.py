"""The architectures of DAEDL and GEM-FI, read from the modules of a model as it was run.

Nothing is drawn from memory: the boxes and their numbers come from the layers, the configuration
and the switches of a model that is built from the specification in a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, groupby
from typing import Any, Final, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.textpath import TextPath
from matplotlib.transforms import Bbox
from torch import nn

from gemfi._drawing import INK, MUTED
from gemfi.errors import InputError, MissingDataError
from gemfi.methods.gem import CLIP, GEMConfig
from gemfi.model import Model
from gemfi.runs import RunSpec, find_task
from gemfi.scores import score_label
from gemfi.spectral import Conv2d, Linear, SpectralLayer
from gemfi_bench.evaluate import VALIDATION
from gemfi_bench.grid import MAIN
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import method_label
from gemfi_bench.unavailable import Unavailable

# -- a diagram: boxes in rows and columns, and straight arrows ------------------------------------

Kind = Literal["data", "learned", "fitted", "computed", "training"]

# Coordinates are inches of the page, so that text has one size whatever the diagram.
_INPUT, _BACKBONE, _FEATURES, _MODULE, _SIGNAL, _BELIEF, _OUTPUT = range(7)  # columns
_WIDTHS: Final = (0.5, 0.98, 0.4, 1.02, 1.14, 0.8, 1.06)
_GAP, _ROW_GAP, _MARGIN = 0.14, 0.15, 0.03  # between columns, between rows, at the edge
_PAD: Final = 0.055  # between text and edge of a box
_HEAD, _FOOT = 0.26, 0.27  # for the title above a diagram, for the key below all
_SHIFT, _CARDS = 0.03, 3  # between the cards of a stack; drawn at most
_TITLE, _LINE, _LEAST = 7.0, 6.3, 4.5  # sizes of text in points
_LEADING: Final = 1.42 / 72  # inches of a line, for a point of its size
PAGE_WIDTH: Final = sum(_WIDTHS) + _GAP * (len(_WIDTHS) - 1) + 2 * _MARGIN

_STYLES: Final[Mapping[Kind, tuple[str, str, str]]] = {  # face, edge, words of the key
    "data": ("#eef0f3", MUTED, ""),
    "learned": ("#dcebf7", "#0072b2", "learned"),
    "fitted": ("#d9f0e8", "#00855f", "fitted after training"),
    "computed": ("#ffffff", MUTED, "computed"),
    "training": ("#fff6ec", "#d55e00", "in training only"),
}


class Box(NamedTuple):
    """A box: a bold title and lines below it, over columns and rows, first and last of each."""

    title: str
    columns: tuple[int, int]
    rows: tuple[int, int]  # they need not begin at 0
    lines: tuple[str, ...]
    kind: Kind
    stack: int  # how many of them lie behind each other

    @property
    def text_height(self) -> float:
        """The height of the lines, in inches."""
        return _LEADING * (_TITLE + _LINE * len(self.lines))


class Diagram:
    """Boxes by their keys, and arrows from box to box."""

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self.arrows: dict[tuple[str, str], str] = {}  # source and target -> label

    def add(
        self,
        key: str,
        title: str,
        columns: int | tuple[int, int],
        rows: int | tuple[int, int],
        *lines: str | None,
        kind: Kind = "computed",
        stack: int = 1,
        source: str | None = None,
    ) -> None:
        """Add a box, and an arrow to it from `source`; lines that are None are left out."""
        columns = (columns, columns) if isinstance(columns, int) else columns
        rows = (rows, rows) if isinstance(rows, int) else rows
        self.boxes[key] = Box(title, columns, rows, tuple(filter(None, lines)), kind, stack)
        if source is not None:
            self.connect(source, key)

    def connect(self, source: str, target: str, label: str = "") -> None:
        """Add an arrow: to the right between boxes that share a row, else up or down."""
        self.arrows[source, target] = label

    def row_of(self, source: str, target: str) -> int | None:
        """The row along which an arrow runs; None for one that goes up or down."""
        ranges = [self.boxes[key].rows for key in (source, target)]
        first, last = max(rows[0] for rows in ranges), min(rows[1] for rows in ranges)
        return None if first > last else (first + last) // 2

    @property
    def step(self) -> float:
        """The height of a row with the gap below it: every box has room for its text."""
        return max(
            (box.text_height + 2 * _PAD + _ROW_GAP) / (box.rows[1] - box.rows[0] + 1)
            for box in self.boxes.values()
        )

    @property
    def height(self) -> float:
        """The height of all rows, in inches."""
        rows = [row for box in self.boxes.values() for row in box.rows]
        return (max(rows) - min(rows) + 1) * self.step - _ROW_GAP

    def row_top(self, row: int, top: float) -> float:
        """Where a row begins, on a page whose first row begins at `top`."""
        return top - (row - min(box.rows[0] for box in self.boxes.values())) * self.step

    def frames(self, top: float) -> dict[str, Bbox]:
        """Key -> where the box is, on a page whose first row begins at `top`."""
        lefts = list(accumulate((width + _GAP for width in _WIDTHS), initial=_MARGIN))
        frames = {}
        for key, box in self.boxes.items():
            (first, last), (upper, lower) = box.columns, box.rows
            bottom = self.row_top(lower + 1, top) + _ROW_GAP
            right = lefts[last] + _WIDTHS[last]
            frames[key] = Bbox.from_extents(lefts[first], bottom, right, self.row_top(upper, top))
        return frames


def draw_diagrams(diagrams: Mapping[str, Diagram]) -> Figure:
    """Diagrams by their titles, below each other, with the key of their colours."""
    height = _FOOT + sum(_HEAD + diagram.height + 0.12 for diagram in diagrams.values()) - 0.12
    figure = Figure(figsize=(PAGE_WIDTH, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, PAGE_WIDTH), ylim=(0, height))
    axes.set_axis_off()
    top = height
    for letter, (title, diagram) in zip("abcdefgh", diagrams.items(), strict=False):
        heading = f"$\\mathbf{{{letter}}}$  {title}"
        axes.text(_MARGIN, top - 0.06, heading, fontsize=8.5, va="top")
        frames = diagram.frames(top - _HEAD)
        for key, box in diagram.boxes.items():
            _draw_box(axes, box, frames[key])
        for ends in diagram.arrows:
            _draw_arrow(axes, diagram, ends, top - _HEAD)
        top -= _HEAD + diagram.height + 0.12
    keys = [(kind, words) for kind, (_, _, words) in _STYLES.items() if words]
    for number, (kind, words) in enumerate(keys):
        left = number * PAGE_WIDTH / len(keys) + 0.2
        _draw_card(axes, Bbox.from_extents(left, 0.05, left + 0.2, 0.17), kind)
        axes.text(left + 0.27, 0.11, words, fontsize=7, va="center")
    return figure


def _draw_card(axes: Axes, frame: Bbox, kind: Kind, shift: float = 0.0) -> None:
    face, edge, _ = _STYLES[kind]
    axes.add_patch(
        FancyBboxPatch(
            (frame.x0 + shift, frame.y0 + shift), frame.width, frame.height,
            boxstyle="round,pad=0,rounding_size=0.05", facecolor=face, edgecolor=edge,
            linewidth=0.8, linestyle=(0, (3, 2)) if kind == "training" else "-", zorder=2,
        )
    )  # fmt: skip


def _draw_box(axes: Axes, box: Box, frame: Bbox) -> None:
    for card in range(min(box.stack, _CARDS) - 1, -1, -1):
        _draw_card(axes, frame, box.kind, card * _SHIFT)
    x, y = (frame.x0 + frame.x1) / 2, (frame.y0 + frame.y1 + box.text_height) / 2
    for number, text in enumerate((box.title, *box.lines)):
        size, weight = (_LINE, "normal") if number else (_TITLE, "bold")
        y -= _LEADING * size / 2
        fitted = fitting(text, size, frame.width - 2 * _PAD, weight)
        axes.text(x, y, text, fontsize=fitted, ha="center", va="center", fontweight=weight)
        y -= _LEADING * size / 2


def fitting(text: str, size: float, width: float, weight: str = "normal") -> float:
    """The size, at most `size`, at which a text is no wider than `width` inches."""
    font = FontProperties(family="DejaVu Sans", weight=weight)
    needed = float(TextPath((0, 0), text, size=size, prop=font).get_extents().width) / 72
    return max(_LEAST, size * min(1.0, width / needed)) if needed > 0 else size


def _draw_arrow(axes: Axes, diagram: Diagram, ends: tuple[str, str], top: float) -> None:
    frames, first = diagram.frames(top), diagram.boxes[ends[0]]
    source, target = (frames[key] for key in ends)
    row = diagram.row_of(*ends)
    if row is not None:
        y = diagram.row_top(row, top) - (diagram.step - _ROW_GAP) / 2
        begin, end = (source.x1 + (min(first.stack, _CARDS) - 1) * _SHIFT, y), (target.x0, y)
    else:
        narrow = min((source, target), key=lambda frame: frame.width)
        x, down = (narrow.x0 + narrow.x1) / 2, source.y0 > target.y0
        begin = (x, source.y0 if down else source.y1)
        end = (x, target.y1 if down else target.y0)
    dashed = first.kind == "training"
    color = _STYLES["training"][1] if dashed else INK
    axes.add_patch(
        FancyArrowPatch(
            begin, end, arrowstyle="-|>,head_length=2.6,head_width=1.5", mutation_scale=1.0,
            shrinkA=0, shrinkB=0, linewidth=0.9, color=color, zorder=3,
            linestyle=(0, (2.5, 1.5)) if dashed else "-",
        )
    )  # fmt: skip
    if label := diagram.arrows[ends]:
        x, y = (begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2
        axes.text(x + 0.05, y, label, fontsize=_LINE, va="center", color=color)


# -- what a module is, in a few words -------------------------------------------------------------


def layer_lines(module: nn.Module, most: int = 5) -> list[str]:
    """The linear and convolutional layers of a module, equal neighbours counted, in order."""
    kinds = (Conv2d, Linear, nn.Conv2d, nn.Linear)
    weights = [
        layer.get_parameter("weight") for layer in module.modules() if isinstance(layer, kinds)
    ]
    texts = [
        f"conv {w.shape[-1]}×{w.shape[-1]}, {w.shape[0]}"
        if w.ndim == 4
        else f"linear {w.shape[-1]}–{w.shape[-2]}"
        for w in weights
    ]
    counted = [(text, len(list(group))) for text, group in groupby(texts)]
    lines = [text if count == 1 else f"{count} × {text}" for text, count in counted]
    return lines if len(lines) <= most else [*lines[: most - 2], "…", lines[-1]]


def sizes_line(perceptron: nn.Module) -> str:
    """Widths of a perceptron from input to output: 33–64–3."""
    layers = [layer for layer in perceptron.modules() if isinstance(layer, Linear)]
    shapes = [layer.get_parameter("weight").shape for layer in layers]  # (K, out, in) or (out, in)
    return "–".join(map(str, (shapes[0][-1], *(shape[-2] for shape in shapes))))


def norms_line(module: nn.Module) -> str | None:
    """How the spectral norms of a module are held; None where they are free."""
    kinds = {
        (layer.spectral.kind, layer.spectral.bound)
        for layer in module.modules()
        if isinstance(layer, SpectralLayer) and layer.spectral.kind != "off"
    }
    bounds = (f"{'≤' if kind == 'soft' else '='} {bound:g}" for kind, bound in sorted(kinds))
    return ", ".join(f"spectral norm {bound}" for bound in bounds) or None


def sample_line(backbone: nn.Module, num_features: int) -> str:
    """The shape of an input, from the first layer; where there is none, inputs are features."""
    for layer in backbone.modules():
        if isinstance(layer, Conv2d):
            return "×".join(map(str, layer.in_shape))
        if isinstance(layer, Linear):
            return str(layer.inputs)
    return str(num_features)


def _space(space: str) -> str:
    return "raw z" if space == "raw" else "unit-norm z"


# -- the diagrams ---------------------------------------------------------------------------------


def _common(model: Model, last_row: int) -> Diagram:
    """Input, backbone, features, and the outliers of training, which every method has."""
    diagram, rows, backbone = Diagram(), (0, last_row), model.backbone
    count, layers, outliers = model.head.num_features, layer_lines(backbone), model.head.outliers
    sample = [sample_line(backbone, count), None if model.input_mean is None else "standardised"]
    words = [*layers, norms_line(backbone) or "spectral norm free"]
    kind: Kind = "learned" if layers else "computed"
    words = words if layers else ["features as given"]
    diagram.add("x", "input x", _INPUT, rows, *sample, kind="data")
    name = type(backbone).__name__
    diagram.add("backbone", name, _BACKBONE, rows, *words, kind=kind, source="x")
    diagram.add("z", "z", _FEATURES, rows, str(count), kind="data", source="backbone")
    if not outliers.is_none:
        lines = [f"{outliers.ratio:g} for each sample"]
        if outliers.scrambled > 0 and outliers.kind != "scrambled":
            lines.append(f"and {outliers.scrambled:g} scrambled inputs")
        title, columns = f"outliers: {outliers.kind}", (_BACKBONE, _FEATURES)
        diagram.add("outliers", title, columns, -1, *lines, kind="training")
        diagram.connect("outliers", "z")
    return diagram


def _score_lines(model: Model, kind: str) -> tuple[str, str]:
    """Which score stands for a kind of uncertainty, in two lines: a box is narrow."""
    return f"{kind}:", score_label(model.head.named_scores[kind])


def daedl_diagram(model: Model) -> Diagram:
    """One Dirichlet whose logits are scaled by the density of the features."""
    head: Any = model.head
    diagram, shrinkage = _common(model, 1), head.density.shrinkage
    own = ["own covariance, or", "one if samples are few"]
    density = [f"{head.num_classes} Gaussians"]
    density += own if shrinkage is None else [f"shrinkage {shrinkage:g}"]
    scale = ["of log density, 0 to 1", "over training data"]
    outputs = [r"$p = \alpha / S$", r"$S = \Sigma_c\,\alpha_c$"]
    outputs += [*_score_lines(model, "aleatoric"), *_score_lines(model, "epistemic")]
    lines = layer_lines(head.linear)
    diagram.add("head", "one head", _MODULE, 0, *lines, kind="learned", source="z")
    diagram.add("density", "density", _MODULE, 1, *density, kind="fitted", source="z")
    diagram.add("alpha", "α", _SIGNAL, 0, r"$\alpha = e^{\lambda u}$", source="head")
    diagram.add("scale", "scale λ", _SIGNAL, 1, *scale, kind="fitted", source="density")
    diagram.connect("scale", "alpha")
    diagram.add("belief", "Dirichlet", _BELIEF, 0, r"$\mathrm{Dir}(\alpha)$", source="alpha")
    diagram.add("output", "output", _OUTPUT, (0, 1), *outputs, source="belief")
    return diagram


def gem_diagram(model: Model) -> Diagram:
    """A gated evidential mixture; of one component there is no router."""
    head: Any = model.head
    config, mixed = head.config, head.router is not None
    count, energy = config.num_components, int(mixed)
    heads, last = energy + 1, energy + 2  # rows
    diagram = _common(model, last)
    if mixed:
        lines = (sizes_line(head.router), _space("unit"))
        diagram.add("router", "router", _MODULE, 0, *lines, kind="learned", source="z")
        softmax = rf"$\pi = \mathrm{{softmax}}$ ({count})"
        diagram.add("weights", "weights π", _SIGNAL, 0, softmax, source="router")
    lines = (sizes_line(head.energy), _space("unit"))
    diagram.add("energy", "energy E", _MODULE, energy, *lines, kind="learned", source="z")
    lines = (r"$s = \sigma((a - E)/b)$", "one for all classes")
    diagram.add("gate", "gate: energy", _SIGNAL, energy, *lines, kind="fitted", source="energy")
    lines = (sizes_line(head.heads), f"T learned, {_space(config.feature_space)}")
    title, alpha = (f"{count} heads", "α of each head") if mixed else ("one head", "α")
    diagram.add("heads", title, _MODULE, heads, *lines, kind="learned", stack=count, source="z")
    lines = (r"$\alpha = s\,(e^{u} + \varepsilon)$", rf"|u| ≤ {CLIP:g}, ε = $10^{{-8}}$")
    diagram.add("alpha", alpha, _SIGNAL, heads, *lines, stack=count, source="heads")
    mixture = r"$\Sigma_k\,\pi_k\,\mathrm{Dir}(\alpha_k)$"
    title, line = ("mixture", mixture) if mixed else ("Dirichlet", r"$\mathrm{Dir}(\alpha)$")
    diagram.add("belief", title, _BELIEF, (0, heads), line, source="alpha")
    diagram.connect("gate", "alpha")
    if mixed:
        diagram.connect("energy", "router", r"$\sigma(E)$")
        diagram.connect("weights", "belief")
    _add_fisher(diagram, config)
    mean = r"\Sigma_k\,\pi_k\,\alpha_k / \alpha_{k0}" if mixed else r"\alpha / \alpha_0"
    told = (rf"$\hat p = {mean}$", *_score_lines(model, "aleatoric"))
    diagram.add("prediction", "prediction", _OUTPUT, (0, heads - 1), *told, source="belief")
    total = r"\Sigma_k\,\pi_k\,\alpha_{k0}" if mixed else r"\alpha_0"
    told = (rf"$S = \rho\,{total}$", *_score_lines(model, "epistemic"))
    of = "of evidence, E, density" if "unfamiliarity" in head.named_scores["epistemic"] else None
    diagram.add("output", "evidence", _OUTPUT, (heads, last), *told, of, source="belief")
    own = f"shrinkage {head.density.shrinkage:g}"
    own = "one covariance" if head.density.tied else own
    seen = "every stage" if head.num_taps else _space(config.density_space)
    gaussians = (f"{head.num_classes} Gaussians", own, seen)
    diagram.add("density", "density", _MODULE, last, *gaussians, kind="fitted", source="z")
    lines = (head.scaler.kind, f"power {head.scaler.power:g}, at least {head.scaler.floor:g}")
    diagram.add("scaler", "scaler ρ", _SIGNAL, last, *lines, kind="fitted", source="density")
    diagram.connect("scaler", "output")
    return diagram


def _add_fisher(diagram: Diagram, config: GEMConfig) -> None:
    """The Fisher terms; one head has no weights to modulate."""
    mixed = "weights" in diagram.boxes
    lines = [f"penalty {config.fi_reg_weight:g}"] if config.fi_reg_weight else []
    if config.fi_mod_strength and mixed:
        lines.append(f"modulates π by {config.fi_mod_strength:g}")
    if lines:
        diagram.add("fisher", "Fisher information", _SIGNAL, -1, *lines, kind="training")
    if lines and mixed:  # else what is between would look like its target
        diagram.connect("fisher", "weights")


# -- from records ---------------------------------------------------------------------------------


def architecture(results: Results) -> Figure:
    """DAEDL above, GEM-FI below."""
    models = built_model(results, "daedl"), built_model(results, "gem-fi")
    diagrams = daedl_diagram(models[0]), gem_diagram(models[1])
    return draw_diagrams(dict(zip(map(titled, models), diagrams, strict=True)))


def titled(model: Model) -> str:
    """Name of the method and number of its parameters."""
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"{method_label(model.head.info.name)}, {count:,} parameters"


def built_model(results: Results, method: str) -> Model:
    """The model of the first run of a method, before training; no weights are read."""
    rows = [row for row in results.rows(MAIN) if results.method(row) == method]
    runs = [run for row in rows for run in results.runs(row)]
    if not runs:
        raise Unavailable(f"no run of {method_label(method)} is here")
    results.use(runs[0])
    return RunSpec.from_plain(runs[0].spec).build(num_classes(results, runs[0]), None)


def num_classes(results: Results, run: RunRecord) -> int:
    """C of a run: from its arrays, or from the task where those are not here."""
    if results.has_arrays(run):
        return int(results.arrays(run)[VALIDATION]["log_probs"].shape[1])
    spec = RunSpec.from_plain(run.spec)
    try:
        return find_task(spec.task, spec.own).num_classes
    except (InputError, MissingDataError) as error:
        raise Unavailable(f"neither the arrays nor the data of {run.title} are here") from error


FIGURES: Final = {"arch": architecture}
