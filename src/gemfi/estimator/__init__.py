"""GEMClassifier: a gemfi model behind scikit-learn's interface.

`classifier.py` is the estimator. `reading.py` and `inputs.py` turn what it is given into numbers,
`budget.py` says how long to train and what to hold out, `weighting.py` how much a sample counts;
`building.py` and `fitting.py` make and train the model, `threads.py` on how many threads, and
`temperature.py` calibrates it.
"""

from gemfi.estimator.classifier import GEMClassifier

__all__ = ["GEMClassifier"]
