"""The process group, and which device each rank is bound to."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl.errors import UserError
from rffl_pl.exchange import Exchange
from rffl_pl.federation import Federation


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


class FederatedStrategy(DDPStrategy):
    """Ranks without gradient synchronisation: participants meet in the exchange alone.

    Args:
        accelerator: ``auto``, ``gpu``, ``cuda`` or ``cpu``.

    Raises:
        UserError: If a GPU is asked for and there is none.
    """

    def __init__(self, accelerator: str = "auto") -> None:
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        gpus = torch.cuda.device_count()
        devices, backend = plan_devices(accelerator, ranks, gpus)
        if devices[0].type == "cuda" and backend == "gloo":
            rank_zero_warn(
                f"{ranks} ranks share {gpus} GPU(s): the exchange runs on gloo instead of NCCL. With "
                f"--nproc_per_node={gpus} each rank has a GPU of its own and hosts several participants."
            )
        super().__init__(
            parallel_devices=devices,
            process_group_backend=backend,
            # Ranks wait for the slowest one's local training; whoever fails ends the others through torchrun.
            timeout=timedelta(hours=12),
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

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Rank 0 reads the checkpoint, in which nothing can run code, and hands every rank its participants' part.

        Raises:
            UserError: If the file is missing, truncated or no checkpoint of this package.
        """
        if self.global_rank != 0:
            return self.exchange.scatter_objects([])
        checkpoint = self._read_checkpoint(checkpoint_path)
        mine, *others = self.exchange.blocks
        parts = [_part(checkpoint, mine, server=True), *(_part(checkpoint, block) for block in others)]
        return self.exchange.scatter_objects(parts)

    def _read_checkpoint(self, path: Any) -> dict[str, Any]:
        try:
            checkpoint = super().load_checkpoint(path, weights_only=True)
        except FileNotFoundError as error:
            raise UserError(f"Expected a checkpoint at --ckpt_path {path}, but there is no such file.") from error
        except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError, KeyError) as error:
            raise UserError(
                f"Expected --ckpt_path {path} to be a whole checkpoint, but it cannot be read "
                f"({type(error).__name__}): it is truncated, damaged or no checkpoint; take an earlier one."
            ) from error
        if not isinstance(checkpoint, dict) or "federation" not in checkpoint:
            raise UserError(
                f"Expected --ckpt_path {path} to be a checkpoint of rffl_pl, but it holds no federation; exported "
                "weights of single participants load into the bare network only."
            )
        return checkpoint


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


def _part(checkpoint: dict[str, Any], block: Sequence[int], server: bool = False) -> dict[str, Any]:
    """What a rank may have of a checkpoint: the participants that it hosts and, on rank 0, the server's part."""
    saved = checkpoint["federation"]
    mine = {i: state for i, state in saved["participants"].items() if i in block}
    if server:
        return {**checkpoint, "federation": {**saved, "participants": mine}}
    members = {i: member for i, member in saved["members"].items() if i in block}
    rest = {key: value for key, value in checkpoint.items() if key != "server"}
    return {**rest, "federation": {**saved, "participants": mine, "members": members}}
