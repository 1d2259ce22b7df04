"""Rules of one's own that go by what stands beside a coordinate: refused where they are given some at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional import blocks
from rffl_pl.functional.streams import drawn_so_far
from rffl_pl.rehearsal.pieces import check_pieces
from rffl_pl.servers import ARC, NNM, Bucketing, Consensus, Evidence, FedOpt, Median, Server, Task
from tests.conftest import QUICK, Ended
from tests.distributed.test_every_server import assert_same_bits, result, run_all
from tests.functional.reference import uploads
from tests.runs import federate
from tests.servers.tasks import shards, task
from tests.servers.test_consensus import one_round, started, step_of

HERE = __name__
P, D = 5, 300


def medoid(rows: Tensor) -> Tensor:
    """The row with the smallest sum of distances to all, as people have it in their own code."""
    winner: Tensor = rows[torch.cdist(rows, rows).sum(1).argmin()]
    return winner


class Pasted(Consensus):
    """A medoid where coordinates are combined: another winner in every block."""

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return medoid(block)


class Clipped(Consensus):
    """The mean of what is shortened to a length: in each block to that length."""

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(block, dim=1, keepdim=True)
        return (block * lengths.reciprocal().mul(50).clamp_max(1)).mean(0)


class Whole(Pasted):
    """The medoid, of all coordinates at once."""

    whole = True


class Weighed(Consensus):
    """The medoid, by statistics of whole uploads."""

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def weigh(self, evidence: Evidence) -> Tensor:
        distances = evidence.squared_distances.sqrt().fill_diagonal_(0)
        return torch.eye(len(distances), dtype=torch.float64)[distances.sum(1).argmin()]


class Outermost(Consensus):
    """Without the highest and the lowest of every entry."""

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return block.sort(0).values[1:-1].mean(0)


class Slow(Consensus):
    """A mean of its own that remembers every entry, block after block."""

    def start(self, task: Task) -> None:
        super().start(task)
        self.past, self.place = torch.zeros(sum(task.layers)), 0

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        here = slice(self.place, self.place + block.shape[1])
        self.place = here.stop % len(self.past)
        self.past[here] = 0.5 * self.past[here] + 0.5 * block.mean(0)
        return self.past[here]


class Noisy(Consensus):
    """The mean and noise."""

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return block.mean(0) + torch.randn(block.shape[1])


class Unseeded(Consensus):
    """The mean times what no seed decides."""

    made: ClassVar[itertools.count[int]] = itertools.count(1)

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return block.mean(0) * next(self.made)


class Particular(Consensus):
    """Needs as many coordinates as its network has."""

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return (block * torch.ones(D)).mean(0)


SEVERAL = [150, 100, 50]
REFUSED: dict[str, tuple[Callable[[], Server], str]] = {
    "a medoid": (Pasted, "--server Pasted"),
    "what is long in a block": (Clipped, "--server Clipped"),
    "behind mixing": (lambda: NNM(rule=Pasted()), "--server.rule Pasted"),
    "behind two": (lambda: FedOpt(rule=ARC(rule=Pasted())), "--server.rule.rule Pasted"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("layers", [[D], SEVERAL, [1] * 600], ids=["one layer", "some", "many"])
def test_a_rule_on_whole_vectors_is_refused(kind: str, layers: list[int]) -> None:
    """It works on a small model, and picks another upload in each block of a large one."""
    made, option = REFUSED[kind]
    with pytest.raises(UserError, match=rf"Expected combine of {option} to make every coordinate .*; .* whole = True,"):
        check_pieces(made(), task(shards(P), layers))


FINE: dict[str, Callable[[], Server]] = {
    "by entry": Outermost,
    "with a memory of entries": Slow,
    "noise": Noisy,
    "what no seed decides": Unseeded,
    "what works on its own network alone": Particular,
    "all at once": Whole,
    "by weights": Weighed,
    "behind mixing": lambda: NNM(rule=Outermost()),
    "all at once behind mixing": lambda: Bucketing(rule=Whole()),
    "the package's": Median,
}


@pytest.mark.parametrize("kind", FINE)
@pytest.mark.parametrize("others", [{}, {"participation": 0.6}], ids=["everybody", "some"])
def test_a_rule_by_coordinate_is_not(kind: str, others: dict[str, Any]) -> None:
    """A rule that is right is refused, or what is drawn in a run depends on whether it was tried."""
    server, before = FINE[kind](), drawn_so_far(torch.device("cpu"))
    told = dict(vars(server))
    check_pieces(server, task(shards(P), [D], **others))
    assert vars(server) == told
    assert drawn_so_far(torch.device("cpu")) == before


def test_it_is_seen_whatever_the_uploads_would_be() -> None:
    """By chance every piece has the same winner."""
    for count in range(3, 40):
        with pytest.raises(UserError, match="Pasted"):
            check_pieces(Pasted(), task(shards(count), SEVERAL))


def test_a_run_is_refused_before_it_trains() -> None:
    """Whoever pastes a rule finds out by results that are another rule's."""
    with pytest.raises(UserError, match="Expected combine of --server Pasted"):
        federate(Pasted())


