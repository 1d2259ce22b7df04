"""One file per data set; the base class turns any map-style dataset of (x, y) into a federation's shards."""

from rffl_pl.datamodules.augmenting import Augmentation, CropFlip
from rffl_pl.datamodules.base import FederatedDataModule
from rffl_pl.datamodules.cifar10 import CIFAR10, CIFAR100
from rffl_pl.datamodules.digits import Digits
from rffl_pl.datamodules.emnist import EMNIST
from rffl_pl.datamodules.hf_dataset import HFDataset
from rffl_pl.datamodules.hf_text import HFText
from rffl_pl.datamodules.image_folder import ImageFolder
from rffl_pl.datamodules.mnist import MNIST, FashionMNIST
from rffl_pl.datamodules.reviews import MR, SST
from rffl_pl.datamodules.sources import Sources
from rffl_pl.datamodules.splits import CLA, DIR, GROUPS, MIX, OWN, POW, SHARDS, UNI, Pool, Split
from rffl_pl.datamodules.svhn import SVHN
from rffl_pl.datamodules.table_file import TableFile
from rffl_pl.datamodules.text import TextDataModule, Texts
from rffl_pl.datamodules.text_file import TextFile

__all__ = [
    "CIFAR10", "CIFAR100", "CLA", "DIR", "EMNIST", "GROUPS", "MIX", "MNIST", "MR", "OWN", "POW", "SHARDS", "SST",
    "SVHN", "UNI", "Augmentation", "CropFlip", "Digits", "FashionMNIST", "FederatedDataModule", "HFDataset", "HFText",
    "ImageFolder", "Pool", "Sources", "Split", "TableFile", "TextDataModule", "TextFile", "Texts",
]  # fmt: skip
