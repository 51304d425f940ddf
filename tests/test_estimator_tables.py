"""GEMClassifier on tables as they come: categories, missing values, preprocessing, scales."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

import gemfi
from gemfi.data import Split
from gemfi.data.normalisation import is_on_another_scale
from gemfi.errors import GemfiWarning, InputError
from gemfi.estimator import GEMClassifier
from gemfi.estimator.training import split_parts
from gemfi.scoring import score_files


def quick(method: str = "softmax", **settings: Any) -> GEMClassifier:
    """A classifier that trains for a moment."""
    return GEMClassifier(method, **{"max_steps": 60, "random_state": 0, **settings})


def people(count: int = 400, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A table of every kind of column; income, where it is known, and the city tell the label."""
    rng = np.random.default_rng(seed)
    city = rng.choice(["Oslo", "Rome", "Lima"], count)
    income = rng.normal(30_000, 5_000, count)
    y = np.where((income > 30_000) ^ (city == "Rome"), "yes", "no")
    frame = pd.DataFrame(
        {
            "income": np.where(rng.uniform(size=count) < 0.05, np.nan, income),
            "city": pd.Categorical(city),
            "owner": rng.integers(2, size=count).astype(bool),
            "job": rng.choice(np.array(["cook", "smith", None], dtype=object), count),
            "age": pd.array(rng.integers(20, 70, count), dtype="Int64"),
        },
        index=[f"row {each}" for each in range(count)],
    )
    return frame, y


@pytest.fixture(scope="module")
def mixed() -> GEMClassifier:
    return quick("gem-fi", max_steps=200).fit(*people())


# -- categories and missing values ---------------------------------------------------------------


def test_a_table_of_every_kind_of_column(mixed: GEMClassifier) -> None:
    x, y = people(300, seed=1)
    assert mixed.score(x, y) > 0.85
    assert mixed.n_features_in_ == 5
    assert list(mixed.feature_names_in_) == list(x.columns)
    columns = mixed.reading_.columns
    assert columns is not None
    assert columns.outputs[:5] == (
        "income",
        "income is missing",
        "city=Lima",
        "city=Oslo",
        "city=Rome",
    )
    assert mixed.predict_uncertainty(x).index.equals(x.index)
    assert len(mixed.decide(x)) == len(x)
    assert len(copy.deepcopy(mixed).calibrate(x, y).decide(x)) == len(x)


def test_values_that_training_did_not_have(mixed: GEMClassifier) -> None:
    x, _ = people(20, seed=2)
    new = x.assign(city="Cairo", income=np.nan, job=None)
    assert np.isfinite(mixed.predict_proba(new)).all()
    median = int(people()[0]["age"].median())
    known = mixed.predict_proba(x.assign(age=x["age"].where(np.arange(20) != 3, median)))
    with pytest.warns(GemfiWarning, match="column 'age' has missing values, and the training"):
        found = mixed.predict_proba(x.assign(age=x["age"].where(np.arange(20) != 3)))
    np.testing.assert_allclose(found, known, atol=0.01)
    with pytest.raises(InputError, match="row 0, column 'age': 'old' is not a finite number"):
        mixed.predict(x.assign(age="old"))
    with pytest.raises(ValueError, match="feature names should match"):
        mixed.predict(x.rename(columns={"age": "years"}))


def test_an_array_of_objects_is_read_by_position(mixed: GEMClassifier) -> None:
    x, _ = people(20, seed=2)
    expected = mixed.predict_proba(x)
    objects = x.astype(object).to_numpy()
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(mixed.predict_proba(objects), expected)


def test_arrays_with_missing_values() -> None:
    x, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    holes = np.where(rng.uniform(size=x.shape) < 0.1, np.nan, x)
    classifier = quick(max_steps=150).fit(holes, y)
    assert classifier.score(holes, y) > 0.85
    assert classifier.score(x, y) > 0.85
    assert np.isfinite(classifier.predict_proba(torch.from_numpy(holes))).all()
    frame = pd.DataFrame(holes, columns=list("abcd"))
    named = quick(max_steps=150).fit(frame, y)
    np.testing.assert_array_equal(named.predict_proba(frame), classifier.predict_proba(holes))
    assert named.reading_.columns is not None
    assert named.reading_.columns.names == tuple("abcd")
    whole = quick().fit(x, y)
    place = np.arange(600).reshape(150, 4) == 9
    with pytest.warns(GemfiWarning, match="column 1 has missing values, .* filled with its median"):
        found = whole.predict_proba(np.where(place, np.nan, x))
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    median = np.median(x[split_parts(y, None, None, seed).train, 1])
    np.testing.assert_array_equal(found, whole.predict_proba(np.where(place, median, x)))


