"""Small models to serve: rows by GEM-FI, images by EDL."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from starlette.testclient import TestClient

from gemfi import Model, Split, TrainConfig, build_model, fit
from gemfi.bundle import Bundle, make_bundle
from gemfi.data.columns import Columns
from gemfi.data.normalisation import Normalisation

Open = Callable[..., TestClient]
"""Makes a client of an app that serves a bundle with settings."""

CLASSES = ("ant", "bee", "cat")


def blobs(count: int, role: str, seed: int) -> Split:
    """Three clouds of rows with four columns."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    x = torch.randn(count, 4, generator=generator) + 3 * torch.eye(4)[y]
    return Split(x, y, role, f"blobs/{role}", 3, CLASSES)


def patterns(count: int, role: str, seed: int) -> Split:
    """Noisy images of 8×8 bytes, in three brightnesses."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    noise = torch.randint(0, 60, (count, 1, 8, 8), generator=generator)
    x = (noise + 80 * y[:, None, None, None]).clamp(0, 255).to(torch.uint8)
    return Split(x, y, role, f"patterns/{role}", 3, CLASSES)


def trained(model: Model, make: Callable[[int, str, int], Split]) -> Model:
    config = TrainConfig(epochs=2, batch_size=32, learning_rate=5e-3)
    fit(model, make(128, "train", 1), make(64, "validation", 2), config, progress=False)
    return model


def make_rows(seed: int = 0) -> Bundle:
    torch.manual_seed(seed)
    model = build_model("gem-fi", "mlp", 3, in_features=4)
    return make_bundle(
        "rows",
        trained(model, blobs),
        calibration=blobs(300, "calibration", 3),
        policy="false_alarm=0.1",
        feature_names=("a", "b", "c", "d"),
        provenance={"spec": {"task": "/".join(("", "somewhere", "secret", "table.csv"))}},
    )


def make_people() -> Bundle:
    """A table of a number that may be missing, and a category."""
    rng = np.random.default_rng(0)
    city = rng.choice(np.array(["Oslo", "Rome"], dtype=object), 400)
    age = np.where(rng.uniform(size=400) < 0.1, np.nan, rng.normal(40, 10, 400))
    cells = {"age": age, "city": city}
    columns = Columns.fit(cells)
    x = torch.from_numpy(columns.encode(cells)[0]).float()
    y = torch.from_numpy((city == "Rome").astype(np.int64))
    names = ("north", "south")
    train, calibration = Split(x, y, "train", "people", 2, names).carve(0.5, "calibration")
    torch.manual_seed(0)
    normalisation = Normalisation((40, 0, 0, 0, 0), (10, 1, 1, 1, 1))
    model = build_model("edl", "mlp", 2, in_features=5, normalisation=normalisation)
    fit(model, train, config=TrainConfig(epochs=5, batch_size=32), progress=False)
    return make_bundle(
        "people", model, calibration=calibration, policy="false_alarm=0.1", columns=columns
    )


def make_images() -> Bundle:
    torch.manual_seed(0)
    model = trained(build_model("edl", "convnet", 3, size=8, channels=4), patterns)
    return make_bundle(
        "images", model, calibration=patterns(300, "calibration", 3), policy="false_alarm=0.1"
    )


def png(pixels: npt.NDArray[Any], kind: str = "PNG") -> bytes:
    """An image file of bytes (H, W) or (H, W, 3)."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


JSON = {"Content-Type": "application/json"}


def error(answer: Any, status: int, code: str) -> tuple[str, str | None]:
    """Message and place of an error, whose shape is checked."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "message", "where"}
    assert body["error"]["code"] == code, body
    message: str = body["error"]["message"]
    assert "Traceback" not in message
    assert "/" not in message.replace("application/json", "").replace("multipart/form-data", "")
    return message, body["error"]["where"]


def post(client: TestClient, body: str | bytes, query: str = "") -> Any:
    return client.post(f"/v1/predict{query}", content=body, headers=JSON)
