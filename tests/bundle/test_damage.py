"""Files that are damaged, hostile or from the future: a clear error each, and nothing else."""

from __future__ import annotations

import json
import re
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file

import gemfi
from gemfi.errors import CheckpointError, GemfiError, InputError
from support.forged import GOLDEN, forge, golden_header

GOOD = GOLDEN.read_bytes()
LENGTH = int.from_bytes(GOOD[:8], "little")
OLD = golden_header()["config"]  # with fields that are gone


def rewritten(path: Path, tensors: dict[str, torch.Tensor], **changes: Any) -> Path:
    """A file with a right checksum and other contents."""
    return forge(path, {**golden_header(), **changes}, tensors)


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(GemfiError) as error:
        gemfi.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_byte_anywhere_is_found(every: int, tmp_path: Path) -> None:
    """Bytes of the header one by one, and as many of the tensors."""
    rng = np.random.default_rng(0)
    path = tmp_path / "model.safetensors"
    header_places = range(0, 8 + LENGTH, every)
    later = rng.choice(np.arange(8 + LENGTH, len(GOOD)), len(header_places), replace=False)
    for place in [*header_places, *later.tolist()]:
        data = bytearray(GOOD)
        data[place] ^= int(rng.integers(1, 256))
        refused(path, bytes(data))
    assert len(header_places) > 3000 / every


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(GOOD) - 1))
def test_a_truncated_file_is_found(size: int) -> None:
    path = _place()
    text = refused(path, GOOD[:size])
    assert "truncated" in text or "damaged" in text or "no safetensors file" in text


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_are_refused(data: bytes, plausible: bool) -> None:
    whole = struct.pack("<Q", min(len(data), 200)) + data if plausible else data
    refused(_place(), whole)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(GOOD)), st.binary(min_size=1, max_size=50))
def test_inserted_bytes_are_found(place: int, data: bytes) -> None:
    refused(_place(), GOOD[:place] + data + GOOD[place:])


_FOLDER: list[Path] = []


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    _FOLDER[:] = [tmp_path]


def _place() -> Path:
    return _FOLDER[0] / "model.safetensors"


# -- what a header may claim -----------------------------------------------------------------------


@pytest.mark.parametrize("claim", [100 * 2**30, 2**63, 2**64 - 1, LENGTH + 10**6])
def test_a_header_of_a_hundred_gigabytes_is_not_read(claim: int, tmp_path: Path) -> None:
    tracemalloc.start()
    text = refused(tmp_path / "m.safetensors", struct.pack("<Q", claim) + GOOD[8:])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f"claims {claim:,} bytes" in text
    assert peak < 2**20


