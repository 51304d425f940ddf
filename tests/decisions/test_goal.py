"""Goals and their texts."""

from __future__ import annotations

import pytest

from gemfi import InputError
from gemfi.decisions import Costs, Goal


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
        ("false_alarm", "must be a number, such as false_alarm=0.05, got ''"),
        ("alarm=0.1", "unknown 'alarm'; known: coverage, delta, false_alarm, risk, youden, or"),
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
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Goal.parse(text)