def test_columns_are_learnt_from_training_samples_alone() -> None:
    x, y = people()
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    parts = split_parts(np.unique(y, return_inverse=True)[1], None, None, seed)
    held = np.union1d(parts.validation, parts.calibration)
    moved = x.copy()
    moved.iloc[held, 0] = 1e9
    fills = []
    for table in (x, moved):
        columns = quick(max_steps=2).fit(table, y).reading_.columns
        assert columns is not None
        fills.append(columns.columns[0].fill)
    assert fills[0] == fills[1] == x["income"].iloc[parts.train].median()


def test_a_value_that_one_fold_alone_lacks() -> None:
    """Cross-validation goes on where training folds happen to have no missing value."""
    x, y = load_iris(return_X_y=True)
    x[0, 0] = np.nan
    for preprocessor in (None, MinMaxScaler(), MinMaxScaler().set_output(transform="pandas")):
        classifier = quick(max_steps=2, preprocessor=preprocessor)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GemfiWarning)
            assert np.isfinite(cross_val_score(classifier, x, y, cv=3)).all()
        assert classifier.fit(x, y).reading_.columns is not None  # whichever part has the hole


def test_missing_pixels_are_refused() -> None:
    x = np.zeros((60, 1, 8, 8))
    x[3, 0, 2, 2] = np.nan
    with pytest.raises(InputError, match="X has NaN in an image"):
        quick(backbone="convnet").fit(x, np.arange(60) % 2)


def test_what_is_neither_number_nor_category() -> None:
    x, y = people(60)
    with pytest.raises(InputError, match="column 'born' is of datetime64"):
        quick().fit(x.assign(born=pd.Timestamp("2020-01-01")), y)


# -- bundles -------------------------------------------------------------------------------------


def test_a_bundle_reads_the_same_table(mixed: GEMClassifier, tmp_path: Path) -> None:
    x, _ = people(30, seed=3)
    x = x.assign(city=x["city"].astype(object).where(np.arange(30) != 4, "Cairo"))
    bundle = gemfi.load(mixed.save(tmp_path / "people.safetensors"))
    assert bundle.info.columns == mixed.reading_.columns
    expected = mixed.predict_proba(x)
    np.testing.assert_allclose(bundle.predict(x).probs().numpy(), expected, atol=1e-12)
    assert bundle.decide(x).counts() == mixed.decide(x).counts()
    x.to_csv(tmp_path / "people.csv")
    x.reset_index(drop=True).to_parquet(tmp_path / "people.parquet")
    for file in ("people.csv", "people.parquet"):
        scored = score_files(bundle, [tmp_path / file], probs=True)
        assert (scored.count, scored.failed) == (30, 0)
        probs = np.array([row[-3:-1] for row in scored.first], float)
        np.testing.assert_allclose(probs, expected[: len(probs)], atol=1e-6)


def test_an_array_with_holes_is_read_by_its_bundle(tmp_path: Path) -> None:
    x, y = load_iris(return_X_y=True)
    x[::7, 1] = np.nan
    classifier = quick().fit(x, y)
    bundle = gemfi.load(classifier.save(tmp_path / "iris.safetensors"))
    np.save(tmp_path / "x.npy", x[:9])
    rows = score_files(bundle, [tmp_path / "x.npy"], probs=True).first
    probs = np.array([row[-4:-1] for row in rows], float)
    np.testing.assert_allclose(probs, classifier.predict_proba(x[:9]), atol=1e-6)


def test_a_bundle_of_numbers_takes_a_frame_too(tmp_path: Path) -> None:
    x, y = load_iris(return_X_y=True, as_frame=True)
    classifier = quick().fit(x, y)
    bundle = gemfi.load(classifier.save(tmp_path / "iris.safetensors"))
    assert bundle.info.columns is None
    shuffled = x[x.columns[::-1]]
    np.testing.assert_allclose(bundle.predict(shuffled).probs(), classifier.predict_proba(x))
    with pytest.raises(InputError, match="there is no column 'sepal width"):
        bundle.predict(x.drop(columns="sepal width (cm)"))


