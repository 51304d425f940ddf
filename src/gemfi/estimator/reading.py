"""What a user hands in as the numbers that the model takes: preprocessing, categories, holes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from gemfi.data.columns import Cells, Columns, frame_cells, warn_of_missing
from gemfi.errors import InputError
from gemfi.estimator.inputs import Array, check_samples, without_torch


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
        fitted = None
        if preprocessor is not None:
            _check_transformer(preprocessor)
            fitted, rest = clone(preprocessor), np.setdiff1d(np.arange(len(y)), rows)
            parts = [_dense(fitted.fit_transform(_safe_indexing(x, rows), y[rows]), fitted)]
            if len(rest):
                parts.append(_dense(fitted.transform(_safe_indexing(x, rest)), fitted))
            x = _stacked(parts, np.argsort(np.concatenate([rows, rest])))
        columns = _fitted_columns(x, rows)
        reading = cls(fitted, columns, _medians(x, rows) if columns is None else None)
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
        found: Array = check_array(
            x, dtype="numeric", allow_nd=True, ensure_all_finite="allow-nan", input_name="X"
        )
        check_samples(found)
        lacking = np.isnan(found) if found.dtype.kind == "f" else np.zeros_like(found, bool)
        if not lacking.any():
            return found
        if self.medians is None:
            raise InputError("X has NaN in an image, and the network cannot take it: fill it first")
        warn_of_missing(np.flatnonzero(lacking.any(axis=0)).tolist())
        return np.where(lacking, self.medians, found)


def check_training(estimator: Any, x: Any, y: Any) -> tuple[Any, Array]:
    """X and y of a fit: numbers as an array, any other table as it is.

    Args:
        estimator: which remembers the columns.
        x: samples.
        y: their labels.
    """
    x, y = without_torch(x), without_torch(y, "y")
    if estimator.preprocessor is None and not is_mixed(x):
        refuse_sparse(x)
        _refuse_words(x)
        numbers, given = validate_data(estimator, x, y, **_NUMBERS)
        return numbers, given
    validate_data(estimator, x, y, skip_check_array=True)
    check_consistent_length(x, y)
    return x, column_or_1d(y, warn=True)


def encoded_labels(y: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """The classes in order, and the index of each label among them."""
    check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InputError(
            f"y has one class only: all {len(y)} labels are {classes.tolist()[0]!r}; a classifier "
            "needs at least two classes"
        )
    return classes, labels.astype(np.int64)


def check_inputs(estimator: Any, x: Any, reading: Reading) -> Any:
    """X of a prediction, of which columns are those of the fit; then as `check_training`.

    Args:
        estimator: that was fitted.
        x: samples.
        reading: of the fit.
    """
    x, columns = without_torch(x), reading.columns
    words = columns is not None and any(each.kind == "category" for each in columns.columns)
    if reading.preprocessor is None and not words and not is_mixed(x):
        refuse_sparse(x)
        _refuse_words(x)
        return validate_data(estimator, x, reset=False, **_NUMBERS)
    validate_data(estimator, x, reset=False, skip_check_array=True)
    return x


_NUMBERS: dict[str, Any] = {
    "dtype": "numeric",
    "allow_nd": True,
    "ensure_all_finite": "allow-nan",
}


def _refuse_words(x: Any) -> None:
    """Refuse an array with words: only the columns of a data frame may have them."""
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


def is_mixed(x: Any) -> bool:
    """Whether X is a data frame of more than plain numbers: categories, or missing values."""
    if not (hasattr(x, "iloc") and hasattr(x, "dtypes")):
        return False
    if any(not isinstance(each, np.dtype) or each.kind not in "iufb" for each in x.dtypes):
        return True
    return bool(x.isna().to_numpy().any())


def _medians(x: Any, rows: Array) -> Array | None:
    """Of numbers (N, D) in some rows; None for images."""
    if np.ndim(x) != 2:
        return None
    return np.median(np.asarray(x, dtype=np.float64)[rows], axis=0)


def _stacked(parts: Sequence[Any], order: Array) -> Any:
    """Arrays or data frames below each other, and their rows in an order."""
    if hasattr(parts[0], "iloc"):
        pandas: Any = importlib.import_module("pandas")
        return pandas.concat(parts).iloc[order]
    return np.concatenate([np.asarray(part) for part in parts])[order]


def refuse_sparse(x: Any) -> None:
    """Refuse a sparse matrix, and say what to do with it."""
    if scipy.sparse.issparse(x):
        raise InputError(
            "X is a sparse matrix, and the network takes dense rows: give X.toarray(), or of many "
            "columns GEMClassifier(preprocessor=TruncatedSVD(n_components=100))"
        )


def _dense(found: Any, preprocessor: Any) -> Any:
    """What a preprocessor returned, if it is dense."""
    if scipy.sparse.issparse(found):
        raise InputError(
            f"the preprocessor {type(preprocessor).__name__} returns a sparse matrix, and the "
            "network takes dense rows: give OneHotEncoder(sparse_output=False) or "
            "ColumnTransformer(..., sparse_threshold=0), or put TruncatedSVD after it"
        )
    return found


def _check_transformer(preprocessor: Any) -> None:
    is_one = hasattr(preprocessor, "fit_transform") and hasattr(preprocessor, "transform")
    if isinstance(preprocessor, type) or not is_one:
        raise InputError(
            "preprocessor must be a transformer of scikit-learn, such as StandardScaler() or a "
            f"ColumnTransformer, got {preprocessor!r}"
        )


def _fitted_columns(x: Any, rows: Array) -> Columns | None:
    """The columns of a table with words or holes; None for numbers as they are."""
    if not is_mixed(x):
        array = np.asarray(x)
        if array.ndim != 2 or array.dtype.kind != "f" or not np.isnan(array).any():
            return None
    columns = Columns.fit(_cells(x), rows)
    return None if columns.is_plain else columns


def _cells(x: Any, names: tuple[str, ...] | None = None) -> dict[str, Cells]:
    if hasattr(x, "iloc"):
        return frame_cells(x)
    array: npt.NDArray[Any] = np.asarray(x)
    names = tuple(map(str, range(array.shape[1]))) if names is None else names
    return dict(zip(names, array.T, strict=True))
