"""MNIST and its relatives: 28×28, one channel, pairs of idx files.

Checksums were read in torchvision, TensorFlow Datasets and the publishers' own pages; those of the
unpacked contents let a file pass that was compressed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from gemfi.data.readers import read_idx_pictures
from gemfi.data.registry.record import DataSet, Form, Part, RemoteFile
from gemfi.data.splits import Role

TEST_ROLES: Final = (Role.TEST, Role.OOD_TEST)
NO_CONSTANTS: Final = (
    "no mean and std: it is only ever shown to a model of another set, which carries its own"
)
"""Note of the sets that nothing is trained on."""

_SHAPE: Final = (1, 28, 28)
_READ: Final = partial(read_idx_pictures, num_classes=10)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def _names(part: str) -> tuple[str, str]:
    prefix = {"train": "train", "test": "t10k"}[part]
    return f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"


def _part(
    label: str,
    count: int,
    roles: tuple[Role, ...],
    *,
    folders: Sequence[str],
    files: str,
    contents: Mapping[str, str] = _NOTHING,
) -> Part:
    """A pair of idx files, gzipped or not, in the first of the folders that has them."""
    forms = []
    for folder in folders:
        for suffix in (".gz", ""):
            names = tuple(f"{folder}/{name}{suffix}" for name in _names(files))
            known = {
                path: contents[name]
                for path, name in zip(names, _names(files), strict=True)
                if name in contents
            }
            forms.append(Form(label, names, _READ, known, slow=True))
    return Part(count, roles, tuple(forms))


def _remote(
    folder: str, base: str, checksums: Mapping[str, tuple[str, int]]
) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(f"{folder}/{name}.gz", f"{base}/{name}.gz", checksum, size)
        for name, (checksum, size) in checksums.items()
    )


def _both(folders: Sequence[str], contents: Mapping[str, str] = _NOTHING) -> dict[str, Part]:
    return {
        "train": _part(
            "train", 60_000, (Role.TRAIN,), folders=folders, files="train", contents=contents
        ),
        "test": _part("test", 10_000, TEST_ROLES, folders=folders, files="test", contents=contents),
    }


MNIST: Final = DataSet(
    name="mnist",
    title="MNIST",
    summary="handwritten digits",
    shape=_SHAPE,
    num_classes=10,
    class_names=tuple("0123456789"),
    licence="not stated by its publisher; Keras gives CC BY-SA 3.0",
    citation="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to "
    "document recognition. Proceedings of the IEEE 86(11), 1998",
    homepage="http://yann.lecun.com/exdb/mnist",
    files=_remote(
        "mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        {
            "train-images-idx3-ubyte": (
                "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                9912422,
            ),
            "train-labels-idx1-ubyte": (
                "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                28881,
            ),
            "t10k-images-idx3-ubyte": (
                "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                1648877,
            ),
            "t10k-labels-idx1-ubyte": (
                "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                4542,
            ),
        },
    ),
    parts=_both(
        ("mnist", "MNIST/raw"),
        {
            "train-images-idx3-ubyte": "sha256:"
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "sha256:"
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "sha256:"
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "sha256:"
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    mean=(0.1307,),
    std=(0.3081,),
    held_out=5_000,
)

FASHION_MNIST: Final = DataSet(
    name="fashion-mnist",
    title="FashionMNIST",
    summary="photographs of clothes",
    shape=_SHAPE,
    num_classes=10,
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    licence="MIT",
    citation="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST: a novel image dataset for "
    "benchmarking machine learning algorithms. arXiv:1708.07747, 2017",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    files=_remote(
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        {
            "train-images-idx3-ubyte": (
                "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                26421880,
            ),
            "train-labels-idx1-ubyte": (
                "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                29515,
            ),
            "t10k-images-idx3-ubyte": (
                "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                4422102,
            ),
            "t10k-labels-idx1-ubyte": (
                "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                5148,
            ),
        },
    ),
    parts=_both(
        ("fashion-mnist", "FashionMNIST/raw"),
        {
            "train-images-idx3-ubyte": "sha256:"
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte": "sha256:"
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte": "sha256:"
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte": "sha256:"
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
    mean=(0.2860,),
    std=(0.3530,),
    held_out=5_000,
)

KMNIST: Final = DataSet(
    name="kmnist",
    title="KMNIST",
    summary="cursive Japanese characters",
    shape=_SHAPE,
    num_classes=10,
    class_names=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
    licence="CC BY-SA 4.0; attribution: KMNIST Dataset (created by CODH), adapted from Kuzushiji "
    "Dataset (created by NIJL and others), doi:10.20676/00000341",
    citation="T. Clanuwat, M. Bober-Irizar, A. Kitamoto, A. Lamb, K. Yamamoto, D. Ha: Deep "
    "learning for classical Japanese literature. arXiv:1812.01718, 2018",
    homepage="http://codh.rois.ac.jp/kmnist",
    files=_remote(
        "kmnist",
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist",
        {
            "train-images-idx3-ubyte": (
                "sha256:51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
                18165135,
            ),
            "train-labels-idx1-ubyte": (
                "sha256:e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
                29497,
            ),
            "t10k-images-idx3-ubyte": (
                "sha256:edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
                3041136,
            ),
            "t10k-labels-idx1-ubyte": (
                "sha256:20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
                5120,
            ),
        },
    ),
    parts=_both(
        ("kmnist", "KMNIST/raw"),
        {  # unpacked from the published files
            "t10k-images-idx3-ubyte": "sha256:"
            "76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e",
            "t10k-labels-idx1-ubyte": "sha256:"
            "a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6",
        },
    ),
    mean=(0.1918,),
    std=(0.3483,),
    held_out=5_000,
)

NOTMNIST: Final = DataSet(
    name="notmnist",
    title="notMNIST",
    summary="letters A-J in many typefaces: OOD validation for MNIST",
    shape=_SHAPE,
    num_classes=10,
    class_names=tuple("ABCDEFGHIJ"),
    licence="not stated; the sample is posted with the author's permission",
    citation="Y. Bulatov: notMNIST dataset. Blog post, 8 September 2011",
    homepage="http://yaroslavvb.blogspot.com/2011/09/notmnist-dataset.html",
    files=_remote(
        "notmnist",
        "https://github.com/davidflanagan/notMNIST-to-MNIST/raw/master",
        {
            "t10k-images-idx3-ubyte": ("md5:2c87c839a4ef9b238846600eec8c35b7", 3172375),
            "t10k-labels-idx1-ubyte": ("md5:7ea9118cbafd0f6e3ee2ad771d782a01", 5118),
        },
    ),
    parts={
        "sample": _part(
            "sample", 10_000, (Role.OOD_VALIDATION,), folders=("notmnist",), files="test"
        )
    },
    note=f"the public sample of 10,000, 1,000 a class; {NO_CONSTANTS}",
)
