"""GEMClassifier: a gemfi model behind scikit-learn's interface.

`classifier.py` is the estimator, `inputs.py` turns what it is given into numbers, and `training.py`
says what to hold out, how long and how fast to train, and trains.
"""

from gemfi.estimator.classifier import GEMClassifier

__all__ = ["GEMClassifier"]
