"""What the app says of itself: the model, the description of the API, the page."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest
import torch
from starlette.testclient import TestClient

from gemfi import build_model
from gemfi.bundle import Bundle, make_bundle
from gemfi.data.inputs import InputSpec
from gemfi.errors import InputError
from gemfi.serve import app as app_module
from gemfi.serve import schemas
from gemfi.serve.app import KINDS, create_app
from gemfi.serve.service import Predictor
from gemfi.serve.settings import Settings
from support.served import CLASSES, Open, png


def test_about_the_model(rows: Bundle, row_client: TestClient) -> None:
    found = row_client.get("/v1/model").json()
    schemas.ModelAbout.model_validate(found)
    assert found["name"] == "rows"
    assert found["method"] == "gem-fi"
    assert found["title"] == "GEM-FI"
    assert found["classes"] == list(CLASSES)
    assert found["feature_names"] == ["a", "b", "c", "d"]
    assert found["input"] == {"kind": "row", "shape": [4], "dtype": "float32"}
    assert rows.policy is not None
    policy = found["policy"]
    assert policy["level"] == 0.1
    assert policy["threshold"] is None
    assert policy["score"] == rows.policy.score
    assert policy["calibration"] == 300
    assert policy["least_level"] == 1 / 301
    assert policy["goal"] == "false_alarm=0.1"
    assert set(found["references"]) == set(rows.references)
    assert found["references"]["entropy"] == rows.references["entropy"].tolist()
    assert found["limits"] == {"batch": 256, "bytes": 292_864, "pixels": 16_000_000}


def test_no_folder_is_told(row_client: TestClient) -> None:
    found = row_client.get("/v1/model").json()
    assert found["provenance"]["spec"] == {"task": "table.csv"}


def test_about_a_model_without_a_policy(undecided: Bundle, open_client: Open) -> None:
    found = open_client(undecided).get("/v1/model").json()
    schemas.ModelAbout.model_validate(found)
    assert found["policy"] is None
    assert found["references"] == {}


def test_answers_are_as_described(row_client: TestClient, image_client: TestClient) -> None:
    for client, one in ((row_client, [1, 2, 3, 4]), (image_client, [[[7] * 8] * 8])):
        for query in ("", "?detail=true", "?false_alarm=0.5"):
            answer = client.post(f"/v1/predict{query}", json={"inputs": [one, one]})
            schemas.ANSWER.validate_json(answer.text, strict=True)
    schemas.Error.model_validate(row_client.get("/x").json())
    schemas.Health.model_validate(row_client.get("/healthz").json())


def document(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_every_route_and_error_is_described(row_client: TestClient) -> None:
    found = document(row_client)
    assert set(found["paths"]) == {"/v1/predict", "/v1/model", "/healthz", "/metrics"}
    predict = found["paths"]["/v1/predict"]["post"]
    always = {"403", "421", "500", "503"}
    codes = {"200", "400", "408", "413", "415", "422", "429", "504"} | always
    assert set(predict["responses"]) == codes
    for code in codes - {"200"}:
        content = predict["responses"][code]["content"]["application/json"]
        assert content["schema"]["$ref"].endswith("/Error")
    assert "Retry-After" in predict["responses"]["429"]["headers"]
    metrics = found["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    assert list(metrics) == ["text/plain; version=0.0.4; charset=utf-8"]
    assert set(found["paths"]["/healthz"]["get"]["responses"]) == {"200"} | always


def test_a_token_is_described(rows: Bundle, row_client: TestClient, open_client: Open) -> None:
    assert "securitySchemes" not in document(row_client)["components"]
    found = document(open_client(rows, token=b"12345678"))
    assert found["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for path, method in (
        ("/v1/predict", "post"), ("/v1/model", "get"), ("/v1/reload", "post"), ("/metrics", "get"),
    ):  # fmt: skip
        operation = found["paths"][path][method]
        assert operation["security"] == [{"token": []}]
        assert "401" in operation["responses"]
    assert "security" not in found["paths"]["/healthz"]["get"]


def test_the_described_body_is_what_is_taken(
    row_client: TestClient, image_client: TestClient, people: Bundle, open_client: Open
) -> None:
    """The schema and the server accept and refuse the same bodies."""
    image = [[[0] * 8] * 8]
    cases = {
        row_client: [
            {"input": [1, 2, 3, 4]}, {"inputs": [[1, 2, 3, 4.5]]}, {"inputs": []}, {},
            {"input": [1, 2, 3]}, {"input": [1, 2, 3, "4"]}, {"input": [1, 2, 3, True]},
            {"input": [1, 2, 3, 1e39]}, {"input": [1, 2, 3, 4], "x": 1}, [], {"inputs": 1},
            {"inputs": [[1, 2, 3, 4]] * 257}, {"input": {"a": 1, "b": 2, "c": 3, "d": True}},
            {"inputs": [{"a": 1, "b": 2, "c": 3, "d": 4}]}, {"input": {"a": 1, "b": 2, "c": 3}},
            {"input": {"a": 1, "b": 2, "c": 3, "d": None}}, {"inputs": [{}]},
            {"input": {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}}, {"input": {}},
            {"inputs": [{"a": 1, "b": 2, "c": 3, "d": 4}, [1, 2, 3, 4]]},
            {"input": {"a": 1, "b": 2, "c": 3, "d": 1e39}},
        ],
        open_client(people): [
            {"input": {"age": 30, "city": "Rome"}}, {"input": {"age": None, "city": None}},
            {"inputs": [{"age": 3.5, "city": "new"}, {"age": 1, "city": 7}]},
            {"input": {"age": "30", "city": "Rome"}}, {"input": {"age": 1, "city": ["Rome"]}},
            {"input": {"age": 1}}, {"input": [1, 0, 1, 0, 0]}, {"input": [1, "Rome"]},
        ],
        image_client: [
            {"input": image}, {"inputs": [image, image]}, {"input": [[[256] * 8] * 8]},
            {"input": [[[1.0] * 8] * 8]}, {"input": [[[0.5] * 8] * 8]}, {"images": []},
            {"input": [[[0] * 8] * 7]}, {"image": 3},
        ],
    }  # fmt: skip
    for client, bodies in cases.items():
        operation = document(client)["paths"]["/v1/predict"]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        validator = jsonschema_rs.Draft202012Validator(schema)
        for body in bodies:
            status = client.post("/v1/predict", json=body).status_code
            assert validator.is_valid(body) == (status == 200), (body, status)
            assert status in {200, 400, 413, 422}


def test_parameters_are_described(
    row_client: TestClient, undecided: Bundle, open_client: Open
) -> None:
    def parameters(client: TestClient) -> dict[str, Any]:
        listed = document(client)["paths"]["/v1/predict"]["post"]["parameters"]
        return {each["name"]: each["schema"] for each in listed}

    found = parameters(row_client)
    least = found["false_alarm"]["minimum"]
    ask = {"input": [1, 2, 3, 4]}
    assert row_client.post(f"/v1/predict?false_alarm={least!r}", json=ask).status_code == 200
    assert row_client.post(f"/v1/predict?false_alarm={least * 0.99!r}", json=ask).status_code == 422
    assert list(parameters(open_client(undecided))) == ["detail"]


def test_the_page(row_client: TestClient, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module.resources, "files", lambda _: tmp_path)
    assert row_client.get("/").status_code == 404  # no page is there
    folder = tmp_path / "page"
    folder.mkdir()
    files = {
        "index.html": b"<!doctype html>", "page.js": b"1", "page.css": b"a{}",
        "x.svg": b"<svg/>", "x.png": png_bytes(), "secret.py": b"", "plain": b"",
    }  # fmt: skip
    for name, data in files.items():
        (folder / name).write_bytes(data)
    index = row_client.get("/")
    assert index.text == "<!doctype html>"
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    for name, data in files.items():
        answer = row_client.get(f"/static/{name}")
        kind = KINDS.get(f".{name.partition('.')[2]}")
        if kind is None:
            assert answer.status_code == 404
        else:
            assert (answer.content, answer.headers["content-type"]) == (data, kind)


def png_bytes() -> bytes:
    import numpy as np  # noqa: PLC0415

    return png(np.zeros((2, 2), np.uint8))


def test_the_page_loads_nothing_from_elsewhere(row_client: TestClient) -> None:
    answer = row_client.get("/")
    if answer.status_code == 200:
        assert "http://" not in answer.text.replace("http://www.w3.org", "")
        assert "https://" not in answer.text or json.dumps("script src") not in answer.text


def test_a_model_that_cannot_be_asked_is_refused_at_the_start(rows: Bundle) -> None:
    model = build_model("softmax", torch.nn.Linear(4, 6), 3, num_features=6)
    model.inputs = InputSpec(sample_shape=(9,))  # and its network takes four
    with pytest.raises(InputError, match=r"cannot answer an input of the shape \(9,\)"):
        create_app(make_bundle("own", model))
    assert rows.policy is not None
    with pytest.raises(InputError, match="magic"):
        create_app(rows, policy=replace(rows.policy, score="magic"))


def test_long_words_are_searched_for_folders_in_no_time(rows: Bundle) -> None:
    """A word without a slash is looked at once, not once from each of its letters."""
    words = {"log": "x" * 300_000, "at": "in '/a/b c/d.csv'", "/a/b": 1}
    bundle = replace(rows, info=replace(rows.info, metrics=words))
    told = json.loads(Predictor(bundle, None, Settings()).about)
    assert told["metrics"] == {"log": "x" * 300_000, "at": "in 'b d.csv'", "b": 1}