def test_a_preprocessor_is_not_saved_without_a_word(tmp_path: Path) -> None:
    x, y = load_iris(return_X_y=True)
    classifier = quick(preprocessor=StandardScaler()).fit(x, y)
    with pytest.raises(InputError, match=r"cannot hold a StandardScaler.*joblib\.dump"):
        classifier.save(tmp_path / "iris.safetensors")
    assert list(tmp_path.iterdir()) == []
    joblib.dump(classifier, tmp_path / "iris.joblib")
    again = joblib.load(tmp_path / "iris.joblib")
    np.testing.assert_array_equal(again.predict_proba(x), classifier.predict_proba(x))


# -- preprocessing -------------------------------------------------------------------------------


def test_every_question_goes_through_the_preprocessor() -> None:
    x, y = load_wine(return_X_y=True)
    train, test, seen, unseen = train_test_split(x, y, stratify=y, random_state=0)
    classifier = quick("gem-fi", preprocessor=StandardScaler(), max_steps=150).fit(train, seen)
    assert classifier.score(test, unseen) > 0.9
    inner = classifier.reading_.preprocessor.transform(test)
    belief = classifier.model_.predict(inner)
    np.testing.assert_allclose(classifier.predict_proba(test), belief.probs().numpy(), atol=1e-12)
    found = classifier.predict_uncertainty(test)
    np.testing.assert_allclose(found["max_prob"], 1 - belief.probs().max(dim=1).values.numpy())
    assert classifier.decide(test).counts()["unfamiliar"] < 0.3 * len(test)
    assert classifier.calibrate(test, unseen).calibration_ is not None
    assert not hasattr(classifier.preprocessor, "mean_")  # a copy was fitted


def test_the_preprocessor_sees_training_samples_alone() -> None:
    x, y = load_wine(return_X_y=True)
    classifier = quick(preprocessor=StandardScaler(), max_steps=2).fit(x, y)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    rows = split_parts(y, None, None, seed).train
    np.testing.assert_allclose(classifier.reading_.preprocessor.mean_, x[rows].mean(axis=0))


def test_preprocessors_of_many_kinds() -> None:
    x, y = people()
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["city", "job"]),
        (SimpleImputer(), ["income", "age"]),
    )
    classifier = quick(preprocessor=make_pipeline(encoder, MinMaxScaler()), max_steps=150).fit(x, y)
    assert classifier.score(x, y) > 0.85
    left = make_column_transformer(("drop", ["job"]), remainder="passthrough")
    left.set_output(transform="pandas")
    some = quick(preprocessor=left, max_steps=150).fit(x, y)  # categories are left to the estimator
    assert some.score(x, y) > 0.85
    assert some.n_features_in_ == 5
    search = GridSearchCV(quick(max_steps=20), {"preprocessor": [None, left]}, cv=2).fit(x, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_sparse_matrices() -> None:
    x, y = load_iris(return_X_y=True)
    for sparse in (scipy.sparse.csr_matrix(x), scipy.sparse.coo_array(x)):
        with pytest.raises(InputError, match=r"X\.toarray\(\).*TruncatedSVD\(n_components=100\)"):
            quick().fit(sparse, y)
    classifier = quick(preprocessor=TruncatedSVD(3, random_state=0), max_steps=150)
    assert classifier.fit(scipy.sparse.csr_matrix(x), y).score(scipy.sparse.csr_matrix(x), y) > 0.85
    with pytest.raises(InputError, match="X is a sparse matrix"):
        quick(max_steps=2).fit(x, y).predict(scipy.sparse.csr_matrix(x))
    frame, labels = people(60)
    with pytest.raises(InputError, match=r"OneHotEncoder returns a sparse .*sparse_output=False"):
        quick(preprocessor=OneHotEncoder()).fit(frame[["city"]], labels)


@pytest.mark.parametrize("wrong", [StandardScaler, "scale", np.log1p])
def test_what_is_no_transformer(wrong: Any) -> None:
    x, y = load_iris(return_X_y=True)
    with pytest.raises(InputError, match="preprocessor must be a transformer of scikit-learn"):
        quick(preprocessor=wrong).fit(x, y)


# -- another scale -------------------------------------------------------------------------------


def test_past_the_scaler_of_a_pipeline() -> None:
    """The case of the issue: the last step of a pipeline, asked about raw inputs."""
    x, y = load_wine(return_X_y=True)
    train, test, seen, unseen = train_test_split(x, y, stratify=y, random_state=0)
    pipeline = make_pipeline(StandardScaler(), quick("gem-fi", max_steps=150)).fit(train, seen)
    assert pipeline.score(test, unseen) > 0.9
    for ask in ("predict_uncertainty", "decide", "predict", "predict_proba"):
        with pytest.warns(GemfiWarning, match="another scale .* skip a preprocessing step") as told:
            getattr(pipeline[-1], ask)(test)
        assert told[0].filename == __file__  # it names the line of the user
    pipeline[-1].predict_uncertainty(pipeline[:-1].transform(test))


@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler])
def test_scales_that_were_forgotten_are_told_both_ways(load: Any, scaler: Any) -> None:
    x, y = load(return_X_y=True)
    train, test, seen, _ = train_test_split(x, y, stratify=y, random_state=0)
    fitted = scaler().fit(train)
    pairs = [(fitted.transform(train), test), (train, fitted.transform(test))]
    for known, asked in pairs:
        classifier = quick(max_steps=2).fit(known, seen)
        with pytest.warns(GemfiWarning, match="another scale"):
            classifier.predict(asked)


