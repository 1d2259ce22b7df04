"""How much of the test set every participant calls positive, and how well it ranks it, round by round.

    python -m rffl_pl fit --config configs/mr.yaml --trainer.callbacks+=benchmarks.swing.PositiveRate ...

For two classes, in one process.
"""

from __future__ import annotations

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torchmetrics.functional.classification import binary_auroc

from rffl_pl.datamodules.reading import Batches
from rffl_pl.module import FederatedModule


class PositiveRate(Callback):
    """Prints, after every round, the share of class 1 among the predictions and the area under the ROC curve."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        participants = range(len(pl_module.cohort.participants))
        margins, labels = [], []
        with torch.inference_mode():
            batches = pl_module.data.test_dataloader()
            assert isinstance(batches, Batches)
            for x, y in batches:
                logits = torch.stack([pl_module.cohort.logits(x, i) for i in participants])
                margins.append(logits[..., 1] - logits[..., 0])
                labels.append(y)
        rows, truth = torch.cat(margins, dim=1), torch.cat(labels)
        rates = " ".join(f"{float((row > 0).float().mean()):.2f}" for row in rows)
        areas = " ".join(f"{float(binary_auroc(row, truth)):.3f}" for row in rows)
        print(f"round {pl_module.round}: positive {rates}; area under the curve {areas}", flush=True)
