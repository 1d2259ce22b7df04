"""What a run leaves behind: metrics of every round, a table, figures and every participant's weights."""

from __future__ import annotations

import json
import math
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

from rffl_pl.callbacks import figures
from rffl_pl.callbacks.find import find
from rffl_pl.callbacks.records import Round, Summary, percent
from rffl_pl.callbacks.reputation import ReputationExchange
from rffl_pl.callbacks.standalone import StandaloneReference
from rffl_pl.federation import Federation
from rffl_pl.metrics import CollaborationGain, Detection, Fairness, RankFairness
from rffl_pl.module import FederatedModule, Scores


class RunReport(Callback):
    """Collects, logs and reports; only rank 0 logs.

    Args:
        folder: The run folder.
        draw: Whether to draw pictures at the end.

    Attributes:
        history: Every round so far, on rank 0.
    """

    def __init__(self, folder: str, draw: bool = True) -> None:
        self.folder = Path(folder)
        self.draw = draw
        self.history: list[Round] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the round the x-axis of W&B's charts; end what was interrupted after its last round."""
        assert isinstance(pl_module, FederatedModule)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger) and trainer.is_global_zero:
                logger.experiment.define_metric("*", step_metric="round")
        if pl_module.round and pl_module.round == trainer.max_epochs:
            self.on_train_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gather the round's metrics on rank 0 and log them."""
        assert isinstance(pl_module, FederatedModule)
        rows = self._rows(pl_module)
        pl_module.watched = {}
        if not trainer.is_global_zero:
            return
        exchange = find(trainer, ReputationExchange)
        assert exchange is not None
        this = self._round(exchange, pl_module, rows)
        self.history.append(this)
        self._warn(this, pl_module.federation)
        for logger in trainer.loggers:
            logger.log_metrics(this.metrics(), step=this.number)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the final models and leave the run folder complete."""
        assert isinstance(pl_module, FederatedModule)
        data = pl_module.data
        final = self._gathered(pl_module, pl_module.score(data.test_dataloader(), pl_module.cohort))
        folder = Path(trainer.strategy.broadcast(str(self.folder)))
        self._export_weights(pl_module, folder / "weights")
        if not trainer.is_global_zero or not self.history:
            return
        summary = self._summary(trainer, pl_module.federation, data.examples, final)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.json").write_text(json.dumps(asdict(summary), indent=1) + "\n")
        print(f"\n{summary.table()}\nrun folder: {folder}", flush=True)
        for logger in trainer.loggers:
            _log_summary(logger, summary)
        if self.draw:
            figures.draw(folder, [asdict(entry) for entry in self.history], asdict(summary))
        for logger in trainer.loggers:
            _say_where(logger)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Tell whoever interrupted the run how to go on."""
        if not isinstance(exception, KeyboardInterrupt | SIGTERMException) or not trainer.is_global_zero:
            return
        if trainer.state.fn != TrainerFn.FITTING:
            return
        own = sorted((self.folder / "checkpoints").glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
        newest = own[-1] if own else trainer.ckpt_path  # a resumed run may not have come to one of its own
        rest = (
            f"go on with: --config {self.folder / 'config.yaml'} --ckpt_path {newest}"
            if newest
            else "there is no checkpoint to go on from"
        )
        print(f"\nInterrupted after round {len(self.history)}; {rest}", file=sys.stderr, flush=True)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Outside of training, print every participant's accuracy."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._print_scores(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._print_scores(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint.setdefault("server", {})["history"] = [asdict(entry) for entry in self.history]

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self.history = [Round(**entry) for entry in checkpoint.get("server", {}).get("history", [])]

    @staticmethod
    def _gathered(module: FederatedModule, scores: Scores) -> dict[str, Tensor]:
        """Every measure of every participant, ``[P]`` each, on rank 0; NaN for what was not measured."""
        names = ("accuracy", "loss", "train_loss", "target_accuracy", "attack_success")
        unknown = torch.full((len(module.cohort.participants),), torch.nan)
        rows = torch.stack([scores.get(name, unknown).cpu() for name in names], dim=1)
        gathered = module.exchange.gather_rows(rows.to(module.exchange.device)).cpu()
        return dict(zip(names, gathered.unbind(1), strict=True))

    def _rows(self, module: FederatedModule) -> dict[str, Tensor]:
        """What was measured in a round, on rank 0."""
        losses = [module.losses.get(i) for i in module.cohort.participants]
        # NaN stands for "did not train", so a loss that is not finite shows as infinite.
        train_loss = torch.tensor([math.nan if x is None else x if math.isfinite(x) else math.inf for x in losses])
        return self._gathered(module, {**module.watched, "train_loss": train_loss})

    @staticmethod
    def _round(exchange: ReputationExchange, module: FederatedModule, rows: dict[str, Tensor]) -> Round:
        entry = Round(
            number=module.round,
            honest=module.federation.honest,
            members=exchange.server.members.tolist(),
            **{name: values.tolist() for name, values in rows.items()},
        )
        if exchange.verdict is not None and exchange.traffic is not None:
            verdict, traffic = exchange.verdict, exchange.traffic
            entry.removed, entry.set_aside = list(verdict.removed), list(verdict.set_aside)
            entry.weight, entry.similarity = verdict.weights.tolist(), verdict.similarities.tolist()
            entry.reputation, entry.quota = verdict.reputations.tolist(), verdict.quotas.tolist()
            entry.bytes_up, entry.bytes_down = traffic.up, traffic.down
        return entry

    @staticmethod
    def _warn(this: Round, federation: Federation) -> None:
        trained = [i for i in range(federation.total) if not math.isnan(this.train_loss[i])]
        diverged = {i for i in trained if math.isinf(this.train_loss[i])}
        for i in sorted(diverged | set(this.set_aside)):
            what = (
                "training loss is not finite: it goes on from where it stood before the round, and its upload is set "
                "aside; a smaller learning rate may help"
                if i in diverged
                else "upload is set aside: it is not finite, too long to compute with or of another shape"
            )
            warnings.warn(f"Round {this.number}: participant {i}'s {what}.", stacklevel=2)
        for i in this.removed:
            warnings.warn(
                f"Round {this.number}: participant {i} is removed: its reputation fell below the threshold (similarity "
                f"{this.similarity[i]:.3f}, weight {this.weight[i]:.3f}).{_orthogonality(this)}",
                stacklevel=2,
            )

    def _summary(
        self, trainer: Trainer, federation: Federation, examples: list[int], final: dict[str, Tensor]
    ) -> Summary:
        honest, total = federation.honest, federation.total
        reference = find(trainer, StandaloneReference)
        alone = reference.accuracies if reference is not None else None
        accuracy = final["accuracy"]
        last = self.history[-1]
        unknown: list[float | None] = [None] * total
        removed = {i: entry.number for entry in self.history for i in entry.removed}
        detection = Detection()
        rounds = torch.tensor([removed.get(i, math.nan) for i in range(total)])
        detection.update(rounds, torch.arange(total) >= honest)
        precision, recall, _ = (_defined(value.item()) for value in detection.compute())
        return Summary(
            rounds=last.number,
            honest=honest,
            examples=examples,
            standalone=[*(alone.tolist() if alone is not None else unknown[:honest]), *unknown[honest:]],
            final=accuracy.tolist(),
            reputation=[_defined(value) for value in last.reputation] or unknown,
            quota=[_defined(value) for value in last.quota] or unknown,
            removed_in_round=[removed.get(i) for i in range(total)],
            mean=accuracy[:honest].mean().item(),
            maximum=accuracy[:honest].max().item(),
            precision=precision,
            recall=recall,
            target_accuracy=_defined(final["target_accuracy"][:honest].mean().item()),
            attack_success=_defined(final["attack_success"][:honest].mean().item()),
            **_compared(alone, accuracy[:honest]),
        )

    @staticmethod
    def _export_weights(module: FederatedModule, folder: Path) -> None:
        """Every rank writes its participants' weights as plain state_dicts of the bare network."""
        folder.mkdir(parents=True, exist_ok=True)
        for index, participant in enumerate(module.cohort.participants):
            torch.save(module.cohort.network_state(index), folder / f"participant_{participant}.pt")

    def _print_scores(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        rows = self._rows(pl_module)
        if not trainer.is_global_zero:
            return
        honest = pl_module.federation.honest
        lines = ["participant  accuracy    loss"]
        accuracy, loss = rows["accuracy"][:honest], rows["loss"][:honest]
        lines += [
            f"{i:>11}  {percent(float(a)):>8}  {float(b):.4f}"
            for i, (a, b) in enumerate(zip(accuracy, loss, strict=True))
        ]
        mean, maximum = accuracy.mean().item(), accuracy.max().item()
        print("\n".join([*lines, f"mean {percent(mean)}  maximum {percent(maximum)}"]), flush=True)


def _orthogonality(this: Round) -> str:
    r"""Why somebody honest may be removed, where that is so.

    The squared cosines of orthogonal vectors to their sum add up to 1, those of m like ones to m.
    """
    total = sum(value * value for value in this.similarity if not math.isnan(value))
    if not total < 1.2:
        return ""
    return (
        f" The uploads are almost orthogonal (squared similarities add up to {total:.2f}), as with word embeddings: an "
        "upload is then like the aggregate only by its own weight in it, and whoever began with few examples stays "
        "light. --server.removal_from never keeps everybody."
    )


def _compared(alone: Tensor | None, final: Tensor) -> dict[str, float | None]:
    """What there is to say of standalone ``[N]`` and final accuracies ``[N]``."""
    if alone is None:
        return {"fairness": None}
    fairness, ranks, gain = Fairness(), RankFairness(), CollaborationGain()
    for metric in (fairness, ranks, gain):
        metric.update(alone, final)
    mean, spread = gain.compute()
    values = {"fairness": fairness.compute(), "rank_fairness": ranks.compute(), "gain": mean, "gain_spread": spread}
    return {name: _defined(value.item()) for name, value in values.items()}


def _log_summary(logger: Logger, summary: Summary) -> None:
    if isinstance(logger, WandbLogger):
        result = asdict(summary)
        numbers = {name: value for name, value in result.items() if not isinstance(value, list)}
        logger.experiment.summary.update({**numbers, "result": result})


def _say_where(logger: Logger) -> None:
    if isinstance(logger, WandbLogger) and logger.experiment.settings._offline:
        folder = Path(logger.experiment.dir).parent
        print(f"W&B run, offline: {folder}\nupload it with: wandb sync {folder}", flush=True)


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value
