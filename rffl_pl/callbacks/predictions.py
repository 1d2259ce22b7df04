"""Predictions of every participant's own model."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter
from torch import Tensor

from rffl_pl.callbacks.agreement import named_alike
from rffl_pl.module import FederatedModule
from rffl_pl.runs import RunFolder
from rffl_pl.runs.shown import batches
from rffl_pl.strategy import FederatedStrategy


class PredictionWriter(BasePredictionWriter):
    """Writes ``predictions/participant_<i>.csv``.

    Per example its index, its source if the data says where it comes from, the most probable class, its name if classes
    have names, and every class's probability.
    Every rank writes the participants it hosts.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(write_interval="epoch")
        self.folder = RunFolder(folder)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Have the folder named as rank 0's."""
        super().setup(trainer, pl_module, stage)
        self.folder = named_alike(self.folder, trainer)

    def write_on_epoch_end(
        self, trainer: Trainer, pl_module: LightningModule, predictions: Any, batch_indices: Any
    ) -> None:
        assert isinstance(pl_module, FederatedModule)
        for participant, rows in _by_participant(pl_module.cohort.participants, list(predictions)):
            places = pl_module.data.predicted_places(participant, trainer.predict_dataloaders)
            self._write(self.folder.predictions_file(participant), rows.cpu(), pl_module.data.class_names, places)
        strategy = trainer.strategy
        strategy.barrier("predictions")
        assert isinstance(strategy, FederatedStrategy)
        if strategy.disks.at(self.folder.path).leads:
            total = pl_module.federation.total
            here = all(self.folder.predictions_file(i).is_file() for i in range(total))
            whose = f"{total} participants" if here else "this machine's participants"
            much = batches(trainer.limit_predict_batches)
            few = "" if much is None else f"predicted {much} at most: the first ones, as the trainer is told\n"
            print(f"{few}predictions of {whose}: {self.folder.predictions_file(0).parent}", flush=True)

    @staticmethod
    def _write(path: Path, probabilities: Tensor, names: Sequence[str], places: Sequence[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            source_column, label_column = ["source"] if places else [], ["label"] if names else []
            columns = (f"p_{c}" for c in range(probabilities.shape[1]))
            writer.writerow(["example", *source_column, "class", *label_column, *columns])
            best = probabilities.argmax(1).tolist()
            for example, (label, row) in enumerate(zip(best, probabilities.tolist(), strict=True)):
                source, name = [places[example]] if places else [], [names[label]] if names else []
                writer.writerow([example, *source, label, *name, *(f"{p:.6g}" for p in row)])


def _by_participant(
    participants: Sequence[int], batches: Sequence[Tensor] | Sequence[dict[int, Tensor]]
) -> Iterator[tuple[int, Tensor]]:
    """Every participant's probabilities ``[examples, C]``, of the same examples for all or of each's own."""
    for index, i in enumerate(participants):
        of_one = [batch.get(i) if isinstance(batch, dict) else batch[index] for batch in batches]
        yield i, torch.cat([rows for rows in of_one if rows is not None])
