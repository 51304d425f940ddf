"""Goals and their texts."""

from __future__ import annotations

import pytest

from gemfi.decisions import Costs, Goal
from gemfi.errors import InputError


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("false_alarm=0.01", Goal(false_alarm=0.01)),
        ("false_alarm=0.05, risk=0.02,delta=0.2", Goal(false_alarm=0.05, risk=0.02, delta=0.2)),
        ("coverage=0.9", Goal(false_alarm=0.05, coverage=0.9)),
        ("youden,risk=0.1", Goal(youden=True, risk=0.1)),
        ("error=1,unfamiliar=5", Goal(costs=Costs(1, 5))),
    ],
)
def test_a_goal_is_read_and_written(text: str, goal: Goal) -> None:
    assert Goal.parse(text) == goal
    assert Goal.parse(str(goal)) == goal


def test_the_default_is_a_false_alarm_rate_of_a_twentieth() -> None:
    assert Goal().false_alarm == 0.05
    assert str(Goal()) == "false_alarm=0.05"
    assert Goal(youden=True).false_alarm is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("false_alarm", "'false_alarm': false_alarm: expected a number, got ''"),
        ("alarm=0.1", "unknown 'alarm'; known: false_alarm, risk, delta, coverage, youden, error"),
        ("risk=0.1,risk=0.2", "risk is given twice"),
        ("risk=0.1,coverage=0.5", "one goal a stage: give risk or coverage"),
        ("youden,false_alarm=0.1", "one goal a stage: give false_alarm or youden"),
        ("error=1,risk=0.1", "one goal a stage: give risk or costs"),
        ("risk=2", "risk must be above 0 and below 1, got 2"),
        ("false_alarm=0", "false_alarm must be above 0 and below 1, got 0"),
        ("delta=1", "delta must be above 0 and below 1"),
        ("prevalence=1", "costs.prevalence must be at least 0 and below 1, got 1"),
        ("error=-1", "costs.error must be at least 0, got -1"),
        ("", "unknown ''"),
        ("delta=0.2", "delta is how often the risk may fail: give risk= with it"),
        ("coverage=0.5,delta=0.2", "give risk= with it"),
        ("youden=1", "youden takes no value"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Goal.parse(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"costs": {"error": 1}}, r"costs must be Costs\(error=…, …\), got {'error': 1}"),
        ({"youden": "yes"}, "youden must be True or False, got 'yes'"),
        ({"risk": "0.1"}, "risk must be a number, got '0.1'"),
        ({"alarm": 0.1}, "unknown goal alarm; known: false_alarm, risk"),
    ],
)
def test_other_fields_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Goal.of(None, fields)


def test_a_goal_is_no_number() -> None:
    with pytest.raises(InputError, match=r"a text such as 'false_alarm=0.05', got 0.05"):
        Goal.of(0.05, {})  # type: ignore[arg-type]
