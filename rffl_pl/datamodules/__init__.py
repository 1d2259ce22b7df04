"""One file per data set; the base class turns any map-style dataset of (x, y) into a federation's shards."""

from rffl_pl.datamodules.base import FederatedDataModule, Sources
from rffl_pl.datamodules.cifar10 import CIFAR10
from rffl_pl.datamodules.digits import Digits
from rffl_pl.datamodules.mnist import MNIST
from rffl_pl.datamodules.reviews import MR, SST
from rffl_pl.datamodules.splits import CLA, DIR, POW, UNI, Pool, Split
from rffl_pl.datamodules.text import TextDataModule, Texts
from rffl_pl.datamodules.text_file import TextFile

__all__ = [
    "CIFAR10", "CLA", "DIR", "MNIST", "MR", "POW", "SST", "UNI", "Digits", "FederatedDataModule", "Pool", "Sources",
    "Split", "TextDataModule", "TextFile", "Texts",
]  # fmt: skip
