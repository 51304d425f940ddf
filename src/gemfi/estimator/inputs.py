"""What a user hands to `GEMClassifier`, as numbers: samples, labels, weights, scales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, check_array, check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from gemfi._files import require_module
from gemfi.data.columns import Cells, Columns, frame_cells, warn_of_missing
from gemfi.data.tensors import require_dense
from gemfi.errors import InputError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ClassWeight = Mapping[Any, float] | Literal["balanced"] | None

CHUNK = 1 << 22  # numbers that are held in float64 at a time: 32 MiB
ROWS = 1 << 14  # samples likewise, since a belief on one may be larger than the sample

_NUMBERS: Final[dict[str, Any]] = {
    "dtype": "numeric",
    "allow_nd": True,
    "ensure_all_finite": "allow-nan",
}


def without_torch(data: Any, name: str = "X") -> Any:
    """A tensor as an array, on the CPU and without gradients; anything else as it is."""
    require_dense(data, name)
    if not isinstance(data, Tensor):
        return data
    tensor = data.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def chunks(x: Array) -> Iterator[Array]:
    """The samples in pieces of bounded size, each a copy in float64, row by row."""
    rows = max(1, min(ROWS, CHUNK // max(1, x[:1].size)))
    for start in range(0, len(x), rows):
        yield np.array(x[start : start + rows], dtype=np.float64, order="C")


# -- samples and labels ----------------------------------------------------------------------------


def check_training(estimator: Any, x: Any, y: Any) -> tuple[Any, Array]:
    """X and y of a fit: numbers as an array, any other table as it is; remembers the columns."""
    x, y = without_torch(x), without_torch(y, "y")
    if estimator.preprocessor is None and not _is_mixed(x):
        _refuse_words(x)
        return validate_data(estimator, x, y, **_NUMBERS)  # type: ignore[no-any-return]
    validate_data(estimator, x, y, skip_check_array=True)
    check_consistent_length(x, y)
    return x, column_or_1d(y, warn=True)


def encoded_labels(y: Array) -> tuple[Array, Ints]:
    """The classes in order, and the index of each label among them."""
    check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InputError(
            f"y has one class only: all {len(y)} labels are {classes.tolist()[0]!r}; a classifier "
            "needs at least two classes"
        )
    return classes, labels.astype(np.int64)


def _is_mixed(x: Any) -> bool:
    """Whether X is a data frame of more than plain numbers: categories, or missing values."""
    if not (hasattr(x, "iloc") and hasattr(x, "dtypes")):
        return False
    plain = (isinstance(dtype, np.dtype) and dtype.kind in "iufb" for dtype in x.dtypes)
    return not all(plain) or bool(x.isna().to_numpy().any())


def _refuse_words(x: Any) -> None:
    """Refuse a sparse matrix, and an array with words: a data frame's columns may have them."""
    if scipy.sparse.issparse(x):
        raise InputError(
            "X is a sparse matrix, and the network takes dense rows: give X.toarray(), or of many "
            "columns GEMClassifier(preprocessor=TruncatedSVD(n_components=100))"
        )
    array = np.asarray(x)
    for cell in array.ravel() if array.dtype.kind in "OSU" else []:
        if isinstance(cell, str | bytes) and not _is_number(cell):
            raise InputError(
                f"X holds {cell[:40]!r}, which is no number: give categories as columns of a "
                "pandas DataFrame, or encode them with "
                "preprocessor=OneHotEncoder(sparse_output=False)"
            )