@pytest.mark.parametrize("made", [Whole, Weighed])
def test_a_medoid(made: Callable[[], Consensus], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many blocks another row in each, of rows of weight 0 one that nobody votes for."""
    monkeypatch.setattr(blocks, "_ENTRIES", 35)
    apart = 0
    for seed in range(20):
        rows = uploads(P, D, seed)
        verdict = one_round(made(), rows)
        sums = [sum(float((a.double() - b.double()).norm()) for b in rows) for a in rows]
        assert torch.equal(step_of(verdict), rows[sums.index(min(sums))])
        apart += not torch.equal(step_of(one_round(Pasted(), rows)), step_of(verdict))
    assert apart > 10


def test_all_coordinates_at_once_behind_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is given blocks again, or uploads that are not mixed."""
    monkeypatch.setattr(blocks, "_ENTRIES", 35)
    for seed in range(10):
        rows = uploads(P, D, seed)
        distances = torch.cdist(rows.double(), rows.double(), compute_mode="donot_use_mm_for_euclid_dist")
        mixed = torch.stack([rows[row.argsort()[: P - 1]].double().mean(0) for row in distances])
        step = step_of(one_round(NNM(rule=Whole(), tolerated=1), rows))
        torch.testing.assert_close(step.double(), medoid(mixed), rtol=1e-5, atol=1e-6)


class Halved(Whole):
    """Answers with too little."""

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return super().combine(block, weights)[: len(block)]


def test_what_is_made_of_all_at_once_is_looked_at() -> None:
    """A vector too short ends in a traceback of ours."""
    with pytest.raises(UserError, match=r"Halved to give shape \[300\] of a block \[5, 300\], but got shape \[5\]\."):
        one_round(Halved(), uploads(P, D, 1))


def test_nobody_sent_anything() -> None:
    """Of no uploads a rule makes nothing."""
    server = started(Whole(), shards(P), D)
    assert torch.equal(step_of(server.step(torch.zeros(P, D), range(P))), torch.zeros(D))


class Parted(Whole):
    """Says that it can work on parts."""

    by_coordinate: ClassVar[Sequence[str]] = ("model",)


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (("--server", f"{HERE}.Parted"), "Expected --server to be one that works on a part of the coordinates under "),
        (("--server", "NNM", "--server.rule", f"{HERE}.Parted"), "Expected --server.rule to be one that works on a pa"),
    ],
)
def test_whole_vectors_are_not_sharded(rffl: Callable[..., Ended], server: tuple[str, ...], sentence: str) -> None:
    """Each rank picks an upload of its own for its part."""
    ended = rffl("fit", "--config", "configs/digits.yaml", *QUICK, "--exchange", "sharded", *server)
    assert ended.code == 2
    assert sentence in ended.err
    assert "Parted, whose whole is True; give --exchange central." in ended.err


@pytest.mark.slow
@pytest.mark.distributed
def test_ranks_do_not_matter(tmp_path: Path) -> None:
    """A rule on whole vectors depends on who hosts whom, or on an interruption; by weights, on who serves what."""
    federation = "--federation.participants 5 --federation.adversaries 1 --adversaries [FreeRider]"
    blocks_of_few = "--trainer.callbacks+=tests.distributed.probe.SmallBlocks"
    usual = f"fit --config configs/digits.yaml {' '.join(map(str, QUICK))} {federation} {blocks_of_few}"
    servers = {
        "whole": f"--server {HERE}.Whole",
        "mixed": f"--server NNM --server.rule {HERE}.Whole",
        "weighed": f"--server {HERE}.Weighed",
    }
    lines = [f"{usual} {words} --run.name {name}" for name, words in servers.items()]
    run_all(1, [f"{line} --trainer.max_epochs 4" for line in lines], tmp_path / "1")
    run_all(4, [f"{line} --trainer.max_epochs 2" for line in lines], tmp_path / "4")
    halves = {name: result(tmp_path / "4", name)[1] for name in servers}
    on = [f"{usual} {words} --run.name {name} --ckpt_path {halves[name]}" for name, words in servers.items()]
    on.append(f"{usual} {servers['weighed']} --run.name parts --exchange sharded")
    run_all(2, [f"{line} --trainer.max_epochs 4" for line in on], tmp_path / "2")
    for name in servers:
        assert_same_bits(result(tmp_path / "1", name)[0], result(tmp_path / "2", name)[0], name)
    alone, parts = (result(tmp_path / folder, name)[0] for folder, name in (("1", "weighed"), ("2", "parts")))
    assert all(
        torch.equal(value, parts["federation"]["participants"][i]["network"][key])
        for i, mine in alone["federation"]["participants"].items()
        for key, value in mine["network"].items()
    )
