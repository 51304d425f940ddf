"""Rows of a table by the names of their columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from gemfi.bundle import Bundle
from support.served import Open, error


@pytest.fixture
def client(people: Bundle, open_client: Open) -> TestClient:
    return open_client(people)


def ask(client: TestClient, body: Any) -> Any:
    return client.post("/v1/predict", json=body)


def test_a_row_by_names_is_the_row_of_its_numbers(client: TestClient, people: Bundle) -> None:
    rows = [
        {"city": "Rome", "age": 30},
        {"city": "Cairo", "age": None},
        {"city": None, "age": -1.5},
    ]
    assert people.info.columns is not None
    assert people.info.columns.outputs[2:] == ("city=Oslo", "city=Rome", "city=(other)")
    fill = people.info.columns.columns[0].fill
    numbers = [[30, 0, 0, 1, 0], [fill, 1, 0, 0, 1], [-1.5, 0, 0, 0, 1]]
    named, plain = ask(client, {"inputs": rows}).json(), ask(client, {"inputs": numbers}).json()
    assert named == plain
    assert ask(client, {"input": rows[0]}).json()["predictions"][0]["label"] == "south"
    belief = people.predict(np.array(numbers))
    for found, probs in zip(named["predictions"], belief.probs().tolist(), strict=True):
        assert found["probs"] == pytest.approx(probs)


def test_a_model_of_numbers_takes_names_too(row_client: TestClient) -> None:
    named = ask(row_client, {"input": {"d": 4, "c": 3, "b": 2, "a": 1}}).json()
    assert named == ask(row_client, {"input": [1, 2, 3, 4]}).json()


@pytest.mark.parametrize(
    ("body", "message", "where"),
    [
        ({"input": {"age": 1}}, "column 'city' is not there; a missing value is null", "input"),
        ({"inputs": [{"age": 1, "city": "x"}, {}]}, "column 'age' is not there", "inputs[1]"),
        ({"input": {"age": 1, "city": "x", "b": 2}}, "there is no column 'b'", "input"),
        ({"inputs": [{"age": 1, "city": "x"}, [1]]}, "expected an object, as the", "inputs[1]"),
    ],
)
def test_other_names_are_refused(client: TestClient, body: Any, message: str, where: str) -> None:
    text, place = error(ask(client, body), 422, "wrong_shape")
    assert message in text
    assert place == where


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"age": "30", "city": "x"}, "column 'age': expected a number, got \"30\""),
        ({"age": 1e39, "city": "x"}, "column 'age': expected a number, got 1e+39"),
        ({"age": [1], "city": "x"}, "column 'age': expected a number, got an array"),
        ({"age": 1, "city": {}}, "column 'city': expected a text, got an array or an object"),
    ],
)
def test_other_cells_are_refused(client: TestClient, row: Any, message: str) -> None:
    text, place = error(ask(client, {"inputs": [row]}), 422, "not_a_number")
    assert text.startswith(message)
    assert place == "inputs[0]"


def test_objects_where_there_are_no_names(
    client: TestClient, row_client: TestClient, image_client: TestClient
) -> None:
    text, _ = error(ask(image_client, {"input": {"a": 1}}), 422, "wrong_shape")
    assert "this model knows no names of columns" in text
    text, _ = error(
        ask(row_client, {"input": {"a": None, "b": 2, "c": 3, "d": 4}}), 422, "not_a_number"
    )
    assert "expected a number, as in every row of the training data, got null" in text
    error(ask(client, {"inputs": [{"age": 1, "city": "x"}] * 257}), 413, "too_large")


def test_the_model_tells_its_columns(client: TestClient, image_client: TestClient) -> None:
    age, city = client.get("/v1/model").json()["columns"]
    assert (age["name"], age["kind"], age["missing"]) == ("age", "number", True)
    assert city["categories"] == ["Oslo", "Rome"]
    assert image_client.get("/v1/model").json()["columns"] is None
