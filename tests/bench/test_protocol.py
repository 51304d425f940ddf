"""Protocols: the package's own, users' files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemfi.data.augmentation import AUGMENTATIONS
from gemfi.errors import InputError
from gemfi.methods import METHODS
from gemfi_bench.protocol import Contestant, Protocol, built_in, find_protocol

SMALL = """
name = "mine"
title = "Mine"
task = "digits"

[[contestants]]
method = "softmax"
"""


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_package_has_the_protocols_that_its_documents_name() -> None:
    assert set(built_in()) >= {"digits", "mnist", "cifar10", "cifar10-frozen"}


@pytest.mark.parametrize("name", built_in())
def test_every_protocol_of_the_package_is_read_whole(name: str) -> None:
    protocol = find_protocol(name)
    assert protocol.name == name
    assert Protocol.from_plain(protocol.to_plain(), "again") == protocol


def test_digits_compares_every_method_of_the_paper() -> None:
    rows = [each.method for each in find_protocol("digits").contestants]
    others = {"logit-norm", "t2f-norm"}
    assert [*rows, "gem-paper"] == [name for name in METHODS if name not in others]


def test_a_users_file_has_defaults_for_the_rest(tmp_path: Path) -> None:
    protocol = find_protocol(write(tmp_path, SMALL))
    assert protocol.seeds == (0, 1, 2, 3, 42)
    assert protocol.contestants == (Contestant("softmax"),)
    assert not protocol.shift.corruptions


def test_the_path_of_own_data_is_that_from_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.zeros((40, 3), np.float32), y=np.arange(40) % 2)
    text = SMALL.replace('"digits"', '"own.npz"')
    assert find_protocol(write(tmp_path, text)).task == str((tmp_path / "own.npz").resolve())


def test_augmentation_is_given_by_name(tmp_path: Path) -> None:
    text = SMALL + '\n[train]\naugmentation = "standard"\nepochs = 3\n'
    changes = find_protocol(write(tmp_path, text)).train_changes()
    assert changes == {"augmentation": AUGMENTATIONS["standard"], "epochs": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL + "\nwidth = 3\n", "width"),
        (SMALL.replace('"softmax"', '"soft"'), "unknown method"),
        (SMALL.replace('"digits"', '"no-such-data"'), "neither a known task"),
        (SMALL.replace("[[contestants]]", "seeds = [1, 1]\n[[contestants]]"), "different numbers"),
        (SMALL.replace("[[contestants]]", "seeds = []\n[[contestants]]"), "at least one"),
        (SMALL + '\n[[contestants]]\nmethod = "softmax"\n', "two rows have one name"),
        (SMALL + '\n[[contestants]]\nmethod = "ensemble"\nassembled = "edl"\n', "which is no row"),
        (SMALL + '\n[[contestants]]\nmethod = "edl"\nassembled = "softmax"\n', "for the ensemble"),
        (SMALL + "\n[train]\nepoch = 3\n", "train.epoch: unknown field"),
        (SMALL + '\n[train]\nepochs = "3"\n', "train.epochs: expected an integer"),
        (SMALL + '\n[train]\naugmentation = "much"\n', "train.augmentation"),
        (SMALL + "\n[shift]\nimages = 0\n", "shift.images must be"),
        (SMALL + "[broken", "no TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_protocol(write(tmp_path, text))


MORE = "\n[[contestants]]\n"
ENSEMBLE = 'method = "ensemble"\nassembled = "softmax"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL + "seeds = []\n", r"contestants\[0\]: seeds of softmax must be different numbers"),
        (SMALL + "seeds = [0, 0]\n", "seeds of softmax must be different numbers"),
        (SMALL + "seeds = [-1]\n", "seeds of softmax must be an integer of at least 0"),
        (SMALL + "\n[sweeps]\nseeds = []\n", "sweeps.seeds must be different numbers"),
        (SMALL + "\n[sweeps]\nfisher = [0.1, 0.1]\n", "sweeps.fisher must be different"),
        (SMALL + "\n[sweeps]\nkl = [-3.0]\n", "sweeps.kl must be at least 0"),
        (SMALL + "\n[sweeps]\ncomponents = [0]\n", "sweeps.components must be an integer of"),
        (SMALL + "\n[rates]\nvalues = [0.1, 0.1]\n", "rates.values must be different"),
        (SMALL + "\n[rates]\nvalues = [0.0]\n", "rates.values must be above 0"),
        (SMALL + "\n[rates]\nseeds = []\n", "rates.seeds must be different numbers"),
        (SMALL + '\n[shift]\ncorruptions = ["fog", "fog"]\n', "shift.corruptions must be diff"),
        (SMALL + "\n[shift]\nseverities = [1, 1]\n", "shift.severities must be different"),
        (SMALL + MORE + 'method = "ensemble"\nassembled = "ensemble"\n', "a row of ensemble;"),
        (
            SMALL + MORE + 'method = "edl"\n' + MORE + 'method = "ensemble"\nassembled = "edl"\n',
            "which is a row of edl; assembled must be a row of softmax: softmax",
        ),
        (SMALL + "seeds = [7]\n" + MORE + ENSEMBLE, "softmax, which has one seed"),
        (SMALL + MORE + ENSEMBLE + "seeds = [1]\n", "seeds of ensemble: it is assembled"),
        (SMALL + MORE + ENSEMBLE + 'detectors = ["all"]\n', "detectors of ensemble: it is"),
        (SMALL.replace("title", 'near = ["a"]\nfar = ["a"]\ntitle'), "near and far must be"),
        (SMALL.replace("title", 'seen = ["a", "a"]\ntitle'), "seen must be different"),
        (SMALL.replace('"mine"', '"../../x"'), "name must be a small letter or a digit"),
        (SMALL.replace('"mine"', '""'), "name must be a small letter or a digit"),
        (SMALL.replace('"mine"', '"Mine"'), "name must be a small letter or a digit"),
        (SMALL.replace('"mine"', '"digits"'), "that of a protocol of the package"),
    ],
)
def test_what_could_only_fail_later_is_refused_by_its_field(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        find_protocol(write(tmp_path, text))
    assert "mine.toml" in str(refused.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown protocol 'digit'; known: .*digits"):
        find_protocol("digit")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml does not exist"):
        find_protocol(str(tmp_path / "none.toml"))
