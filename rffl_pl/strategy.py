"""The process group, and which device each rank is bound to."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl import launch
from rffl_pl.errors import UserError
from rffl_pl.exchange import Exchange
from rffl_pl.federation import Federation
from rffl_pl.runs.checkpoint import load, write

T = TypeVar("T")


def plan_devices(accelerator: str, ranks: int, gpus: int) -> tuple[list[torch.device], Literal["nccl", "gloo"]]:
    """The device of every rank of this node and the process group's backend.

    Args:
        accelerator: ``auto``, ``gpu``, ``cuda`` or ``cpu``.
        ranks: Ranks on this node.
        gpus: GPUs on this node.

    Returns:
        One GPU for each rank with NCCL if there are enough; GPUs shared in turn with gloo if there are not, since NCCL
        hangs when two ranks share one; else the CPU with gloo.

    Raises:
        UserError: If a GPU is asked for and there is none.
    """
    if accelerator not in ("auto", "gpu", "cuda", "cpu"):
        raise UserError(f"Expected --trainer.accelerator to be auto, gpu, cuda or cpu, but got {accelerator}.")
    if accelerator in ("gpu", "cuda") and gpus == 0:
        raise UserError(
            f"Expected a GPU for --trainer.accelerator {accelerator}, but this machine shows none; give "
            "--trainer.accelerator auto to train on the CPU."
        )
    if accelerator == "cpu" or gpus == 0:
        return [torch.device("cpu")] * ranks, "gloo"
    if ranks <= gpus:
        return [torch.device("cuda", i) for i in range(ranks)], "nccl"
    return [torch.device("cuda", i % gpus) for i in range(ranks)], "gloo"


# Ranks wait for the slowest one's local training; whoever fails ends the others through torchrun.
_PATIENCE = timedelta(hours=12)


class FederatedStrategy(DDPStrategy):
    """Ranks without gradient synchronisation: participants meet in the exchange alone.

    Args:
        accelerator: ``auto``, ``gpu``, ``cuda`` or ``cpu``.

    Raises:
        UserError: If a GPU is asked for and there is none.
    """

    def __init__(self, accelerator: str = "auto") -> None:
        ranks = launch.local_world_size()
        gpus = torch.cuda.device_count()
        devices, backend = plan_devices(accelerator, ranks, gpus)
        if devices[0].type == "cuda" and backend == "gloo":
            rank_zero_warn(
                f"{ranks} ranks share {gpus} GPU(s): the exchange runs on gloo instead of NCCL. With "
                f"--nproc_per_node={gpus} each rank has a GPU of its own and hosts several participants."
            )
        super().__init__(
            parallel_devices=devices,
            # With gloo beside NCCL what lies in the CPU's memory does not travel over the GPU.
            process_group_backend="cpu:gloo,cuda:nccl" if backend == "nccl" else backend,
            timeout=_PATIENCE,
        )

    @property
    def root_device_type(self) -> str:
        """``cuda`` or ``cpu``."""
        assert self.parallel_devices is not None
        return self.parallel_devices[0].type

    def exchange_for(self, federation: Federation, dimension: int) -> Exchange:
        """This rank's side of the exchange of vectors ``[dimension]``."""
        blocks = [federation.hosted_by(rank, self.world_size) for rank in range(self.world_size)]
        self.exchange = Exchange(blocks, self.global_rank, self.root_device, dimension)
        return self.exchange

    def setup_distributed(self) -> None:
        """As the base class does; alone it meets itself in memory, not on a port that may be taken."""
        if launch.world_size() == 1 and not dist.is_initialized():
            backend = self._get_process_group_backend()
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=_PATIENCE)
        super().setup_distributed()

    def setup(self, trainer: Any) -> None:
        """As the base class does, less the gradient synchronisation and less copying rank 0's weights everywhere."""
        assert self.accelerator is not None
        assert self.model is not None
        self.accelerator.setup(trainer)
        self.precision_plugin.convert_module(self.model)
        self.model_to_device()
        if trainer.state.fn == TrainerFn.FITTING:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Every rank writes its own participants' part, rank 0 the rest."""
        write(checkpoint, Path(filepath), first=self.is_global_zero, meet=self.barrier)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Every rank reads its own participants' part, rank 0 the server's too; nothing in them can run code.

        Raises:
            UserError: On every rank, if one of them finds no whole checkpoint of this package.
        """
        return self.together(lambda: load(Path(checkpoint_path), self.exchange.hosted, server=self.is_global_zero))

    def together(self, step: Callable[[], T]) -> T:
        """Take a step on every rank, and hear whether the others could.

        Raises:
            UserError: On every rank, if one of them meets a user's mistake.
        """
        try:
            done = step()
        except UserError as error:
            self._refuse_together(str(error))
            raise
        self._refuse_together(None)
        return done

    def _refuse_together(self, mistake: str | None) -> None:
        """Raise what the first rank with a mistake found, on all of them: the others would wait for it."""
        found = [mistake] * self.world_size
        if self.world_size > 1:
            dist.all_gather_object(found, mistake)
        for sentence in found:
            if sentence is not None:
                raise UserError(sentence)


def leave_process_group() -> None:
    """Wait for all ranks and close the connections.

    A gloo process that exits with them open can be aborted by its own threads, and a rank that exits early takes the
    store with it. All work is done by then: a process that cannot close them ends all the same.
    """
    if not dist.is_available() or not dist.is_initialized():
        return
    dist.barrier()
    if dist.get_backend() != "gloo":
        dist.destroy_process_group()
        return
    closing = threading.Thread(target=dist.destroy_process_group, daemon=True)
    closing.start()
    closing.join(timeout=20)
    if closing.is_alive():  # seen once, with torch 2.3
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
