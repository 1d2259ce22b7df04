"""Callbacks that look at, or break, a run on ranks of its own; given by class path on the command line."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning_utilities.core.apply_func import apply_to_collection

from rffl_pl.adversaries import Adversary, Situation
from rffl_pl.callbacks import ReputationExchange, RunReport
from rffl_pl.callbacks.find import find
from rffl_pl.errors import UserError
from rffl_pl.functional import blocks
from rffl_pl.module import FederatedModule
from rffl_pl.servers import RFFL, FedAvg, Verdict
from rffl_pl.servers.evidence import Evidence


class Witness(Callback):
    """Writes what every rank holds after an exchange to ``<folder>/rank_<r>.json``."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        exchange = find(trainer, ReputationExchange)
        assert exchange is not None
        assert isinstance(exchange.server, RFFL)
        dimension = pl_module.cohort.weights.shape[1]
        gc.collect()
        held = [x for x in gc.get_objects() if torch.is_tensor(x) and x.numel() and x.numel() % dimension == 0]
        by_memory = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() // (4 * dimension) for x in held}
        seen = {
            "hosted": list(pl_module.cohort.participants),
            "rows": sum(by_memory.values()),
            "verdict": exchange.verdict is not None,
            "traffic": exchange.traffic is not None,
            "reputations": exchange.server.reputations is not None,
            "known_members": sorted(pl_module.exchange.active),
            "accuracy": float(trainer.callback_metrics["accuracy/mean"]),
        }
        (self.folder / f"rank_{trainer.global_rank}.json").write_text(json.dumps(seen))


class Crash(Callback):
    """Fails on rank 1 in the second round."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_rank == 1 and trainer.current_epoch == 1:
            raise RuntimeError("rank 1 gave up")


class Mistaken(Callback):
    """A user's mistake that rank 1 alone sees, while the others wait for it."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_rank == 1:
            raise UserError("Expected this of rank 1 alone.")


class KeptRFFL(RFFL):
    """RFFL that keeps what every member downloads, on rank 0."""

    downloads: ClassVar[list[dict[int, torch.Tensor]]] = []

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)
        staying = [i for i in evidence.asked.tolist() if verdict.members[i]]
        # A copy of it may judge a round once more.
        self.downloads[evidence.round :] = [{i: verdict.download(i).clone() for i in staying}]
        return verdict


_RECEIVING = (
    "all_gather_single", "all_gather_single_coalesced", "all_to_all_single", "allgather", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "_allgather_base", "allreduce", "allreduce_coalesced", "alltoall",
    "alltoall_base", "broadcast", "gather", "gather_into_tensor", "gather_single", "recv", "recv_anysource", "reduce",
    "reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced",
    "_reduce_scatter_base", "scatter",
)  # fmt: skip
"""Every way in which a process group brings somebody a tensor: the first argument is where it arrives."""


class Received(Callback):
    """Keeps every tensor that the process group brings this rank in ``<folder>/received_<r>.pt``."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.when = "before"
        self.seen: list[tuple[str, str, torch.Tensor]] = []
        KeptRFFL.downloads.clear()
        group = dist.ProcessGroup
        self._methods = {name: getattr(group, name) for name in _RECEIVING if hasattr(group, name)}
        for name, method in self._methods.items():
            setattr(group, name, self._recorded(name, method))

    def _recorded(self, name: str, method: Any) -> Any:
        def keep(tensor: torch.Tensor) -> None:
            self.seen.append((self.when, name, tensor.detach().clone()))

        def recorded(group: Any, *args: Any, **options: Any) -> Any:
            work = method(group, *args, **options)
            work.wait()
            apply_to_collection(args[0], torch.Tensor, keep)
            return work

        return recorded

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.when = f"round {trainer.current_epoch}"

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.when = "after"

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, FederatedModule)
        for name, method in self._methods.items():
            setattr(dist.ProcessGroup, name, method)
        report = find(trainer, RunReport)
        assert report is not None
        kept = {
            "hosted": list(pl_module.cohort.participants),
            "dimension": pl_module.cohort.weights.shape[1],
            "seen": self.seen,
            "downloads": KeptRFFL.downloads,
            "accuracy": [entry.mean_accuracy for entry in report.history],
        }
        torch.save(kept, self.folder / f"received_{trainer.global_rank}.pt")


class SmallBlocks(Callback):
    """Has uploads read in small blocks and spans, so that a small model spreads over several ranks."""

    def __init__(self) -> None:
        blocks._ENTRIES, blocks.SPAN = 4096, 256


class Unfit(Adversary):
    """Uploads its update, then one with a NaN, then zeros."""

    def upload(self, situation: Situation) -> torch.Tensor:
        kind = situation.round % 3
        sent = torch.zeros_like(situation.update) if kind == 2 else situation.update.clone()
        if kind == 1:
            sent[len(sent) // 2] = torch.nan
        return sent


class Contrary(FedAvg):
    """FedAvg that rounds otherwise on rank 1, as another processor may."""

    def weigh(self, evidence: Evidence) -> torch.Tensor:
        return super().weigh(evidence) * (1 + 1e-15 * dist.get_rank())
