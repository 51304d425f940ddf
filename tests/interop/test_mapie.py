"""MAPIE's prediction sets on a GEMClassifier."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gemfi import GEMClassifier


@pytest.mark.filterwarnings("ignore")  # of MAPIE and scikit-learn among themselves
def test_prediction_sets_have_their_coverage() -> None:
    from mapie.classification import SplitConformalClassifier  # noqa: PLC0415 - seconds

    x, y = load_digits(return_X_y=True)
    names = np.array([f"digit {each}" for each in range(10)])[y]
    x_fit, x_rest, y_fit, y_rest = train_test_split(x, names, train_size=0.4, random_state=0)
    x_known, x_test, y_known, y_test = train_test_split(
        x_rest, y_rest, test_size=0.5, random_state=1
    )
    classifier = GEMClassifier(max_steps=150, random_state=0).fit(x_fit, y_fit)
    conformal = SplitConformalClassifier(classifier, confidence_level=0.9, prefit=True)
    conformal.conformalize(x_known, y_known)
    labels, sets = conformal.predict_set(x_test)
    assert (labels == classifier.predict(x_test)).all()
    column = np.searchsorted(classifier.classes_, y_test)
    covered = sets[np.arange(len(y_test)), column, 0].mean()
    assert covered > 0.87  # 0.9 on average over calibration sets
    assert sets.sum(axis=1).mean() < 2
