"""A table, a scikit-learn transformer, and decisions in the words of your labels."""

from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.preprocessing import PowerTransformer

from gemfi import GEMClassifier

table, target = load_wine(as_frame=True, return_X_y=True)
kinds = target.map({0: "barolo", 1: "grignolino", 2: "barbera"})
table["ash"] = table["ash"].mask(table["ash"] > 2.6)  # missing values and categories
table["strength"] = (table["alcohol"] > 13).map({True: "strong", False: "light"})  # need no step
x, x_test, y, y_test = train_test_split(table, kinds, stratify=kinds, random_state=0)

# Steps of your own go into `preprocessor`: all questions go through them, and none past them.
skewed = ["malic_acid", "magnesium", "color_intensity"]
steps = make_column_transformer((PowerTransformer(), skewed), remainder="passthrough")
steps.set_output(transform="pandas")
classifier = GEMClassifier(preprocessor=steps, random_state=0)
print("5-fold accuracy", cross_val_score(classifier, x, y, cv=5).mean().round(3))

classifier.fit(x, y)
print("test accuracy", round(classifier.score(x_test, y_test), 3))
print(classifier.predict_uncertainty(x_test)[["total", "aleatoric", "epistemic"]].head(3))

decisions = classifier.decide(x_test, false_alarm=0.05)
print(decisions.counts(), "first:", decisions[0])
