"""Every data set of the registry. To add one, write its `DataSet` and list it here."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gemfi.data.registry.colour import CIFAR10, CIFAR100, DTD, SVHN
from gemfi.data.registry.corrupted import CIFAR10_C, MNIST_C
from gemfi.data.registry.grey import FASHION_MNIST, KMNIST, MNIST, NOTMNIST
from gemfi.data.registry.tiny_imagenet import TINY_IMAGENET, TINY_IMAGENET_178

DATA_SETS: Final = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            MNIST,
            FASHION_MNIST,
            KMNIST,
            NOTMNIST,
            CIFAR10,
            CIFAR100,
            SVHN,
            TINY_IMAGENET,
            TINY_IMAGENET_178,
            DTD,
            MNIST_C,
            CIFAR10_C,
        )
    }
)
"""Name of a data set -> its entry. Read-only."""
