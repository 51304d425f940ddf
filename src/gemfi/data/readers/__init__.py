"""Readers of file formats: from a path to arrays in memory.

Each is a pure function; nothing is cached, written or downloaded. A file that is not what it should
be is an `InputError` that names the file and the offset, the line or the count. No reader unpickles
anything, and none allocates what a header claims before comparing it with what is there.
"""

from __future__ import annotations

from gemfi.data.readers.arrays import read_array_pictures, read_npy, read_npz
from gemfi.data.readers.base import Pictures, channels_first
from gemfi.data.readers.images import read_image_folder, read_tiny_imagenet_val
from gemfi.data.readers.published import (
    read_cifar10,
    read_cifar100,
    read_idx,
    read_idx_pictures,
    read_mat,
    read_svhn,
)
from gemfi.data.readers.tables import Table, read_csv, read_parquet

__all__ = [
    "Pictures",
    "Table",
    "channels_first",
    "read_array_pictures",
    "read_cifar10",
    "read_cifar100",
    "read_csv",
    "read_idx",
    "read_idx_pictures",
    "read_image_folder",
    "read_mat",
    "read_npy",
    "read_npz",
    "read_parquet",
    "read_svhn",
    "read_tiny_imagenet_val",
]
