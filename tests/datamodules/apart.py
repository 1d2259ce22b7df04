"""Data of which every participant has its own part, and who read which."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, TensorDataset

from rffl_pl.datamodules import Digits, FederatedDataModule, Sources
from rffl_pl.federation import Federation
from tests.own_data import Halves


def machines(files: Path, participants: int, ranks: int) -> list[Path]:
    """Copies of a folder beside it, one for each rank, with the ``train_<i>.csv`` of whom it hosts alone."""
    federation = Federation(participants=participants)
    folders = []
    for rank in range(ranks):
        folders.append(shutil.copytree(files, files.with_name(f"machine {rank}")))
        for i in {*range(participants)} - {*federation.hosted_by(rank, ranks)}:
            (folders[-1] / f"train_{i}.csv").unlink()
    return folders


class Apart(FederatedDataModule):
    """The digits as POW cuts them, each shard a data set of its own; who reads one says so in a file of ``seen``."""

    num_classes = 10

    def __init__(self, federation: Federation, *, seen: str, missing: int = -1, **options: Any) -> None:
        super().__init__(federation, **options)
        self.seen, self.missing = Path(seen), missing

    def load(self) -> Sources:
        self.cut = Digits(self.federation, examples_per_participant=40, adversary_examples=40)
        self.cut.setup("fit")
        assert self.cut.sources is not None
        return Sources(train=self.own, test=self.cut.sources.test, validation=self._part(self.cut.held_out))

    def own(self, participant: int) -> Dataset[Any]:
        """One participant's."""
        with (self.seen / f"{participant} by {os.environ.get('RANK', '0')}").open("a") as file:
            file.write("read\n")
        if participant == self.missing:
            raise FileNotFoundError("the disk is away")
        return self._part(self.cut.shards[participant])

    def _part(self, indices: torch.Tensor) -> TensorDataset:
        assert self.cut.sources is not None
        assert isinstance(self.cut.sources.train, TensorDataset)
        return TensorDataset(*self.cut.sources.train[indices])


class MeasuredApart(Apart):
    """Participant i is tested and watched on images of its own, 30 + 5 i and 20 + i of the digits.

    Where ``seen`` has a file ``common`` all are watched on the same ones; with a file ``turned`` participant 1 is
    tested on other images, with ``short`` on smaller ones, with ``few`` on none of zeros.
    """

    places = ("seen",)

    def load(self) -> Sources:
        common = super().load()
        test, watched = self._divided(common.test, 30, 5), self._divided(common.validation, 20, 1)
        for name, made in {"turned": _turned, "short": _short, "few": _few}.items():
            if (self.seen / name).exists():
                return Sources(train=common.train, test=_but_one(test, made), validation=watched)
        is_common = (self.seen / "common").exists()
        return Sources(train=common.train, test=test, validation=common.validation if is_common else watched)

    @staticmethod
    def _divided(everything: Any, first: int, more: int) -> Callable[[int], TensorDataset]:
        def own(participant: int) -> TensorDataset:
            start = 7 * participant
            return TensorDataset(*everything[start : start + first + more * participant])

        return own


def _but_one(own: Callable[[int], TensorDataset], made: Callable[..., TensorDataset]) -> Callable[[int], TensorDataset]:
    """The same but for participant 1's."""
    return lambda i: made(*own(i).tensors) if i == 1 else own(i)


def _turned(x: torch.Tensor, y: torch.Tensor) -> TensorDataset:
    return TensorDataset(-x, y)


def _short(x: torch.Tensor, y: torch.Tensor) -> TensorDataset:
    return TensorDataset(x.flatten(1)[:, :60], y)


def _few(x: torch.Tensor, y: torch.Tensor) -> TensorDataset:
    return TensorDataset(x[y != 0], y[y != 0])


class Groups(FederatedDataModule):
    """Participant i has 10 + i points, one at a time; of the options of its constructor some have what is wrong."""

    num_classes = 2

    def __init__(
        self,
        federation: Federation,
        *,
        validated: bool = True,
        common: bool = False,
        wrong: Any = None,
        own_test: Callable[[int], Dataset[Any]] | None = None,
        own_validation: Callable[[int], Dataset[Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(federation, **options)
        self.validated, self.common, self.wrong = validated, common, wrong
        self.own_test, self.own_validation = own_test, own_validation

    def load(self) -> Sources:
        train = Halves(80) if self.common else self.own
        validation = self.own_validation or (Halves(8) if self.validated else None)
        return Sources(train=train, test=self.own_test or Halves(20), validation=validation)

    def own(self, participant: int) -> Dataset[Any]:
        """One participant's."""
        return Halves(10 + participant) if participant != 1 or self.wrong is None else self.wrong
