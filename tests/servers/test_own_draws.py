"""What a rule or an attack of one's own draws at random: the same over ranks and interruptions, or refused."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.adversaries import Adversary, OmniscientAdversary, Situation
from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder
from rffl_pl.servers import Evidence, FedAvg, Verdict
from rffl_pl.servers.coordinates import Coordinates
from tests.cli.folders import Run, assert_same_bits
from tests.conftest import QUICK, only_run
from tests.functional.reference import uploads
from tests.ranks import forked
from tests.servers.tasks import shards, task

HERE = __name__
P, D = 4, 30


class Lottery(FedAvg):
    """Draws wherever it is asked, as torch, NumPy and Python do it, and goes by its round where participants are."""

    hands_models = True

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        return update + 0.01 * 0.5**self.round * torch.randn_like(update)

    def kept(self, update: Tensor) -> Tensor:
        return super().kept(update) + 0.01 * torch.randn_like(update)

    def pack(self, upload: Tensor) -> Tensor:
        return super().pack(upload + 0.01 * torch.randn_like(upload))

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        upload = super().unpack(payload, dimension)
        return upload + 0.01 * torch.randn_like(upload)

    def weigh(self, evidence: Evidence) -> Tensor:
        return super().weigh(evidence) * (torch.rand(len(evidence.senders)) + np.random.rand() + random.random())

    def model_for(self, participant: int) -> Tensor | None:
        assert self.model is not None
        return self.model + 0.01 * torch.randn_like(self.model)

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)

        def download(participant: int) -> Tensor:
            return verdict.download(participant) * (1 + 0.1 * torch.rand(()))

        return replace(verdict, download=download)


class Noisy(Adversary):
    """Draws from torch's own stream, also for whether it trains, and for what its success is measured on."""

    def trains_in(self, round_index: int) -> bool:
        return bool(torch.rand(()) < 0.5)

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"noisy": MulticlassAccuracy(num_classes)}

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x + torch.randn_like(x), y

    def upload(self, situation: Situation) -> Tensor:
        return situation.update + 0.1 * torch.randn_like(situation.update)


class Knowing(OmniscientAdversary):
    """Likewise, and knows."""

    def collude(self, situation: Situation) -> Tensor:
        assert situation.honest is not None
        return situation.honest.mean(0) + 0.1 * torch.randn_like(situation.update)


@pytest.mark.slow
@pytest.mark.distributed
def test_what_ones_own_draws(rffl: Run, tmp_path: Path) -> None:
    """Neither ranks nor an interruption change it; and a rule knows its round wherever it is."""
    line = (
        "fit", "--config", "configs/digits.yaml", *QUICK, "--server", f"{HERE}.Lottery", "--federation.adversaries", 2,
        "--adversaries", f"[{HERE}.Noisy,{HERE}.Knowing]", "--federation.participation", 0.7,
    )  # fmt: skip
    assert rffl(*line, "--trainer.max_epochs", 4, "--run.root", tmp_path / "whole").code == 0
    begun = forked(3, *line, "--trainer.max_epochs", 2, root=tmp_path / "begun")
    assert begun.code == 0, begun.err
    last = only_run(tmp_path / "begun") / "checkpoints" / "last.ckpt"
    on = forked(2, *line, "--trainer.max_epochs", 4, "--ckpt_path", last, root=tmp_path / "on")
    assert on.code == 0, on.err
    whole, gone_on = only_run(tmp_path / "whole"), only_run(tmp_path / "on")
    assert_same_bits(whole, gone_on)
    found = [[entry.measures["noisy"] for entry in RunFolder(run).rounds()] for run in (whole, gone_on)]
    assert found[0] == found[1]
    assert found[0][2] != found[0][3]


class Drawing(FedAvg):
    """Draws from torch's stream or NumPy's where its option says."""

    def __init__(self, *, where: str) -> None:
        super().__init__()
        self.where = where

    def noise(self, where: str, size: int) -> Tensor:
        """What is drawn, if it is here."""
        if where != self.where.removeprefix("numpy "):
            return torch.zeros(size)
        return torch.from_numpy(np.random.randn(size)).float() if "numpy" in self.where else torch.randn(size)

    def weigh(self, evidence: Evidence) -> Tensor:
        return super().weigh(evidence) + 0.1 * self.noise("weigh", len(evidence.senders))

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return super().combine(block, weights) + self.noise("combine", block.shape[1])

    def stride(self, combined: Tensor) -> Tensor:
        return super().stride(combined) + self.noise("stride", len(combined))

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)
        step = verdict.download(0) + self.noise("rule", self.coordinates.size)
        return replace(verdict, download=lambda participant: step + self.noise("download", len(step)))

    def model_for(self, participant: int) -> Tensor | None:
        model = super().model_for(participant)
        return None if model is None else model + self.noise("model", len(model))


def part_of(where: str, size: int) -> Drawing:
    """A server of four participants that has so many of 30 coordinates."""
    server, coordinates = Drawing(where=where), Coordinates(D)
    coordinates.where = slice(0, size)
    server.start(task(shards(P), [D], coordinates=coordinates))
    return server


@pytest.mark.parametrize("where", ["weigh", "combine", "stride", "numpy stride", "rule"])
def test_what_is_drawn_by_coordinate_on_a_part(where: str) -> None:
    """All ranks add the same noise to their parts, and the model's is no noise any more."""
    part_of(where, D).step(uploads(P, D, 1), range(P))
    part = part_of(where, 12)
    if where == "weigh":
        part.step(uploads(P, D, 1)[:, :12], range(P))
    else:
        with pytest.raises(UserError, match=r"Drawing to combine uploads without .*, or give --exchange central"):
            part.step(uploads(P, D, 1)[:, :12], range(P))


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("where", ["weigh", "download", "model"])
def test_what_is_drawn_of_one_participant_on_a_part(rffl: Run, tmp_path: Path, where: str) -> None:
    """Likewise; what is drawn before has the bits of one server."""
    line = (
        "fit", "--config", "configs/digits.yaml", *QUICK, "--server", f"{HERE}.Drawing", "--server.where", where,
        "--trainer.max_epochs", 4, "--federation.participation", 0.5,
        "--trainer.callbacks+=tests.distributed.probe.SmallBlocks",
    )  # fmt: skip
    ended = forked(2, *line, "--exchange", "sharded", root=tmp_path / "two")
    if where == "weigh":
        assert ended.code == 0, ended.err
        assert forked(1, *line, root=tmp_path / "one").code == 0
        assert_same_bits(only_run(tmp_path / "one"), only_run(tmp_path / "two"))
    else:
        assert f"Drawing to give a participant its {where} without drawing at random under --exchange" in ended.err
