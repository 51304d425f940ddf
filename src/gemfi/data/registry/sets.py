"""The data sets of the registry, as tables; to add one, write its `DataSet` and list it at the end.

Checksums were read in torchvision, TensorFlow Datasets, pytorch-ood, torch-uncertainty and the
publishers' own pages. Those of unpacked contents let a file pass that was compressed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import torch

from gemfi.data.readers import (
    Pictures,
    read_array_pictures,
    read_cifar10,
    read_cifar100,
    read_idx_pictures,
    read_image_folder,
    read_npy,
    read_svhn,
    read_tiny_imagenet_val,
)
from gemfi.data.registry.entries import DataSet, Form, Part, RemoteFile
from gemfi.data.splits import Role
from gemfi.errors import InputError

_TEST_ROLES: Final = (Role.TEST, Role.OOD_TEST)
_GREY: Final = (1, 28, 28)
_COLOUR: Final = (3, 32, 32)
_NO_CONSTANTS: Final = (
    "no mean and std: it is only ever shown to a model of another set, which carries its own"
)


# MNIST and its relatives: pairs of idx files, gzipped or not.

_IDX_NAMES: Final = {
    "train-images": "train-images-idx3-ubyte",
    "train-labels": "train-labels-idx1-ubyte",
    "test-images": "t10k-images-idx3-ubyte",
    "test-labels": "t10k-labels-idx1-ubyte",
}


def _lines(table: str) -> Iterator[list[str]]:
    return (line.split() for line in table.splitlines() if line.strip())


def _idx_files(folder: str, address: str, table: str) -> tuple[RemoteFile, ...]:
    """Files from lines of name, size and checksum."""
    return tuple(
        RemoteFile(
            f"{folder}/{_IDX_NAMES[name]}.gz", f"{address}/{_IDX_NAMES[name]}.gz", sum_, int(size)
        )
        for name, size, sum_ in _lines(table)
    )


def _idx_part(
    label: str, which: str, count: int, roles: tuple[Role, ...], folders: tuple[str, ...], sums: str
) -> Part:
    """A pair of idx files in the first of the folders that has them.

    Args:
        label: name of the part.
        which: of the published pairs, `train` or `test`.
        count: samples as published.
        roles: what the part may be used for.
        folders: below the data folder.
        sums: lines of name and checksum of the unpacked contents.
    """
    contents = {_IDX_NAMES[name]: checksum for name, checksum in _lines(sums)}
    names = _IDX_NAMES[f"{which}-images"], _IDX_NAMES[f"{which}-labels"]
    forms = [
        Form(
            label,
            tuple(f"{folder}/{name}{suffix}" for name in names),
            partial(read_idx_pictures, num_classes=10),
            {f"{folder}/{n}{suffix}": contents[n] for n in names if n in contents},
            slow=True,
        )
        for folder in folders
        for suffix in (".gz", "")
    ]
    return Part(count, roles, tuple(forms))


def _idx_parts(*folders: str, sums: str) -> dict[str, Part]:
    return {
        "train": _idx_part("train", "train", 60_000, (Role.TRAIN,), folders, sums),
        "test": _idx_part("test", "test", 10_000, _TEST_ROLES, folders, sums),
    }


_MNIST = DataSet(
    name="mnist",
    title="MNIST",
    summary="handwritten digits",
    shape=_GREY,
    num_classes=10,
    class_names=tuple("0123456789"),
    licence="not stated by its publisher; Keras gives CC BY-SA 3.0",
    citation="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to "
    "document recognition. Proceedings of the IEEE 86(11), 1998",
    homepage="http://yann.lecun.com/exdb/mnist",
    files=_idx_files(
        "mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        """
    train-images 9912422 sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
    train-labels   28881 sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
    test-images  1648877 sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
    test-labels     4542 sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
    """,
    ),
    parts=_idx_parts(
        "mnist",
        "MNIST/raw",
        sums="""
    train-images sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
    train-labels sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
    test-images  sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
    test-labels  sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
    """,
    ),
    mean=(0.1307,),
    std=(0.3081,),
    held_out=5_000,
)

_CLOTHES: Final = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
_FASHION_MNIST = DataSet(
    name="fashion-mnist",
    title="FashionMNIST",
    summary="photographs of clothes",
    shape=_GREY,
    num_classes=10,
    class_names=tuple(_CLOTHES.split(",")),
    licence="MIT",
    citation="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST: a novel image dataset for "
    "benchmarking machine learning algorithms. arXiv:1708.07747, 2017",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    files=_idx_files(
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        """
    train-images 26421880 sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
    train-labels    29515 sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
    test-images   4422102 sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
    test-labels      5148 sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
    """,
    ),
    parts=_idx_parts(
        "fashion-mnist",
        "FashionMNIST/raw",
        sums="""
    train-images sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
    train-labels sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
    test-images  sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
    test-labels  sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
    """,
    ),
    mean=(0.2860,),
    std=(0.3530,),
    held_out=5_000,
)

_KMNIST = DataSet(
    name="kmnist",
    title="KMNIST",
    summary="cursive Japanese characters",
    shape=_GREY,
    num_classes=10,
    class_names=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
    licence="CC BY-SA 4.0; attribution: KMNIST Dataset (created by CODH), adapted from Kuzushiji "
    "Dataset (created by NIJL and others), doi:10.20676/00000341",
    citation="T. Clanuwat, M. Bober-Irizar, A. Kitamoto, A. Lamb, K. Yamamoto, D. Ha: Deep "
    "learning for classical Japanese literature. arXiv:1812.01718, 2018",
    homepage="http://codh.rois.ac.jp/kmnist",
    files=_idx_files(
        "kmnist",
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist",
        """
    train-images 18165135 sha256:51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4
    train-labels    29497 sha256:e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17
    test-images   3041136 sha256:edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5
    test-labels      5120 sha256:20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c
    """,
    ),
    parts=_idx_parts(
        "kmnist",
        "KMNIST/raw",
        sums="""
    test-images sha256:76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e
    test-labels sha256:a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6
    """,
    ),
    mean=(0.1918,),
    std=(0.3483,),
    held_out=5_000,
)

_NOTMNIST = DataSet(
    name="notmnist",
    title="notMNIST",
    summary="letters A-J in many typefaces: OOD validation for MNIST",
    shape=_GREY,
    num_classes=10,
    class_names=tuple("ABCDEFGHIJ"),
    licence="not stated; the sample is posted with the author's permission",
    citation="Y. Bulatov: notMNIST dataset. Blog post, 8 September 2011",
    homepage="http://yaroslavvb.blogspot.com/2011/09/notmnist-dataset.html",
    files=_idx_files(
        "notmnist",
        "https://github.com/davidflanagan/notMNIST-to-MNIST/raw/master",
        """
    test-images 3172375 md5:2c87c839a4ef9b238846600eec8c35b7
    test-labels    5118 md5:7ea9118cbafd0f6e3ee2ad771d782a01
    """,
    ),
    parts={
        "sample": _idx_part("sample", "test", 10_000, (Role.OOD_VALIDATION,), ("notmnist",), "")
    },
    note=f"the public sample of 10,000, 1,000 a class; {_NO_CONSTANTS}",
)


# CIFAR, SVHN, TinyImageNet and DTD: 32×32, three channels.

_KRIZHEVSKY: Final = (
    "A. Krizhevsky: Learning multiple layers of features from tiny images. Technical report, "
    "University of Toronto, 2009"
)
_CIFAR10_NAMES: Final = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100_NAMES: Final = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo
keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain
plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


def _cifar_parts(
    folder: str, read: Callable[..., Pictures], train: str, test: str
) -> dict[str, Part]:
    """Parts of binary files, from lines of name and checksum."""

    def part(name: str, count: int, roles: tuple[Role, ...], sums: str) -> Part:
        contents = {f"{folder}/{file}.bin": f"sha256:{digits}" for file, digits in _lines(sums)}
        return Part(count, roles, (Form(name, tuple(contents), read, contents),))

    return {
        "train": part("train", 50_000, (Role.TRAIN,), train),
        "test": part("test", 10_000, _TEST_ROLES, test),
    }


_CIFAR10 = DataSet(
    name="cifar10",
    title="CIFAR-10",
    summary="animals and vehicles",
    shape=_COLOUR,
    num_classes=10,
    class_names=tuple(_CIFAR10_NAMES.split()),
    licence="not stated",
    citation=_KRIZHEVSKY,
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    files=(
        RemoteFile(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170052171,
            ("cifar-10-batches-bin",),
        ),
    ),
    parts=_cifar_parts(
        "cifar-10-batches-bin",
        read_cifar10,
        """
    data_batch_1 cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5
    data_batch_2 a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed
    data_batch_3 bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67
    data_batch_4 014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48
    data_batch_5 755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add
    """,
        "test_batch 8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    ),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    held_out=2_500,
    note="the binary version",
)

_CIFAR100 = DataSet(
    name="cifar100",
    title="CIFAR-100",
    summary="100 kinds of things, none of them a class of CIFAR-10",
    shape=_COLOUR,
    num_classes=100,
    class_names=tuple(_CIFAR100_NAMES.split()),
    licence="not stated",
    citation=_KRIZHEVSKY,
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    files=(
        RemoteFile(
            "cifar-100-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            168513733,
            ("cifar-100-binary",),
        ),
    ),
    parts=_cifar_parts(
        "cifar-100-binary",
        read_cifar100,
        "train f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
        "test d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
    ),
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    held_out=2_500,
    note="the binary version",
)

_SVHN = DataSet(
    name="svhn",
    title="SVHN",
    summary="house numbers, cropped to one digit",
    shape=_COLOUR,
    num_classes=10,
    class_names=tuple("0123456789"),
    licence="for non-commercial use only",
    citation="Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Y. Ng: Reading digits in "
    "natural images with unsupervised feature learning. NIPS 2011",
    homepage="http://ufldl.stanford.edu/housenumbers",
    files=(
        RemoteFile(
            "svhn/train_32x32.mat",
            "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            182040794,
        ),
        RemoteFile(
            "svhn/test_32x32.mat",
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            64275384,
        ),
    ),
    parts={
        "train": Part(
            73_257, (Role.TRAIN,), (Form("train", ("svhn/train_32x32.mat",), read_svhn, slow=True),)
        ),
        "test": Part(
            26_032,
            _TEST_ROLES,
            (
                Form("test", ("svhn/test_32x32.mat",), read_svhn, slow=True),
                Form(
                    "test, first 5,000",
                    ("svhn/test_first5000_32x32.mat",),
                    read_svhn,
                    provenance="the first 5,000 of the 26,032 test images, reconstructed from "
                    "public upscaled copies, exact up to rounding",
                ),
            ),
        ),
    },
    mean=(0.4377, 0.4438, 0.4728),
    std=(0.1980, 0.2010, 0.1970),
    held_out=3_000,
    note="test_first5000_32x32.mat is read too, and named so: the first 5,000 test images, "
    "reconstructed from public upscaled copies, exact up to rounding",
)


CIFAR10_CLASSES: Final = frozenset(
    {
        *("n02123045", "n02123394", "n02124075"),  # cats
        *("n02085620", "n02094433", "n02099601", "n02099712", "n02106662", "n02113799"),  # dogs
        *("n01641577", "n01644900"),  # frogs
        *("n01855672", "n02002724", "n02056570", "n02058221"),  # birds
        *("n02814533", "n03100240", "n04285008", "n03670208"),  # cars
        *("n03796401", "n03977966"),  # vans
        "n03662601",  # a boat
    }
)
"""WordNet ids of the classes of TinyImageNet that are classes of CIFAR-10 as well."""


def _read_tiny_imagenet(
    wnids: Path, _annotations: Path, _images: Path, *, without: frozenset[str]
) -> Pictures:
    return read_tiny_imagenet_val(wnids.parent, wanted=lambda wnid: wnid not in without)


def _tiny_imagenet_part(without: frozenset[str]) -> dict[str, Part]:
    """The validation part without some of its classes."""
    folder = "tiny-imagenet-200"
    files = f"{folder}/wnids.txt", f"{folder}/val/val_annotations.txt", f"{folder}/val/images"
    form = Form("val", files, partial(_read_tiny_imagenet, without=without), slow=True)
    return {"val": Part(50 * (200 - len(without)), (Role.OOD_TEST,), (form,))}


_TINY_IMAGENET = DataSet(
    name="tiny-imagenet",
    title="TinyImageNet",
    variant="all 200 classes",
    summary="validation images of 200 ImageNet classes, resized to 32×32",
    shape=_COLOUR,
    num_classes=200,
    class_names=None,
    licence="not stated; of ImageNet, for non-commercial research and education",
    citation="Stanford CS231N: Tiny ImageNet visual recognition challenge, 2015",
    homepage="http://cs231n.stanford.edu",
    files=(
        RemoteFile(
            "tiny-imagenet-200.zip",
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            248100043,
            ("tiny-imagenet-200/wnids.txt", "tiny-imagenet-200/val"),
        ),
    ),
    parts=_tiny_imagenet_part(frozenset()),
    note=f"64×64 made 32×32 with a Lanczos filter; class names are WordNet ids; {_NO_CONSTANTS}",
    overlaps={
        "cifar10": "22 of its 200 classes, 11 % of its images, are classes of CIFAR-10, so that "
        "they are no OOD data and make every score look worse; numbers with them stay until the "
        "runs are trained again without them"
    },
)

# A set of some classes is an entry of its own, so that records never mix numbers of two of them.
_TINY_IMAGENET_178 = replace(
    _TINY_IMAGENET,
    name="tiny-imagenet-178",
    variant="178 classes",
    summary="the validation images without the 22 classes that CIFAR-10 has, too",
    num_classes=178,
    parts=_tiny_imagenet_part(CIFAR10_CLASSES),
    overlaps={},
)


def _read_textures(folder: Path) -> Pictures:
    return Pictures(read_image_folder(folder, size=32, crop=True).images)


_DTD = DataSet(
    name="dtd",
    title="DTD",
    summary="textures: OOD validation for CIFAR-10",
    shape=_COLOUR,
    num_classes=47,
    class_names=None,
    licence="not stated; made available for research purposes",
    citation="M. Cimpoi, S. Maji, I. Kokkinos, S. Mohamed, A. Vedaldi: Describing textures in the "
    "wild. CVPR 2014",
    homepage="https://www.robots.ox.ac.uk/~vgg/data/dtd",
    files=(
        RemoteFile(
            "dtd-r1.0.1.tar.gz",
            "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
            "sha256:e42855a52a4950a3b59612834602aa253914755c95b0cff9ead6d07395f8e205",
            625239812,
            ("dtd/images",),
        ),
    ),
    parts={
        "textures": Part(
            5_640,
            (Role.OOD_VALIDATION,),
            (
                Form("textures", ("dtd/images",), _read_textures, slow=True),
                Form("textures, 10 of 47 classes", ("dtd32/dtd10_32.npz",), read_array_pictures),
            ),
        )
    },
    note="the largest square in the middle of each picture, made 32×32 with a Lanczos filter; "
    f"{_NO_CONSTANTS}",
)


# MNIST-C and CIFAR-10-C. A part is one type (of CIFAR-10-C: at one severity, `fog-3`). It is sought
# in the published folder, then in the folder that `gemfi data corrupt` writes, and else made from
# the test images at hand and kept in the cache. What was made is named so.

GENERATED: Final = "generated"
"""The folder, below the data folder, where `gemfi data corrupt` writes."""

MADE_SEED: Final = 0
"""Of the corruptions that are made here."""

MADE_VERSION: Final = 1
"""Raise it when a corruption gives other pixels, so that what is in the cache is made anew."""

PUBLISHED_FOLDERS: Final = {"mnist": "mnist_c", "cifar10": "CIFAR-10-C"}
"""Name of the clean set -> the folder of its published corruptions."""

# Listed, and not asked of `gemfi.data.corruptions`, which takes its time to import.
_MNIST_TYPES: Final = """
shot_noise impulse_noise glass_blur motion_blur shear scale rotate brightness translate stripe
fog spatter dotted_line zigzag canny_edges
"""
_CIFAR_MD5: Final = {
    name: f"md5:{digits}"
    for name, digits in _lines("""
    gaussian_noise    ecaf8b9a2399ffeda7680934c33405fd
    shot_noise        3a7239bb118894f013d9bf1984be7f11
    impulse_noise     2090e01c83519ec51427e65116af6b1a
    defocus_blur      7d1322666342a0702b1957e92f6254bc
    glass_blur        7361fb4019269e02dbf6925f083e8629
    motion_blur       fffa5f852ff7ad299cfe8a7643f090f4
    zoom_blur         6ea8e63f1c5cdee1517533840641641b
    snow              bb238de8555123da9c282dea23bd6e55
    frost             31f6ab3bce1d9934abfb0cc13656f141
    fog               7b397314b5670f825465fbcd1f6e9ccd
    brightness        0a81ef75e0b523c3383219c330a85d48
    contrast          3c8262171c51307f916c30a3308235a8
    elastic_transform 9421657c6cd452429cf6ce96cc412b5f
    pixelate          0f14f7e2db14288304e1de10df16832f
    jpeg_compression  2b9cc4c864e0193bb64db8d7728f8187
    speckle_noise     ef00b87611792b00df09c0b0237a1e30
    gaussian_blur     c33370155bc9b055fb4a89113d3c559d
    spatter           8a5a3903a7f8f65b59501a6093b4311e
    saturate          1cfae0964219c5102abbb883e538cc56
    labels            c439b113295ed5254878798ffe28fd54
    """)
}
_CIFAR_TYPES: Final = [name for name in _CIFAR_MD5 if name != "labels"]
_SEVERITIES: Final = range(1, 6)


def _read_corrupted(images: Path, labels: Path, severity: int | None = None) -> Pictures:
    """A published array with its labels; of CIFAR-10-C, the fifth of it that has the severity."""
    pictures = read_array_pictures(images)
    y = read_npy(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) != len(pictures):
        raise InputError(
            f"{labels}: expected {len(pictures)} integers, one for each image of {images}, got "
            f"{y.shape} {y.dtype}"
        )
    rows = slice(None)
    if severity is not None:
        count, rest = divmod(len(pictures), len(_SEVERITIES))
        if rest:
            raise InputError(
                f"{images}: {len(pictures)} images are not five severities of the same set"
            )
        rows = slice((severity - 1) * count, severity * count)
    return Pictures(pictures.images[rows].copy(), y[rows].astype(np.int64))


def _make_corrupted(
    clean: Form, name: str, severity: int | None, family: str, *files: Path
) -> Pictures:
    from gemfi.data.corruptions import corrupt  # noqa: PLC0415 - slow to import

    pictures = clean.read(*files)
    images = torch.from_numpy(pictures.images)
    made = corrupt(images, name, severity, seed=MADE_SEED, family=family)
    return Pictures(made.numpy(), pictures.labels)


def _corrupted_part(clean: DataSet, name: str, severity: int | None) -> Part:
    label = name if severity is None else f"{name}-{severity}"
    generated = f"{label}, {GENERATED}"
    published = PUBLISHED_FOLDERS[clean.name]
    read = partial(_read_corrupted, severity=severity)
    names = (
        (f"{name}/test_images.npy", f"{name}/test_labels.npy")
        if severity is None
        else (f"{name}.npy", "labels.npy")
    )
    files = tuple(f"{published}/{file}" for file in names)
    contents = {file: _CIFAR_MD5[Path(file).stem] for file in files if severity is not None}
    written = tuple(f"{GENERATED}/{file}" for file in files)
    test = clean.parts["test"]
    made = tuple(
        Form(
            generated,
            form.files,
            partial(_make_corrupted, form, name, severity, clean.name),
            slow=True,
            made=True,
            version=MADE_VERSION,
        )
        for form in test.forms
    )
    forms = Form(label, files, read, contents), Form(generated, written, read, made=True), *made
    return Part(test.count, (Role.TEST,), forms)


_MNIST_C = DataSet(
    name="mnist-c",
    title="MNIST-C",
    summary="MNIST's test images under 15 corruptions",
    shape=_GREY,
    num_classes=10,
    class_names=_MNIST.class_names,
    licence="CC BY 4.0",
    citation="N. Mu, J. Gilmer: MNIST-C: a robustness benchmark for computer vision. "
    "arXiv:1906.02337, 2019",
    homepage="https://github.com/google-research/mnist-c",
    files=(
        RemoteFile(
            "mnist_c.zip",
            "https://zenodo.org/record/3239543/files/mnist_c.zip",
            "sha256:af9ee8c6a815870c7fdde5af84c7bf8db0bcfa1f41056db83871037fba70e493",
            246661575,
            tuple(f"mnist_c/{name}" for name in _MNIST_TYPES.split()),
        ),
    ),
    parts={name: _corrupted_part(_MNIST, name, None) for name in _MNIST_TYPES.split()},
    mean=_MNIST.mean,
    std=_MNIST.std,
    note="the published folder `identity` is left out: it is MNIST itself",
)

_CIFAR10_C = DataSet(
    name="cifar10-c",
    title="CIFAR-10-C",
    summary="CIFAR-10's test images under 19 corruptions at 5 severities",
    shape=_COLOUR,
    num_classes=10,
    class_names=_CIFAR10.class_names,
    licence="CC BY 4.0",
    citation="D. Hendrycks, T. Dietterich: Benchmarking neural network robustness to common "
    "corruptions and perturbations. ICLR 2019",
    homepage="https://github.com/hendrycks/robustness",
    files=(
        RemoteFile(
            "CIFAR-10-C.tar",
            "https://zenodo.org/record/2535967/files/CIFAR-10-C.tar",
            "sha256:c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
            2918471680,
            ("CIFAR-10-C",),
        ),
    ),
    parts={
        f"{name}-{severity}": _corrupted_part(_CIFAR10, name, severity)
        for name in _CIFAR_TYPES
        for severity in _SEVERITIES
    },
    mean=_CIFAR10.mean,
    std=_CIFAR10.std,
)


DATA_SETS: Final[Mapping[str, DataSet]] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            _MNIST,
            _FASHION_MNIST,
            _KMNIST,
            _NOTMNIST,
            _CIFAR10,
            _CIFAR100,
            _SVHN,
            _TINY_IMAGENET,
            _TINY_IMAGENET_178,
            _DTD,
            _MNIST_C,
            _CIFAR10_C,
        )
    }
)
"""Name of a data set -> its entry. Read-only."""


@dataclass(frozen=True)
class OodSets:
    """The OOD sets of an ID set: for tuning, and to report."""

    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()


OOD_SETS: Final[Mapping[str, OodSets]] = MappingProxyType(
    {
        "mnist": OodSets(("notmnist",), ("kmnist", "fashion-mnist")),
        "fashion-mnist": OodSets(("notmnist",), ("mnist", "kmnist")),
        "kmnist": OodSets(("notmnist",), ("mnist", "fashion-mnist")),
        "cifar10": OodSets(("dtd",), ("svhn", "cifar100", "tiny-imagenet-178")),
        "cifar100": OodSets(("dtd",), ("svhn", "cifar10", "tiny-imagenet")),
        "svhn": OodSets(("dtd",), ("cifar10", "cifar100", "tiny-imagenet")),
    }
)
"""ID set -> its OOD sets. The first and the fourth are the paper's, with OOD validation sets."""
