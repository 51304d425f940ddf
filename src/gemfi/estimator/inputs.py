"""What a user hands to `GEMClassifier`, as numbers: samples, labels, weights, scales."""

from __future__ import annotations

import importlib
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
    """A tensor as an array, on the CPU and without gradients; anything else as it is.

    Args:
        data: of any kind.
        name: of the argument, for messages.
    """
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
    """X and y of a fit: numbers as an array, any other table as it is.

    Args:
        estimator: remembers the columns.
        x: samples.
        y: their labels.
    """
    x, y = without_torch(x), without_torch(y, "y")
    if estimator.preprocessor is None and not _is_mixed(x):
        _refuse_words(x)
        return validate_data(estimator, x, y, **_NUMBERS)  # type: ignore[no-any-return]
    validate_data(estimator, x, y, skip_check_array=True)
    check_consistent_length(x, y)
    return x, column_or_1d(y, warn=True)


def check_inputs(estimator: Any, x: Any, reading: Reading) -> Any:
    """X of a prediction, which must have the columns of the fit; then as `check_training`."""
    x, columns = without_torch(x), reading.columns
    words = columns is not None and any(column.kind == "category" for column in columns.columns)
    if reading.preprocessor is None and not words and not _is_mixed(x):
        _refuse_words(x)
        return validate_data(estimator, x, reset=False, **_NUMBERS)
    validate_data(estimator, x, reset=False, skip_check_array=True)
    return x


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
    if any(not isinstance(dtype, np.dtype) or dtype.kind not in "iufb" for dtype in x.dtypes):
        return True
    return bool(x.isna().to_numpy().any())


def _refuse_words(x: Any) -> None:
    """Refuse a sparse matrix, and an array with words: a data frame's columns may have them."""
    if scipy.sparse.issparse(x):
        raise InputError(
            "X is a sparse matrix, and the network takes dense rows: give X.toarray(), or of many "
            "columns GEMClassifier(preprocessor=TruncatedSVD(n_components=100))"
        )
    array = np.asarray(x)
    if array.dtype.kind not in "OSU":
        return
    for cell in array.ravel():
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
        """Learn from some rows; returns the numbers of all rows too.

        Args:
            preprocessor: a transformer, of which a copy is fitted; None for none.
            x: what `check_training` returned.
            y: (N,) its labels.
            rows: to learn from.
        """
        if preprocessor is not None:
            preprocessor, x = _preprocessed(preprocessor, x, y, rows)
        columns, medians = _fitted_columns(x, rows), None
        if columns is None and np.ndim(x) == 2:
            medians = np.median(np.asarray(x, dtype=np.float64)[rows], axis=0)
        reading = cls(preprocessor, columns, medians)
        return reading, reading._encoded(x)

    def numbers(self, x: Any) -> Array:
        """The numbers of samples that `check_inputs` returned."""
        if self.preprocessor is not None:
            x = _dense(self.preprocessor.transform(x), self.preprocessor)
        return self._encoded(x)

    def check_saveable(self) -> None:
        """Refuse to write a bundle, which cannot hold a preprocessor."""
        if self.preprocessor is not None:
            raise InputError(
                f"a bundle cannot hold a {type(self.preprocessor).__name__}, and without it the "
                "model would be asked about other inputs: fit without preprocessor= (scales, "
                "categories and missing values need none), or keep the whole classifier with "
                "joblib.dump"
            )

    def _encoded(self, x: Any) -> Array:
        if self.columns is not None:
            table, names = self.columns.filled(_cells(x, self.columns.names))
            warn_of_missing(names)
            return self.columns.encode_all(table, lambda row: f"row {row}")
        numbers: Array = check_array(
            x, dtype="numeric", allow_nd=True, ensure_all_finite="allow-nan", input_name="X"
        )
        if numbers.ndim not in {2, 4}:
            raise InputError(
                f"X must be rows (N, D) or images (N, C, H, W), got shape {numbers.shape}; flatten "
                "each sample with X.reshape(len(X), -1)"
            )
        is_float = numbers.dtype.kind == "f"
        lacking = np.isnan(numbers) if is_float else np.zeros_like(numbers, bool)
        if not lacking.any():
            return numbers
        if self.medians is None:
            raise InputError("X has NaN in an image, and the network cannot take it: fill it first")
        warn_of_missing(np.flatnonzero(lacking.any(axis=0)).tolist())
        return np.where(lacking, self.medians, numbers)


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
        pandas: Any = importlib.import_module("pandas")
        return fitted, pandas.concat(parts).iloc[order]
    return fitted, np.concatenate([np.asarray(part) for part in parts])[order]


def _dense(transformed: Any, preprocessor: Any) -> Any:
    """What a preprocessor returned, if it is dense."""
    if scipy.sparse.issparse(transformed):
        raise InputError(
            f"the preprocessor {type(preprocessor).__name__} returns a sparse matrix, and the "
            "network takes dense rows: give OneHotEncoder(sparse_output=False) or "
            "ColumnTransformer(..., sparse_threshold=0), or put TruncatedSVD after it"
        )
    return transformed


def _fitted_columns(x: Any, rows: Array) -> Columns | None:
    """The columns of a table with words or holes; None for numbers as they are."""
    if not _is_mixed(x):
        array = np.asarray(x)
        if array.ndim != 2 or array.dtype.kind != "f" or not np.isnan(array).any():
            return None
    columns = Columns.fit(_cells(x), rows)
    return None if columns.is_plain else columns


def _cells(x: Any, names: Sequence[str] | None = None) -> dict[str, Cells]:
    """The columns of a data frame or an array by name; those of an array are numbered."""
    if hasattr(x, "iloc"):
        return frame_cells(x)
    array: Array = np.asarray(x)
    names = [str(index) for index in range(array.shape[1])] if names is None else names
    return dict(zip(names, array.T, strict=True))


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
    weight = None if sample_weight is None else _checked_weight(sample_weight, len(labels))
    if class_weight is not None:
        counts = np.ones(len(labels), bool) if weight is None else weight > 0
        given = None if weight is None else weight[counts]
        of_class = np.zeros(len(labels))
        of_class[counts] = _weight_of_classes(class_weight, labels, counts, given)
        weight = of_class if weight is None else of_class * weight
    return None if weight is None or (weight == weight[0]).all() else weight


def _checked_weight(sample_weight: Any, samples: int) -> Floats:
    try:
        weight = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("sample_weight must be numbers, one for each sample") from None
    if weight.shape != (samples,):
        raise InputError(
            f"sample_weight must have one number for each of the {samples} samples of X, got shape "
            f"{weight.shape}"
        )
    if not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
        raise InputError("sample_weight must be finite and not negative, and not all of them zero")
    return weight


def _weight_of_classes(
    class_weight: Mapping[Any, float] | str,
    labels: Array,
    counts: npt.NDArray[np.bool_],
    sample_weight: Floats | None,
) -> Floats:
    """The weight of the class of each sample that counts."""
    classes, index = np.unique(labels[counts], return_inverse=True)
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InputError(
                f"class_weight must be None, 'balanced' or a dict of weights by class, got "
                f"{class_weight!r}"
            )
        balanced: Floats = compute_class_weight(
            "balanced", classes=classes, y=labels[counts], sample_weight=sample_weight
        )
        return np.asarray(balanced, dtype=np.float64)[index]
    known = np.unique(labels).tolist()
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