def test_tensors_beyond_the_file_are_refused(tmp_path: Path) -> None:
    outer = json.loads(GOOD[8 : 8 + LENGTH])
    name = next(key for key in outer if key != "__metadata__")
    outer[name] = {"dtype": "F32", "shape": [5 * 10**9, 5], "data_offsets": [0, 10**11]}
    text = json.dumps(outer).encode()
    data = struct.pack("<Q", len(text)) + text + GOOD[8 + LENGTH :]
    assert "damaged" in refused(tmp_path / "m.safetensors", data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 10**9}, "the backbone has 1000000000 features, but the header says"),
        ({"in_features": 60_000}, r"has shape .* but the model that is described has .*60000"),
        ({"depth": 10**9}, "has more tensors than the file"),
        ({"depth": 60_000}, "has more tensors than the file"),
        ({"dropout": -1.0}, "cannot be built: dropout probability has to be between 0 and 1"),
        ({"width": -1}, "width"),
        ({"width": "12"}, "width: expected an integer"),
        ({"wings": 2}, "mlp has no such option"),
    ],
)
def test_networks_that_the_file_does_not_hold_are_not_built(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    backbone = golden_header()["backbone"]
    backbone["options"] |= options
    gemfi.load(GOLDEN)  # what torch imports at the first time is not counted
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=message):
        gemfi.load(rewritten(_place(), load_tensors(GOOD), backbone=backbone))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**25


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"method": None}, "field method is missing"),
        ({"wings": 2}, r"header\.wings: unknown field"),
        ({"class_names": "ab"}, "class_names: expected a list"),
        ({"class_names": ["a", "b", "c"]}, r"has shape .* but the model"),
        ({"class_names": []}, "num_classes must be an integer of at least 2"),
        ({"num_features": 10**12}, "the backbone has 12 features, but the header says 10"),
        ({"num_features": 13}, "the backbone has 12 features, but the header says 13"),
        ({"sample_shape": [0]}, "sizes above 0"),
        ({"sample_shape": [1] * 9}, "at most 8 sizes"),
        ({"sample_shape": [3, 10**6, 10**6]}, "an input of 3,000,000,000,000 numbers"),
        ({"sample_dtype": "complex64"}, "unknown type 'complex64'"),
        ({"sample_dtype": "__class__"}, "unknown type '__class__'"),
        ({"feature_names": ["a"]}, "1 names for inputs of shape"),
        ({"columns": {"columns": [{"name": "a"}]}}, "they do not become the numbers of feature"),
        ({"columns": {"columns": []}}, "1 to 100,000 columns, got 0"),
        ({"columns": {"columns": [{"name": "a", "fill": 1e300}]}}, "fill must be a finite"),
        ({"columns": {"columns": [{"name": "a", "kind": "code"}]}}, "expected one of number"),
        ({"dtype": "float16"}, "dtype"),
        ({"dtype": "float64"}, "expected torch.float64"),
        ({"channels": 10**15}, "the tensor input_mean is missing"),
        ({"channels": 2}, "the tensor input_mean is missing"),
        ({"temperature": True}, "the tensor log_temperature is missing"),
        ({"config": {}}, None),
        ({"config": {"components": 10**9}}, "components"),
        ({"config": {"num_components": 10**18}}, "the model that is described cannot be built"),
        ({"config": [1]}, "expected a mapping"),
        (
            {"config": {"mix": True}},
            "configuration of gem-fi lacks ebm, ebm_weight, fi_mod, fi_reg",
        ),
        ({"config": {**OLD, "wings": 2}}, r"config\.wings: unknown field"),
        ({"backbone": {"name": "magic", "options": {}}}, "unknown backbone 'magic'"),
        ({"backbone": {"name": "resnet18", "options": {}}}, "the backbone has 512 features"),
        ({"policy": {"score": "energy"}}, r"header\.policy"),
        ({"policy": {**golden_header()["policy"], "facts": {}}}, "facts: calibration is missing"),
        (
            {"policy": {**golden_header()["policy"], "class_names": ["a"]}},
            "1 class names for 2 classes",
        ),
        ({"policy": None}, None),
        ({"metrics": 3}, "metrics: expected a mapping"),
    ],
)
def test_headers_that_cannot_be(changes: dict[str, Any], message: str | None) -> None:
    path = rewritten(_place(), load_tensors(GOOD), **changes)
    if message is None:
        gemfi.load(path)  # defaults, or nothing to be had
        return
    with pytest.raises(CheckpointError, match=message):
        gemfi.load(path)


def changed(name: str, value: torch.Tensor | None) -> dict[str, torch.Tensor]:
    tensors = load_tensors(GOOD)
    assert name in tensors or value is not None
    tensors.pop(name, None)
    return tensors if value is None else {**tensors, name: value}


