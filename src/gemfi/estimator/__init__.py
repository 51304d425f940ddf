"""GEMClassifier: a gemfi model behind scikit-learn's interface.

`classifier.py` is the estimator; `inputs.py` reads and standardises what it is given, `budget.py`
says how long to train and what to hold out.
"""

from gemfi.estimator.classifier import GEMClassifier

__all__ = ["GEMClassifier"]
