"""What is answered, against the offline belief."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import re
from typing import Any

import httpx2
import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from gemfi import scores
from gemfi.answers import Prediction, Uncertainty
from gemfi.belief import Belief
from gemfi.bundle import Bundle
from gemfi.data.readers.images import read_image
from gemfi.decisions import read_belief
from gemfi.serve.app import create_app
from gemfi.serve.schemas import ANSWER, Answer
from gemfi.serve.settings import Settings
from support.served import Open, blobs, patterns, png


def ask(client: TestClient, body: Any, query: str = "") -> list[dict[str, Any]]:
    answer = client.post(f"/v1/predict{query}", json=body)
    assert answer.status_code == 200, answer.text
    found = json.loads(answer.text, parse_constant=pytest.fail)
    assert found.keys() == {"model", "method", "predictions"}
    predictions: list[dict[str, Any]] = found["predictions"]
    return predictions


def compare(predictions: list[dict[str, Any]], belief: Belief, bundle: Bundle) -> None:
    """Every number against what the library says."""
    assert len(predictions) == len(belief)
    probs, labels = belief.probs(), belief.labels()
    split = scores.uncertainty(belief)
    assert bundle.policy is not None
    decisions = bundle.policy(belief)
    doubt = read_belief(belief, bundle.policy.score, bundle.policy.doubt).doubt
    for row, told in enumerate(predictions):
        assert told["probs"] == pytest.approx(probs[row].tolist(), abs=1e-9)
        assert told["index"] == labels[row]
        assert told["label"] == bundle.info.class_names[told["index"]]
        assert told["confidence"] == max(told["probs"])
        assert told["decision"] == str(decisions[row].verdict)
        assert told["p_value"] == decisions.p_value[row]
        assert told["doubt"] == pytest.approx(doubt[row], abs=1e-12)
        assert told["detail"] is None
        for name, value in told["uncertainty"].items():
            assert value == pytest.approx(float(getattr(split, name)[row]), abs=1e-9)
        assert {"max_prob", "entropy", "evidence", bundle.policy.score} <= told["scores"].keys()
        for name, value in told["scores"].items():
            truth = float(scores.SCORES[name](belief)[row])
            assert value == (pytest.approx(truth, rel=1e-6) if math.isfinite(truth) else None)


def test_a_batch_of_rows(rows: Bundle, row_client: TestClient) -> None:
    x = blobs(20, "test", 9).x
    told = ask(row_client, {"inputs": x.tolist()})
    compare(told, rows.model.predict(x), rows)


def test_one_row(rows: Bundle, row_client: TestClient) -> None:
    x = blobs(3, "test", 9).x
    for each in x:
        compare(ask(row_client, {"input": each.tolist()}), rows.model.predict(each[None]), rows)


def test_a_batch_of_images(images: Bundle, image_client: TestClient) -> None:
    x = patterns(7, "test", 9).x
    compare(ask(image_client, {"inputs": x.tolist()}), images.model.predict(x), images)
    floats = x.double().tolist()  # 3.0 is the byte 3
    compare(ask(image_client, {"inputs": floats}), images.model.predict(x), images)


def test_more_than_a_pass(rows: Bundle, open_client: Open) -> None:
    x = blobs(50, "test", 9).x
    client = open_client(rows, max_batch=8)
    compare(ask(client, {"inputs": x.tolist()}), rows.model.predict(x, 8), rows)


def test_without_a_policy_nothing_is_decided(undecided: Bundle, open_client: Open) -> None:
    (told,) = ask(open_client(undecided), {"input": [0, 1, 2, 3]})
    assert [told[name] for name in ("decision", "p_value", "doubt")] == [None] * 3


def test_detail(rows: Bundle, row_client: TestClient) -> None:
    x = blobs(4, "test", 9).x
    told = ask(row_client, {"inputs": x.tolist()}, "?detail=true")
    belief = rows.model.predict(x)
    for row, each in enumerate(told):
        detail = each["detail"]
        assert detail["input"] is None
        weights = [head["weight"] for head in detail["heads"]]
        assert weights == pytest.approx(belief.log_weight[row].exp().tolist())
        assert sum(weights) == pytest.approx(1)
        opinions = torch.tensor([head["probs"] for head in detail["heads"]], dtype=torch.float64)
        assert torch.allclose(opinions, belief.log_p[row].exp())
        amounts = torch.tensor([head["evidence"] for head in detail["heads"]])
        assert torch.allclose(amounts.double(), belief.need("log_evidence")[row].exp())
        rho = 1.0 if detail["rho"] is None else detail["rho"]
        alpha = rho * sum(
            weight * amount * opinion
            for weight, amount, opinion in zip(weights, amounts.double(), opinions, strict=True)
        )
        assert detail["alpha"] == pytest.approx(alpha.tolist(), rel=1e-6)
        assert detail["energy"] == pytest.approx(float(belief.need("energy")[row]))
        assert detail["gate"] == pytest.approx(belief.need("log_gate")[row].exp().tolist())
        assert detail["log_density"] == pytest.approx(float(belief.need("log_density")[row]))


def test_detail_of_an_image_has_what_the_model_saw(image_client: TestClient) -> None:
    x = patterns(2, "test", 9).x
    told = ask(image_client, {"inputs": x.tolist()}, "?detail=true")
    assert [each["detail"]["input"] for each in told] == x.tolist()
    assert told[0]["detail"]["energy"] is None
    assert told[0]["detail"]["gate"] is None
    assert len(told[0]["detail"]["heads"]) == 1


@pytest.mark.parametrize("level", [0.02, 0.3, 0.999])
def test_another_false_alarm_rate(rows: Bundle, row_client: TestClient, level: float) -> None:
    x = blobs(60, "test", 9).x
    told = ask(row_client, {"inputs": x.tolist()}, f"?false_alarm={level}")
    assert rows.policy is not None
    truth = rows.policy.at(level)(rows.model.predict(x))
    assert [each["decision"] for each in told] == truth.names()
    assert [each["p_value"] for each in told] == truth.p_value.tolist()


def test_levels_of_neighbours_do_not_mix(rows: Bundle) -> None:
    x = blobs(40, "test", 9).x
    levels = [None, 0.02, 0.5, 0.9] * 10

    async def all_at_once() -> list[str]:
        app = create_app(rows, Settings())
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            requests = [
                client.post(
                    "/v1/predict" + ("" if level is None else f"?false_alarm={level}"),
                    json={"input": each.tolist()},
                )
                for each, level in zip(x, levels, strict=True)
            ]
            answers = await asyncio.gather(*requests)
            batches = re.search(
                "gemfi_batch_inputs_count (.*)", (await client.get("/metrics")).text
            )
            assert batches is not None
            assert float(batches[1]) < len(x)  # some shared a pass
            await app.state.service.stop()
        return [each.json()["predictions"][0]["decision"] for each in answers]

    assert rows.policy is not None
    belief = rows.model.predict(x)
    truth = [
        (rows.policy if level is None else rows.policy.at(level))(belief[row]).names()[0]
        for row, level in enumerate(levels)
    ]
    assert asyncio.run(all_at_once()) == truth


PICTURES = {
    "grey": png(np.arange(144, dtype=np.uint8).reshape(12, 12)),
    "colours": png(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)),
    "wide": png(np.arange(200, dtype=np.uint8).reshape(5, 40)),
    "one pixel": png(np.full((1, 1), 77, np.uint8)),
    "jpeg": png(np.arange(144, dtype=np.uint8).reshape(12, 12), "JPEG"),
    "bmp": png(np.arange(144, dtype=np.uint8).reshape(12, 12), "BMP"),
    "webp": png(np.arange(300, dtype=np.uint8).reshape(10, 10, 3), "WEBP"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_images_are_read_as_predict_reads_them(
    name: str, images: Bundle, image_client: TestClient
) -> None:
    data = PICTURES[name]
    x = read_image(io.BytesIO(data), size=(8, 8), mode="L", crop=True)
    text = base64.b64encode(data).decode()
    belief = images.model.predict(torch.from_numpy(x.copy())[None])
    (one,) = ask(image_client, {"image": text}, "?detail=true")
    assert one["detail"]["input"] == x.tolist()
    wrapped = "\n".join(text[start : start + 60] for start in range(0, len(text), 60))
    for body in (
        {"images": [text]},
        {"image": f"data:image/png;base64,{text}"},
        {"image": wrapped},
    ):
        compare(ask(image_client, body), belief, images)
    form = image_client.post("/v1/predict", files={"file": ("x.png", data, "image/png")})
    compare(form.json()["predictions"], belief, images)


def test_a_form_of_several_files(images: Bundle, image_client: TestClient) -> None:
    files = [("file", (f"{name}.x", data)) for name, data in PICTURES.items()]
    answer = image_client.post("/v1/predict?detail=true", files=files)
    seen = [each["detail"]["input"] for each in answer.json()["predictions"]]
    truth = [
        read_image(io.BytesIO(data), size=(8, 8), mode="L", crop=True).tolist()
        for data in PICTURES.values()
    ]
    assert seen == truth


def test_images_for_a_model_of_floats(images: Bundle, open_client: Open) -> None:
    """A model that was trained on numbers in [0, 1] gets the bytes divided by 255."""
    from dataclasses import replace  # noqa: PLC0415

    model = images.model
    floats = replace(images, info=replace(images.info, sample_dtype="float32"))
    before = model.sample_dtype
    model.sample_dtype = torch.float32
    try:
        (told,) = ask(
            open_client(floats),
            {"image": base64.b64encode(PICTURES["grey"]).decode()},
            "?detail=true",
        )
        x = read_image(io.BytesIO(PICTURES["grey"]), size=(8, 8), mode="L", crop=True)
        truth = model.predict(torch.from_numpy(x / np.float32(255))[None])
        assert told["probs"] == pytest.approx(truth.probs()[0].tolist(), abs=1e-9)
        assert told["detail"]["input"] == x.tolist()
    finally:
        model.sample_dtype = before


def test_an_image_with_transparency_and_palette(image_client: TestClient) -> None:
    file = io.BytesIO()
    Image.new("RGBA", (9, 9), (10, 20, 30, 0)).convert("P").save(file, "PNG")
    assert len(ask(image_client, {"image": base64.b64encode(file.getvalue()).decode()})) == 1


def test_numbers_that_are_not_finite_are_null() -> None:
    strange = Uncertainty(1.5, math.inf, -math.inf, math.nan)
    row = Prediction("a", 0, 0.5, None, math.nan, None, [0.5], strange, {"x": math.inf}, None)
    (told,) = json.loads(ANSWER.dump_json(Answer("m", "edl", [row])))["predictions"]
    assert list(told["uncertainty"].values()) == [1.5, None, None, None]
    assert (told["p_value"], told["scores"]) == (None, {"x": None})
