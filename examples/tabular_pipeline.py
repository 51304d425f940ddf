"""A table, a scikit-learn pipeline, and decisions in the words of your labels."""

from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

from gemfi import GEMClassifier

table, target = load_wine(as_frame=True, return_X_y=True)
kinds = target.map({0: "barolo", 1: "grignolino", 2: "barbera"})
x, x_test, y, y_test = train_test_split(table, kinds, stratify=kinds, random_state=0)

pipeline = make_pipeline(
    SimpleImputer().set_output(transform="pandas"), GEMClassifier(random_state=0)
)
print("5-fold accuracy", cross_val_score(pipeline, x, y, cv=5).mean().round(3))

pipeline.fit(x, y)
print("test accuracy", round(pipeline.score(x_test, y_test), 3))

classifier = pipeline[-1]
print(classifier.predict_uncertainty(x_test)[["total", "aleatoric", "epistemic"]].head(3))

decisions = classifier.decide(x_test, false_alarm=0.05)
print(decisions.counts(), "first:", decisions[0])
