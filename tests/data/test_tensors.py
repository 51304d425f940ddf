"""`as_tensor`: odd arrays become tensors, and what cannot is refused with what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import sparse

from gemfi.data import Role, Split, as_split
from gemfi.data.tensors import as_tensor
from gemfi.errors import InputError
from gemfi.estimator import GEMClassifier
from gemfi.model import Model, build_model

X = np.arange(24, dtype=np.float32).reshape(12, 2) / 24
Y = np.arange(12) % 3


def read_only(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x = x.copy()
    x.setflags(write=False)
    return x


ODD = {
    "big-endian": X.astype(">f4"),
    "negative strides": np.ascontiguousarray(X[::-1])[::-1],
    "negative stride of columns": np.ascontiguousarray(X[:, ::-1])[:, ::-1],
    "half": (X * 24).astype(np.float16),
    "long double": X.astype(np.longdouble),
    "read-only": read_only(X),
    "broadcast": np.broadcast_to(X[:1], (12, 2)),
    "transposed": np.asfortranarray(X),
    "masked without a mask": np.ma.masked_array(X),
    "tensor of halves": torch.from_numpy(X * 24).half(),
    "tensor of bfloat16": torch.from_numpy(X * 24).bfloat16(),
}


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return build_model("gem-fi", "mlp", 3, in_features=2, width=8).eval()


@pytest.mark.parametrize("kind", ODD)
def test_odd_arrays_give_the_numbers_that_they_hold(kind: str, model: Model) -> None:
    odd = ODD[kind]
    numbers = odd.float().numpy() if isinstance(odd, torch.Tensor) else odd.astype("f4")
    plain = torch.tensor([[float(value) for value in row] for row in numbers])
    assert torch.equal(as_tensor(odd, "x").float(), plain)
    assert torch.equal(model.predict(odd).log_probs(), model.predict(plain).log_probs())
    assert torch.equal(as_split(odd, Y, role="train").x, plain)


def test_memory_is_shared_where_it_can_be() -> None:
    x = X.copy()
    for view in (x, x.T, x[:, 1:]):
        assert np.shares_memory(as_tensor(view, "x").numpy(), x)
        assert not np.shares_memory(as_tensor(view, "x", copy=True).numpy(), x)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: X.astype(object), r"must hold numbers, got dtype object: write x.astype\("),
        (lambda: X.astype(str), r"must hold numbers, got dtype <U"),
        (lambda: X.astype("datetime64[s]"), r"must hold numbers, got dtype datetime64"),
        (lambda: np.ma.masked_array(X, X > 0.9), r"has 2 masked values.*: write x.filled\(v\)"),
        (lambda: torch.from_numpy(X).to_sparse(), r"must be dense.*: write x.to_dense\(\)"),
        (lambda: torch.from_numpy(X).to_sparse_csr(), r"must be dense.*: write x.to_dense\(\)"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)] * 12), r"write torch.stack\(\[\*x\]\)"),
        (lambda: sparse.csr_matrix(X), r"got csr_matrix: write x.toarray\(\)"),
        (lambda: pd.DataFrame(X), r"got DataFrame: write x.to_numpy\(\)"),
        (X.tolist, r"got list: write torch.tensor\(x\)"),
        (lambda: [*torch.from_numpy(X)], r"got list: write torch.stack\(x\)"),
        (lambda: Image.new("RGB", (2, 2)), r"got Image: write np.array\(x\).transpose\(2, 0, 1\)"),
        (lambda: Image.new("L", (2, 2)), r"got Image: write np.array\(x\)\[None\]"),
        (lambda: "abc", r"numpy array, got str$"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(make: Any, message: str, model: Model) -> None:
    x = make()
    with pytest.raises(InputError, match=message):
        model.predict(x)
    with pytest.raises(InputError, match=message):
        as_split(x, Y, role="train")


def test_a_list_of_labels_is_told_what_to_write() -> None:
    with pytest.raises(InputError, match=r"y must be .* got list: write torch.tensor\(y\)"):
        as_split(X, Y.tolist(), role="train")  # type: ignore[arg-type]


def test_a_split_of_sparse_tensors_is_refused() -> None:
    with pytest.raises(InputError, match=r"split 'mine': x must be dense.*x.to_dense\(\)"):
        Split(torch.from_numpy(X).to_sparse(), None, Role.OOD_TEST, "mine")


def test_the_estimator_refuses_masked_values_and_sparse_tensors() -> None:
    with pytest.raises(InputError, match="masked values"):
        GEMClassifier().fit(np.ma.masked_array(X, X > 0.9), Y)
    with pytest.raises(InputError, match="must be dense"):
        GEMClassifier().fit(torch.from_numpy(X).to_sparse(), Y)