def _is_number(cell: str | bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# -- from X to numbers -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reading:
    """From X to numbers, fitted on training rows.

    Attributes:
        preprocessor: a fitted transformer, or None.
        columns: of a table with categories or missing values; None for numbers as they are.
        medians: (D,) of rows of numbers, for what is missing later; None for images.
    """

    preprocessor: Any = None
    columns: Columns | None = None
    medians: Array | None = None

    @classmethod
    def fit(cls, preprocessor: Any, x: Any, y: Array, rows: Array) -> tuple[Reading, Array]:
        """Learn from some rows of what `check_training` returned; gives the numbers of all too."""
        if preprocessor is not None:
            preprocessor, x = _preprocessed(preprocessor, x, y, rows)
        columns, medians = None, None
        array = None if _is_mixed(x) else np.asarray(x)
        if array is None or (array.ndim == 2 and _lacking(array).any()):
            columns = Columns.fit(_cells(x), rows)
            columns = None if columns.is_plain else columns
        if columns is None and np.ndim(x) == 2:
            medians = np.median(np.asarray(x, dtype=np.float64)[rows], axis=0)
        reading = cls(preprocessor, columns, medians)
        return reading, reading._encoded(x)

    def numbers(self, estimator: Any, x: Any) -> Array:
        """The numbers of samples, which must have the columns of the fit."""
        x, columns = without_torch(x), self.columns
        words = columns is not None and any(column.kind == "category" for column in columns.columns)
        if self.preprocessor is None and not words and not _is_mixed(x):
            _refuse_words(x)
            return self._encoded(validate_data(estimator, x, reset=False, **_NUMBERS))
        validate_data(estimator, x, reset=False, skip_check_array=True)
        if self.preprocessor is not None:
            x = _dense(self.preprocessor.transform(x), self.preprocessor)
        return self._encoded(x)

    def _encoded(self, x: Any) -> Array:
        if self.columns is not None:
            table, names = self.columns.filled(_cells(x, self.columns.names))
            warn_of_missing(names)
            return self.columns.encode_all(table, lambda row: f"row {row}")
        numbers: Array = check_array(x, input_name="X", **_NUMBERS)
        if numbers.ndim not in {2, 4}:
            raise InputError(
                f"X must be rows (N, D) or images (N, C, H, W), got shape {numbers.shape}; flatten "
                "each sample with X.reshape(len(X), -1)"
            )
        lacking = _lacking(numbers)
        if not lacking.any():
            return numbers
        if self.medians is None:
            raise InputError("X has NaN in an image, and the network cannot take it: fill it first")
        warn_of_missing(np.flatnonzero(lacking.any(axis=0)).tolist())
        return np.where(lacking, self.medians, numbers)


def _lacking(x: Array) -> npt.NDArray[np.bool_]:
    return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


def _preprocessed(preprocessor: Any, x: Any, y: Array, rows: Array) -> tuple[Any, Any]:
    """A copy of a transformer, fitted on some rows, and what it makes of all rows."""
    transforms = hasattr(preprocessor, "fit_transform") and hasattr(preprocessor, "transform")
    if isinstance(preprocessor, type) or not transforms:
        raise InputError(
            "preprocessor must be a transformer of scikit-learn, such as StandardScaler() or a "
            f"ColumnTransformer, got {preprocessor!r}"
        )
    fitted, rest = clone(preprocessor), np.setdiff1d(np.arange(len(y)), rows)
    parts = [_dense(fitted.fit_transform(_safe_indexing(x, rows), y[rows]), fitted)]
    if len(rest):
        parts.append(_dense(fitted.transform(_safe_indexing(x, rest)), fitted))
    order = np.argsort(np.concatenate([rows, rest]))
    if hasattr(parts[0], "iloc"):
        return fitted, require_module("pandas", "a data frame").concat(parts).iloc[order]
    return fitted, np.concatenate([np.asarray(part) for part in parts])[order]


def _dense(transformed: Any, preprocessor: Any) -> Any:
    if scipy.sparse.issparse(transformed):
        raise InputError(
            f"the preprocessor {type(preprocessor).__name__} returns a sparse matrix, and the "
            "network takes dense rows: give OneHotEncoder(sparse_output=False) or "
            "ColumnTransformer(..., sparse_threshold=0), or put TruncatedSVD after it"
        )
    return transformed


def _cells(x: Any, names: Sequence[str] | None = None) -> dict[str, Cells]:
    """The columns of a data frame or an array by name; those of an array are numbered."""
    if hasattr(x, "iloc"):
        return frame_cells(x)
    array: Array = np.asarray(x)
    return dict(zip(names or map(str, range(array.shape[1])), array.T, strict=True))


@dataclass(frozen=True, eq=False)
class Scaling:
    """(x − mean) / std along axis 1, in float64.

    Float64, since a column such as a time in seconds has all its spread in digits that float32
    does not hold.

    Attributes:
        mean: (C,) of each column of rows, or of each channel of images.
        std: (C,) likewise, over all samples; 1 for what does not vary.
    """

    mean: Floats
    std: Floats

    @classmethod
    def of(cls, x: Array, columns: Columns | None = None) -> Scaling:
        """From training samples (N, C) or (N, C, H, W); indicators of `columns` stay 0 and 1."""
        scaler = StandardScaler()
        with np.errstate(over="ignore", invalid="ignore"):
            for piece in chunks(x):
                scaler.partial_fit(np.moveaxis(piece, 1, -1).reshape(-1, x.shape[1]))
        bad = ~(np.isfinite(scaler.mean_) & np.isfinite(scaler.scale_))
        if bad.any():
            raise InputError(
                f"column {int(bad.argmax())} of X has values too far apart for a standard "
                "deviation in float64: scale it, or take its logarithm"
            )
        if columns is not None:
            return cls(*columns.unscaled(scaler.mean_, scaler.scale_))
        return cls(scaler.mean_, scaler.scale_)

    def apply(self, x: Array) -> Tensor:
        """Standardised samples as float32."""
        shape = (-1, *(1 for _ in x.shape[2:]))
        mean, std = self.mean.reshape(shape), self.std.reshape(shape)
        scaled = torch.empty(x.shape)
        start = 0
        for piece in chunks(x):
            scaled[start : start + len(piece)] = torch.from_numpy((piece - mean) / std)
            start += len(piece)
        return scaled


# -- how much each sample counts -------------------------------------------------------------------


def total_weight(sample_weight: Any, class_weight: ClassWeight, labels: Array) -> Floats | None:
    """`sample_weight` times the weight of the class (N,); None where all samples count alike.

    Args:
        sample_weight: (N,) or None, as the user gave it.
        class_weight: None, `balanced`, or class -> weight; a class that is not named has 1.
        labels: (N,) as the user wrote them.
    """
    try:
        weight = np.array(np.ones(len(labels)) if sample_weight is None else sample_weight, float)
    except (TypeError, ValueError):
        raise InputError("sample_weight must be numbers, one for each sample") from None
    if weight.shape != labels.shape:
        raise InputError(
            f"sample_weight must have one number for each of the {len(labels)} samples of X, got "
            f"shape {weight.shape}"
        )
    if not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
        raise InputError("sample_weight must be finite and not negative, and not all of them zero")
    if class_weight is not None:
        counts, known = weight > 0, np.unique(labels).tolist()
        weight[counts] *= _of_classes(class_weight, labels[counts], weight[counts], known)
    return None if (weight == weight[0]).all() else weight


def _of_classes(
    class_weight: Mapping[Any, float] | str, labels: Array, weight: Floats, known: list[Any]
) -> Floats:
    """The weight of the class of each sample."""
    classes, index = np.unique(labels, return_inverse=True)
    if class_weight == "balanced":
        weights = compute_class_weight("balanced", classes=classes, y=labels, sample_weight=weight)
        return np.asarray(weights, np.float64)[index]
    if not isinstance(class_weight, Mapping):
        raise InputError(
            "class_weight must be None, 'balanced' or a dict of weights by class, got "
            f"{class_weight!r}"
        )
    strangers = [name for name in class_weight if name not in known]
    if strangers:
        raise InputError(
            f"class_weight names the class {strangers[0]!r}, but the classes of y are "
            f"{', '.join(map(repr, known))}"
        )
    weights = np.array([class_weight.get(name, 1.0) for name in classes.tolist()], np.float64)
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise InputError("class_weight must be finite and above 0; leave a class out of X instead")
    return weights[index]
