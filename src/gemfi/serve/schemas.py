"""What is answered, as pydantic models: answers are made of them, and OpenAPI is generated."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from gemfi._config import to_plain
from gemfi.answers import Prediction
from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.serve.formats import InputFormat

_FOLDERS: Final = re.compile(r"""(?<![^\s"'])[^\s"']*[\\/]""")  # looked for once a word


@dataclass
class Answer:
    """The predictions, in the order of the inputs."""

    model: str
    method: str
    predictions: list[Prediction]


ANSWER: Final = TypeAdapter(Answer)


class _Strict(BaseModel):
    """Nothing but what is listed."""

    model_config = ConfigDict(extra="forbid")


class ErrorFields(_Strict):
    """What is wrong, for programs (code) and people (message), and where, such as inputs[3]."""

    code: str
    message: str
    where: str | None


class Error(_Strict):
    """A request that is not answered."""

    error: ErrorFields


class ProblemError(Exception):
    """A request that is not answered: HTTP status, `ErrorFields`, and headers of the answer.

    The message tells nothing of the machine that serves.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        where: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.where = status, code, message, where
        self.headers = headers

    def response(self) -> Response:
        """The answer."""
        fields = ErrorFields(code=self.code, message=self.message, where=self.where)
        body = Error(error=fields).model_dump_json()
        return Response(body, self.status, self.headers, media_type="application/json")


class Health(_Strict):
    """Whether the server answers; one that is stopping finishes what it accepted, and ends."""

    status: Literal["ok", "stopping"]


class Reloaded(_Strict):
    """What is served now."""

    model: str
    method: str


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


def about_model(
    bundle: Bundle, policy: Policy | None, form: InputFormat, limits: Limits
) -> ModelAbout:
    """What is told of a bundle."""
    info, head = bundle.info, bundle.model.head.info
    return ModelAbout(
        name=bundle.name,
        method=info.method,
        title=head.label,
        summary=head.summary,
        paper=head.paper,
        classes=list(info.class_names),
        feature_names=None if info.feature_names is None else list(info.feature_names),
        columns=None if bundle.columns is None else to_plain(bundle.columns)["columns"],
        input=InputKind(kind=form.kind, shape=list(form.shape), dtype=form.dtype),
        policy=None if policy is None else _about_policy(policy),
        references={name: list(values) for name, values in bundle.references.items()},
        metrics=_without_folders(info.metrics),
        provenance=_without_folders(info.provenance),
        limits=limits,
    )


def _about_policy(policy: Policy) -> PolicyAbout:
    return PolicyAbout(
        score=policy.score,
        doubt=policy.doubt,
        level=policy.level,
        threshold=policy.threshold if math.isfinite(policy.threshold) else None,
        goal=str(policy.goal),
        calibration=policy.reference.size,
        least_level=policy.reference.least_level,
        facts=dict(policy.facts),
    )


def without_folders(text: str) -> str:
    """A text with no more of each path than its last part."""
    return _FOLDERS.sub("", text)


def _without_folders(value: Any) -> Any:
    """The same of nested mappings and sequences, as dicts and lists."""
    if isinstance(value, Mapping):
        return {without_folders(str(key)): _without_folders(v) for key, v in value.items()}
    if isinstance(value, str):
        return without_folders(value)
    return [_without_folders(v) for v in value] if isinstance(value, list | tuple) else value
