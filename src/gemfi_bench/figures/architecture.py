"""The architectures of DAEDL and GEM-FI, read from the modules of a model as it was run.

Nothing is drawn from memory: the boxes and their numbers come from the layers, the configuration
and the switches of a model that is built from the specification in a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.figure import Figure

from gemfi._drawing import styled
from gemfi.errors import InputError, MissingDataError
from gemfi.methods.daedl import DAEDL
from gemfi.methods.gem import CLIP, GEM
from gemfi.methods.gem_paper import as_paper
from gemfi.model import Model
from gemfi.outliers import OutlierConfig
from gemfi.runs import RunSpec, find_task
from gemfi.scores import score_label
from gemfi_bench.evaluate import VALIDATION
from gemfi_bench.figures.common import FigureEntry
from gemfi_bench.figures.diagram import Arrow, Box, Diagram, Kind, draw_diagrams
from gemfi_bench.figures.layers import layer_lines, norms_line, power, sample_line, sizes_line
from gemfi_bench.grid import MAIN
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import method_label
from gemfi_bench.unavailable import Unavailable

_INPUT, _BACKBONE, _FEATURES, _MODULE, _SIGNAL, _BELIEF, _OUTPUT = range(7)  # columns


# -- what both have -------------------------------------------------------------------------------


def _common(model: Model, rows: tuple[int, int]) -> tuple[dict[str, Box], list[Arrow]]:
    """Input, backbone and features, which every method has."""
    count, backbone = model.head.num_features, model.backbone
    lines = layer_lines(backbone)
    norms = norms_line(backbone) or "spectral norm free"
    told = (*lines, norms) if lines else ("features as given",)
    sample = (
        sample_line(backbone, count),
        *(() if model.input_mean is None else ("standardised",)),
    )
    boxes = {
        "x": Box("input x", (_INPUT, _INPUT), rows, sample, "data"),
        "backbone": Box(
            type(backbone).__name__, (_BACKBONE, _BACKBONE), rows, told,
            "learned" if lines else "computed",
        ),
        "z": Box("z", (_FEATURES, _FEATURES), rows, (str(count),), "data"),
    }  # fmt: skip
    middle = (rows[0] + rows[1]) // 2
    return boxes, [Arrow("x", "backbone", middle), Arrow("backbone", "z", middle)]


def _box(
    title: str,
    column: int,
    rows: tuple[int, int],
    lines: Sequence[str | None],
    kind: Kind = "computed",
    stack: int = 1,
) -> Box:
    return Box(title, (column, column), rows, tuple(each for each in lines if each), kind, stack)


def _outliers(config: OutlierConfig, row: int) -> tuple[dict[str, Box], list[Arrow]]:
    """What stands for the unknown in training, where there is any."""
    if config.is_none:
        return {}, []
    lines = [f"{config.ratio:g} for each sample"]
    if config.scrambled > 0 and config.kind != "scrambled":
        lines.append(f"and {config.scrambled:g} scrambled inputs")
    box = Box(
        f"outliers: {config.kind}", (_BACKBONE, _FEATURES), (row, row), tuple(lines), "training"
    )
    return {"outliers": box}, [Arrow("outliers", "z", dashed=True)]


def _space(space: str) -> str:
    return "unit-norm z" if space == "unit" else "raw z"


def _score_lines(model: Model, kind: str) -> tuple[str, str]:
    """Which score stands for a kind of uncertainty, in two lines: a box is narrow."""
    return f"{kind}:", score_label(model.head.named_scores[kind])


# -- DAEDL ----------------------------------------------------------------------------------------


def daedl_diagram(model: Model) -> Diagram:
    """One Dirichlet whose logits are scaled by the density of the features."""
    head = model.head
    if not isinstance(head, DAEDL):
        raise InputError(f"expected a model of daedl, got one of {head.info.name}")
    boxes, arrows = _common(model, (0, 1))
    more, dashed = _outliers(head.outliers, -1)
    aleatoric, epistemic = (_score_lines(model, kind) for kind in ("aleatoric", "epistemic"))
    boxes |= {
        "head": _box("one head", _MODULE, (0, 0), layer_lines(head.linear), "learned"),
        "density": _box(
            "density", _MODULE, (1, 1),
            [f"{head.num_classes} Gaussians", *_covariance(head.density.shrinkage)], "fitted",
        ),
        "alpha": _box("α", _SIGNAL, (0, 0), (r"$\alpha = e^{\lambda u}$",)),
        "scale": _box(
            "scale λ", _SIGNAL, (1, 1),
            ("of log density, 0 to 1", "over training data"), "fitted",
        ),
        "belief": _box("Dirichlet", _BELIEF, (0, 0), (r"$\mathrm{Dir}(\alpha)$",)),
        "output": _box(
            "output", _OUTPUT, (0, 1),
            (r"$p = \alpha / S$", r"$S = \Sigma_c\,\alpha_c$", *aleatoric, *epistemic),
        ),
    }  # fmt: skip
    arrows += [
        Arrow("z", "head", 0), Arrow("z", "density", 1), Arrow("density", "scale", 1),
        Arrow("head", "alpha", 0), Arrow("scale", "alpha"), Arrow("alpha", "belief", 0),
        Arrow("belief", "output", 0),
    ]  # fmt: skip
    return Diagram(boxes | more, [*arrows, *dashed])


def _covariance(shrinkage: float | None) -> tuple[str, ...]:
    if shrinkage is None:
        return "own covariance, or", "one if samples are few"
    return (f"shrinkage {shrinkage:g}",)


# -- GEM ------------------------------------------------------------------------------------------


class _GEMDiagram:
    """Collects the boxes of a GEM head, row by row, as far as its configuration has them."""

    def __init__(self, model: Model, head: GEM) -> None:
        self.model, self.head, self.config = model, head, as_paper(head.config)
        self.gate = getattr(head, "gate", None)
        present = {
            "router": head.router is not None,
            "energy": head.energy is not None,
            "heads": True,
            "density": head.density is not None,
        }
        names = [name for name, there in present.items() if there]
        self.row = {name: row for row, name in enumerate(names)}
        self.last = len(names) - 1
        self.boxes, self.arrows = _common(model, (0, self.last))

    def diagram(self) -> Diagram:
        """All of it."""
        for name, add in (("router", self._router), ("energy", self._energy)):
            if name in self.row:
                add(self.row[name])
        self._heads(self.row["heads"])
        self._belief(self.row["heads"])
        self._fisher()
        if "density" in self.row:
            self._density(self.row["density"])
        outliers, dashed = _outliers(self.head.outliers, -1)
        self.boxes |= outliers
        self.arrows += dashed
        return Diagram(self.boxes, self.arrows)

    def _module(self, key: str, box: Box) -> None:
        self.boxes[key] = box
        self.arrows.append(Arrow("z", key, box.rows[0]))

    def _router(self, row: int) -> None:
        head, config = self.head, self.config
        if head.router is None:
            return
        lines = [sizes_line(head.router), norms_line(head.router), self._energy_space()]
        self._module("router", _box("router", _MODULE, (row, row), lines, "learned"))
        softmax = r"$\pi = \mathrm{softmax}$" + f" ({config.num_components})"
        self.boxes["weights"] = _box("weights π", _SIGNAL, (row, row), [softmax])
        self.arrows.append(Arrow("router", "weights", row))

    def _fisher(self) -> None:
        """The Fisher terms; one head has no weights to modulate."""
        config, mixed = self.config, "weights" in self.boxes
        lines = [f"penalty {config.fi_reg_weight:g}"] if config.fi_reg_weight else []
        if config.fi_mod_strength and mixed:
            lines.append(f"modulates π by {config.fi_mod_strength:g}")
        if not lines:
            return
        self.boxes["fisher"] = _box("Fisher information", _SIGNAL, (-1, -1), lines, "training")
        below = "weights" if mixed else "alpha"
        if self.boxes[below].rows[0] == 0:  # what is between would look like its target
            self.arrows.append(Arrow("fisher", below, dashed=True))

    def _energy(self, row: int) -> None:
        head: Any = self.head
        config = self.config
        if head.energy is None:
            return
        lines = [
            sizes_line(head.energy),
            norms_line(head.energy),
            self._energy_space(),
        ]
        self._module("energy", _box("energy E", _MODULE, (row, row), lines, "learned"))
        if head.router is not None:
            self.arrows.append(Arrow("energy", "router", label=r"$\sigma(E)$"))
        if config.core:
            self._gate(row)

    def _energy_space(self) -> str | None:
        """What energy, gate and router see, where it is not z itself."""
        return _space("unit")

    def _gate(self, row: int) -> None:
        gate, config = self.gate, self.config
        if gate is None:
            lines = [r"$s = \sigma((a - E)/b)$", "one for all classes"]
            box = _box("gate: energy", _SIGNAL, (row, row), lines, "fitted")
        else:
            bounds = f"{config.gate_low:g} to {config.gate_high:g}"
            lines = [r"$s$ of $[z, \sigma(E)]$, one a class", sizes_line(gate), bounds]
            box = _box(f"gate: {config.gate}", _SIGNAL, (row, row), lines, "learned")
        self.boxes["gate"] = box
        self.arrows.append(Arrow("energy", "gate", row))
        if config.gate == "prob":
            self.arrows.append(Arrow("gate", "belief", row))
        else:
            self.arrows.append(Arrow("gate", "alpha"))

    def _heads(self, row: int) -> None:
        config, count = self.config, self.config.num_components
        temperature = "T learned"
        lines = [
            sizes_line(self.head.heads),
            norms_line(self.head.heads),
            f"{temperature}, {_space(config.feature_space)}",
        ]
        title = "one head" if count == 1 else f"{count} heads"
        self._module("heads", _box(title, _MODULE, (row, row), lines, "learned", stack=count))
        mode = config.gate if "gate" in self.boxes else "none"
        lines = [_ALPHA[mode], f"|u| ≤ {CLIP:g}, ε = {power(1e-8)}"]
        title = "α" if count == 1 else "α of each head"
        self.boxes["alpha"] = _box(title, _SIGNAL, (row, row), lines, stack=count)
        self.arrows.append(Arrow("heads", "alpha", row))

    def _belief(self, row: int) -> None:
        """The mixture, from the first row to that of the heads, and what comes out of it."""
        single = self.config.num_components == 1
        line = r"$\mathrm{Dir}(\alpha)$" if single else r"$\Sigma_k\,\pi_k\,\mathrm{Dir}(\alpha_k)$"
        title = "Dirichlet" if single else "mixture"
        self.boxes["belief"] = _box(title, _BELIEF, (0, row), [line])
        self.arrows.append(Arrow("alpha", "belief", row))
        if "weights" in self.boxes:
            self.arrows.append(Arrow("weights", "belief", self.row["router"]))
        gated = "gate" in self.boxes and self.config.gate == "prob"
        prediction = [_PREDICTION[gated, single], *_score_lines(self.model, "aleatoric")]
        scaled = self.head.scaler is not None
        evidence = [_EVIDENCE[scaled, single], *_score_lines(self.model, "epistemic")]
        if self.head.named_scores["epistemic"] == "unfamiliarity":
            known = {"E": self.head.energy, "density": self.head.density}
            others = [name for name, module in known.items() if module is not None]
            evidence.append(f"of {', '.join(['evidence', *others])}")
        if row == 0:  # no room for two boxes beside one row
            lines = [*prediction, *evidence]
            self.boxes["output"] = _box("output", _OUTPUT, (0, self.last), lines)
            self.arrows.append(Arrow("belief", "output", 0))
            return
        self.boxes["prediction"] = _box("prediction", _OUTPUT, (0, row - 1), prediction)
        self.boxes["output"] = _box("evidence", _OUTPUT, (row, self.last), evidence)
        self.arrows += [Arrow("belief", "prediction", 0), Arrow("belief", "output", row)]

    def _density(self, row: int) -> None:
        density, scaler = self.head.density, self.head.scaler
        lines = [
            f"{self.head.num_classes} Gaussians",
            "one covariance" if density.tied else f"shrinkage {density.shrinkage:g}",
            _space(self.config.density_space),
        ]
        self._module("density", _box("density", _MODULE, (row, row), lines, "fitted"))
        if scaler is None:
            self.arrows.append(Arrow("density", "output", row))
            return
        lines = [f"{scaler.kind}", f"power {scaler.power:g}, at least {scaler.floor:g}"]
        self.boxes["scaler"] = _box("scaler ρ", _SIGNAL, (row, row), lines, "fitted")
        self.arrows += [Arrow("density", "scaler", row), Arrow("scaler", "output", row)]


_ALPHA: Final[Mapping[str, str]] = {
    "none": r"$\alpha = e^{u} + \varepsilon$",
    "prob": r"$\alpha = e^{u} + \varepsilon$",
    "energy": r"$\alpha = s\,(e^{u} + \varepsilon)$",
    "evidence": r"$\alpha = s \odot e^{u} + \varepsilon$",
    "logit": r"$\alpha = e^{s \odot u} + \varepsilon$",
}
_PREDICTION: Final[Mapping[tuple[bool, bool], str]] = {  # gated, single
    (False, True): r"$\hat p = \alpha / \alpha_0$",
    (False, False): r"$\hat p = \Sigma_k\,\pi_k\,\alpha_k / \alpha_{k0}$",
    (True, True): r"$\hat p \propto s \odot \alpha$",
    (True, False): r"$\hat p \propto s \odot \Sigma_k\,\pi_k\,\alpha_k / \alpha_{k0}$",
}
_EVIDENCE: Final[Mapping[tuple[bool, bool], str]] = {  # scaled, single
    (False, True): r"$S = \alpha_0$",
    (False, False): r"$S = \Sigma_k\,\pi_k\,\alpha_{k0}$",
    (True, True): r"$S = \rho\,\alpha_0$",
    (True, False): r"$S = \rho\,\Sigma_k\,\pi_k\,\alpha_{k0}$",
}


def gem_diagram(model: Model) -> Diagram:
    """A gated evidential mixture, with what its configuration has switched on."""
    if not isinstance(model.head, GEM):
        raise InputError(f"expected a model of the GEM family, got one of {model.head.info.name}")
    return _GEMDiagram(model, model.head).diagram()


# -- from records ---------------------------------------------------------------------------------


def titled(model: Model) -> str:
    """Name of the method and number of its parameters."""
    count = sum(each.numel() for each in model.parameters())
    return f"{method_label(model.head.info.name)}, {count:,} parameters"


@styled()
def architecture(results: Results) -> Figure:
    """DAEDL above, GEM-FI below."""
    daedl = built_model(results, "daedl")
    gem = built_model(results, "gem-fi")
    return draw_diagrams({titled(daedl): daedl_diagram(daedl), titled(gem): gem_diagram(gem)})


def built_model(results: Results, method: str) -> Model:
    """The model of the first run of a method, before training; no weights are read.

    Args:
        results: of a bench.
        method: a name in `METHODS`.
    """
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


ARCHITECTURE_FIGURES: Final[Mapping[str, FigureEntry]] = {
    "arch": FigureEntry(
        "Architectures of DAEDL and GEM-FI",
        "As they were run here, drawn from the modules and the configuration of the models of the "
        "first DAEDL and GEM-FI run; sizes are those of the layers. Blue is learned by gradient, "
        "green is fitted after training, dashed orange acts in training only. u: logits; s: gate; "
        "π: weights of the heads; ρ, λ: scalers by density; S: total evidence.",
        architecture,
        sets=False,
    )
}
"""Label -> figure."""