WEIGHT = "model.backbone.blocks.0.weight"
SHAPE = tuple(load_tensors(GOOD)[WEIGHT].shape)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (WEIGHT, torch.full(SHAPE, torch.nan), "holds NaN"),
        (WEIGHT, torch.full(SHAPE, torch.inf), "holds infinite numbers"),
        (WEIGHT, torch.zeros(SHAPE, dtype=torch.float16), "is of torch.float16, expected"),
        (WEIGHT, torch.zeros(SHAPE, dtype=torch.int32), "is of torch.int32, expected"),
        (WEIGHT, torch.zeros(1, *SHAPE), "has shape"),
        (WEIGHT, None, "is missing"),
        ("model.more", torch.zeros(3), "no place in the model for the tensor more"),
        ("policy.reference.0", None, "the reference of the policy is missing"),
        ("policy.reference.0", torch.tensor([2.0, 1.0]).double(), "expected sorted numbers"),
        ("policy.reference.0", torch.tensor([1.0, torch.nan]).double(), "holds NaN"),
        ("policy.reference.2", torch.zeros(3).double(), "missing or incomplete"),
        ("calibration.score", torch.zeros(3).double(), "readings need arrays of one length"),
        ("calibration.wrong", None, "the tensor wrong is missing"),
        ("calibration.doubt", torch.zeros(3), "is not a column of torch.float64"),
        ("calibration.label", torch.full((500,), 2), "labels that are none of 2 classes"),
        ("calibration.label", torch.full((500,), -1), "labels that are none of 2 classes"),
        ("calibration.more", torch.zeros(500), r"no use for the tensor calibration\.more"),
        ("more", torch.zeros(3), "no use for the tensor more"),
        ("reference.energy", torch.zeros(201, dtype=torch.bfloat16), "is not a column of"),
        ("reference.energy", torch.zeros(3).double(), "must be 201 numbers that ascend"),
        ("reference.energy", torch.arange(201.0).double().flip(0), "201 numbers that ascend"),
        ("reference.energy", torch.full((201,), torch.nan).double(), "holds NaN"),
    ],
)
def test_tensors_that_cannot_be(name: str, value: torch.Tensor | None, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        gemfi.load(rewritten(_place(), changed(name, value)))


def test_a_schema_of_the_future_is_told_from_damage(tmp_path: Path) -> None:
    path = forge(tmp_path / "m.safetensors", golden_header(), schema=99)
    with pytest.raises(
        CheckpointError, match=r"schema 99, which is of a later version of gemfi: upgrade gemfi"
    ):
        gemfi.load(path)


@pytest.mark.parametrize("key", ["schema", "format"])
def test_schema_1_is_no_longer_read(key: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file(load_tensors(GOOD), path, metadata={"gemfi": json.dumps({key: 1, "spec": {}})})
    with pytest.raises(CheckpointError, match=r"schema 1, which is no longer read: write it anew"):
        gemfi.load(path)


@pytest.mark.parametrize("schema", [0, -1, True, None, "2", 2.0])
def test_a_schema_that_cannot_be(schema: Any, tmp_path: Path) -> None:
    text = json.dumps({**golden_header(), "schema": schema})
    path = tmp_path / "m.safetensors"
    save_file(load_tensors(GOOD), path, metadata={"gemfi": text})
    with pytest.raises(CheckpointError, match="its schema is"):
        gemfi.load(path)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"a":' * 20_000, "[" * 200_000, "\udcff"])
def test_json_that_cannot_be(text: str, tmp_path: Path) -> None:
    raw = json.dumps({"__metadata__": {"gemfi": text}}).encode()
    refused(tmp_path / "m.safetensors", struct.pack("<Q", len(raw)) + raw)
    raw = text.encode("utf-8", "replace")
    refused(tmp_path / "n.safetensors", struct.pack("<Q", len(raw)) + raw)


# -- what is refused with a reason -----------------------------------------------------------------


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        gemfi.load(tmp_path / "none.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="no bundle of gemfi"):
        gemfi.load(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="unknown bundle 'no'; known: mnist-gem-fi"):
        gemfi.bundle.bundled("no")


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    model = gemfi.build_model("softmax", "mlp", 2, in_features=2, width=4, depth=1)
    path = tmp_path / "model.safetensors"
    with pytest.raises(InputError, match=r"ends in \.safetensors, got model\.pt"):
        gemfi.save(tmp_path / "model.pt", model)
    with pytest.raises(InputError, match="3 class names for a model of 2 classes"):
        gemfi.save(path, model, class_names=["a", "b", "c"])
    with pytest.raises(InputError, match=r"takes .* bytes, and 16,777,216 is the limit"):
        gemfi.save(path, model, metrics={"much": "x" * (1 << 24)})
    with pytest.raises(InputError, match=re.escape("convert the model first, with model.float()")):
        gemfi.save(path, gemfi.build_model("softmax", "mlp", 2, in_features=2).half())
    with pytest.raises(InputError, match=r"must be values of JSON: .*Tensor"):
        gemfi.save(path, model, metrics={"accuracy": torch.tensor(1)})
    with pytest.raises(InputError, match="must be values of JSON: an integer of 31 digits is bey"):
        gemfi.save(path, model, metrics={"n": 10**30})
    with pytest.raises(InputError, match="class_names= must be a list of names, got the text 'ab'"):
        gemfi.save(path, model, class_names="ab")
    with pytest.raises(InputError, match=r"a bundle is of a gemfi\.Model, got Linear"):
        gemfi.save(path, torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="calibration= must be a split, got list"):
        gemfi.save(path, model, calibration=[])  # type: ignore[arg-type]
    path.mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        gemfi.save(path, model)
    path.rmdir()
    model.head.linear.weight.data[0, 0] = torch.nan
    with pytest.raises(InputError, match=r"head\.linear\.weight holds NaN"):
        gemfi.save(path, model)
    assert [*tmp_path.iterdir()] == []


def test_no_pickle_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        pytest.fail("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", fail)
    monkeypatch.setattr(torch, "load", fail)
    gemfi.load(GOLDEN)
    torch.save({"a": 1}, tmp_path / "m.safetensors")
    with pytest.raises(CheckpointError):
        gemfi.load(tmp_path / "m.safetensors")
