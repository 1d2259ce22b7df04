"""Robust and Fair Federated Learning (Xu & Lyu 2021) with PyTorch Lightning and torch.distributed.

All that a program needs is here by its name; each is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_ROOMS = {
    "adversaries": "ALIE Adversary Backdoor DeltaWeights Fang FreeRider Imitation InnerProduct LabelFlip Mimic "
    "MinMax OmniscientAdversary OnOff Replay Rescale SignRandom Situation Sybil ValueInvert",
    "callbacks": "EndTogether Interruption PredictionWriter ReputationExchange RoundCallback RoundCheckpoint "
    "RoundProgress RunReport StandaloneReference",
    "datamodules": "Augmentation CIFAR10 CIFAR100 CropFlip EMNIST MNIST MR SST SVHN Digits FashionMNIST "
    "FederatedDataModule HFDataset HFText ImageFolder Sources Split TableFile TextDataModule TextFile Texts",
    "datamodules.splits": "CLA DIR GROUPS MIX OWN POW Pool SHARDS UNI",
    "errors": "UserError",
    "federation": "Federation",
    "models": "CIFAR10CNN MNISTCNN Perceptron TextCNN",
    "module": "FederatedModule",
    "training.objective": "LocalRound Objective",
    "runs": "Round RunFolder Summary",
    "servers": "AFL ARC CFFL CGSV FLAME IAFL NNM QFFL RFFL TERM Bucketing Bulyan CenteredClipping Consensus DnC "
    "Evidence FLTrust FedAvg FedMGDA FedOpt FoolsGold GeometricMedian Median MultiKrum NormBound Server SignSGD "
    "Standalone Task TrimmedMean Verdict",
    "strategy": "FederatedStrategy",
    "trainer": "federated_trainer",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
