"""What is answered, as pydantic models. They describe answers and do not make them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    """Nothing but what is listed."""

    model_config = ConfigDict(extra="forbid")


class Uncertainty(_Strict):
    """The entropy of the answer, split into parts that sum to it (nats)."""

    total: float | None
    aleatoric: float | None = Field(description="What more data would not remove.")
    within: float | None = Field(description="The doubt of each head about itself.")
    between: float | None = Field(description="Disagreement of the heads.")


class Head(_Strict):
    """One component of the mixture, before the gate."""

    weight: float | None
    evidence: float | None = Field(description="Total concentration; null where there is none.")
    probs: list[float | None]


class Detail(_Strict):
    """What is behind a prediction; null for what the method does not have."""

    heads: list[Head]
    gate: list[float | None] | None = Field(description="One a class, or one for all.")
    energy: float | None
    rho: float | None
    log_density: float | None
    alpha: list[float | None] | None = Field(description="Concentration of each class, with rho.")
    input: list[list[list[int]]] | None = Field(
        description="Of images: the bytes (C, H, W) that the model saw."
    )


class Prediction(_Strict):
    """What the model thinks of one input."""

    label: str
    index: int
    confidence: float
    decision: Literal["accept", "abstain", "unfamiliar"] | None = Field(
        description="null without a policy."
    )
    p_value: float | None = Field(
        description="Conformal p-value of 'this input is like the calibration data'."
    )
    doubt: float | None
    probs: list[float]
    uncertainty: Uncertainty
    scores: dict[str, float | None] = Field(description="Higher is more uncertain.")
    detail: Detail | None


class Answer(_Strict):
    """The predictions, in the order of the inputs."""

    model: str
    method: str
    predictions: list[Prediction]


class ErrorFields(_Strict):
    """What is wrong, for programs (code) and people (message), and where."""

    code: str
    message: str
    where: str | None


class Error(_Strict):
    """A request that is not answered."""

    error: ErrorFields


class InputKind(_Strict):
    """What an input is."""

    kind: Literal["image", "row", "text", "array"]
    shape: list[int]
    dtype: str


class ColumnAbout(_Strict):
    """A column of a table."""

    name: str
    kind: Literal["number", "category"]
    missing: bool = Field(description="Whether a value may be null.")
    fill: float = Field(description="Of numbers: what stands for a missing one.")
    categories: list[str] = Field(description="Values that are known; any other is one of others.")


class PolicyAbout(_Strict):
    """How decisions are made."""

    score: str
    doubt: str
    level: float
    threshold: float | None = Field(description="null if it is infinite.")
    goal: str
    calibration: int
    least_level: float
    facts: dict[str, float | None]


class Limits(_Strict):
    """Of one request."""

    batch: int
    bytes: int
    pixels: int


class ModelAbout(_Strict):
    """The model, what it takes, how it decides, and the limits of the server."""

    name: str
    method: str
    title: str
    summary: str
    paper: str
    classes: list[str]
    feature_names: list[str] | None = Field(description="Of the numbers of a row.")
    columns: list[ColumnAbout] | None = Field(
        description="Of a table, by whose names a row may be an object."
    )
    input: InputKind
    policy: PolicyAbout | None
    references: dict[str, list[float | None]] = Field(
        description="Quantiles of scores on calibration data, from the least to the greatest."
    )
    metrics: dict[str, Any]
    provenance: dict[str, Any]
    limits: Limits


class Health(_Strict):
    """Whether the server answers."""

    status: Literal["ok"]


class Reloaded(_Strict):
    """What is served now."""

    model: str
    method: str


class Stopping(_Strict):
    """The server finishes what it accepted, and ends."""

    status: Literal["stopping"]