def test_ordinary_drift_is_not_taken_for_another_scale() -> None:
    x, y = load_wine(return_X_y=True)
    classifier = quick(max_steps=2).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for label in range(3):
            classifier.predict(x[y == label])  # one class alone
        classifier.predict(x + 1.5 * x.std(axis=0))  # all columns move
        late = x.copy()
        late[:, 12] += 1e6  # one column goes away, as a time does
        classifier.predict(late)
        classifier.predict(100 * x[:9])  # too few rows to tell


@pytest.mark.parametrize(
    ("columns", "far", "expected"),
    [
        (1, 1, True),
        (2, 1, False),
        (2, 2, True),
        (8, 1, False),
        (8, 2, True),
        (40, 9, False),
        (40, 10, True),
    ],
)
def test_how_many_columns_must_be_far(columns: int, far: int, expected: bool) -> None:
    x = torch.zeros(20, columns)
    x[:, :far] = 31
    mean, std = torch.zeros(columns), torch.full((columns,), 10.0)
    assert is_on_another_scale(x, mean, std) is expected
    x[:4] = 0
    assert not is_on_another_scale(x, mean, std)  # four rows of five
    assert not is_on_another_scale(torch.full((20, columns), 29.0), mean, std)


def test_unfamiliar_data_are_on_another_scale_on_purpose() -> None:
    x, y = load_wine(return_X_y=True)
    model = quick(max_steps=2).fit(x, y).model_
    far = torch.from_numpy(100 * x)
    model.predict(Split(far, None, "ood-test", "far"))
    for asked in (far, Split(far, torch.from_numpy(y), "test", "far")):
        with pytest.warns(GemfiWarning, match="another scale"):
            model.predict(asked)


@pytest.mark.parametrize("kind", [object, str])
def test_words_in_an_array_are_told_where_to_go(kind: type) -> None:
    x = np.array([["1.5", "red"], ["2", "blue"]] * 60, dtype=kind)
    with pytest.raises(InputError, match=r"X holds 'red', .* DataFrame, .*=OneHotEncoder\(sparse"):
        quick().fit(x, [0, 1] * 60)
    numbers = np.random.default_rng(0).normal(size=(120, 2))
    known = quick().fit(numbers, [0, 1] * 60)
    with pytest.raises(InputError, match="X holds 'red'"):
        known.predict(x)


def test_whole_numbers_of_pandas_that_are_missing_later() -> None:
    x, y = load_iris(return_X_y=True, as_frame=True)
    x = x.round().astype("Int64")
    known = quick().fit(x, y)
    later = x.copy()
    later.iloc[3, 1] = pd.NA
    with pytest.warns(GemfiWarning, match="filled with its median"):
        found = known.predict_proba(later)
    assert np.isfinite(found).all()


def test_a_bundle_fills_what_its_classifier_fills(mixed: GEMClassifier, tmp_path: Path) -> None:
    x = people(20, seed=1)[0]
    x = x.assign(age=x["age"].where(np.arange(20) != 3))
    loaded = gemfi.load(mixed.save(tmp_path / "m.safetensors"))
    with pytest.warns(GemfiWarning, match="'age' has missing values"):
        found = loaded.predict(x).probs().numpy()
    with pytest.warns(GemfiWarning, match="'age' has missing values"):
        np.testing.assert_allclose(found, mixed.predict_proba(x))
