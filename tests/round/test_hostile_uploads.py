"""Whatever anybody uploads, and however many do: no NaN in an honest model or a reputation, and each is named.

Whole rounds of every server, from training to download, of everything but Lightning.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.optim import Adam

from rffl_pl.adversaries import Cast
from rffl_pl.federation import Federation
from rffl_pl.round.play import play
from rffl_pl.round.table import Table
from rffl_pl.servers import (
    AFL,
    ARC,
    CFFL,
    CGSV,
    FLAME,
    IAFL,
    NNM,
    QFFL,
    RFFL,
    TERM,
    Bucketing,
    Bulyan,
    CenteredClipping,
    DnC,
    FedAvg,
    FedMGDA,
    FedOpt,
    FLTrust,
    FoolsGold,
    GeometricMedian,
    Median,
    MultiKrum,
    NormBound,
    Server,
    SignSGD,
    Task,
    TrimmedMean,
    Verdict,
)
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters, layer_sizes
from rffl_pl.training.schedule import Schedule
from tests.cohorts import CPU, examples, mlp, sgd
from tests.conftest import QUICK, Ended, only_run
from tests.hostile import BLANK, KINDS, TAMPERED, UNFIT, Hostile, Kind, Tampered, hostile
from tests.servers.tasks import Compass, assert_equal, finite_fraction

pytestmark = pytest.mark.filterwarnings("ignore:--server.steepness", "ignore:Round ")
SERVERS: dict[str, Callable[[], Server]] = {
    "rffl": lambda: RFFL(removal_from="never"),
    "rffl-removing": lambda: RFFL(removal_from=2, alpha=0.5),
    "rffl-paper": lambda: RFFL(preset="paper", removal_from="never"),
    "rffl-guarded": lambda: RFFL(preset="guarded"),
    "rffl-bare": lambda: RFFL(clip=False, normalise=False, earned=True, removal_from="never"),
    "cgsv": CGSV,
    "iafl": lambda: IAFL(recovery=0.5),
    "afl": AFL,
    "term": TERM,
    "fedavg": FedAvg,
    "fedavg-released": lambda: FedAvg(variant="released"),
    "fltrust": FLTrust,
    "fed_opt": FedOpt,
    "fed_opt-adam": lambda: FedOpt(rule=NNM(), optimizer=partial(Adam, lr=0.1, eps=1e-3)),
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "geometric_median": GeometricMedian,
    "centered_clipping": CenteredClipping,
    "norm_bound": NormBound,
    "norm_bound-noise": lambda: NormBound(max_norm=0.5, noise=0.01),
    "flame": FLAME,
    "flame-uploads": lambda: FLAME(compare="uploads", noise_factor=0.1),
    "dnc": DnC,
    "fed_mgda": FedMGDA,
    "fed_mgda-1": lambda: FedMGDA(slack=1),
    "nnm": NNM,
    "nnm-centered_clipping": lambda: NNM(rule=CenteredClipping()),
    "arc": lambda: ARC(rule=NNM()),
    "bucketing": Bucketing,
    "multi_krum": MultiKrum,
    "bulyan": Bulyan,
    "foolsgold": FoolsGold,
    "foolsgold-sum": lambda: FoolsGold(scale="sum"),
    "q_ffl": QFFL,
    "q_ffl-sampled": lambda: QFFL(q=1, weights="sampled"),
    "sign_sgd": SignSGD,
    "cffl": lambda: CFFL(removal_share=0),
    "cffl-sum": lambda: CFFL(summation="sum", upload_share=1.0, compounding="none", selection="largest"),
}
CONSENSUS = [name for name in SERVERS if name.partition("-")[0] not in ("rffl", "cgsv", "iafl", "cffl", "sign_sgd")]
every_server = pytest.mark.parametrize("name", SERVERS)


class Full:
    """Single precision."""

    def train_step_context(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    val_step_context = train_step_context


def table(server: Server, adversaries: Sequence[Hostile] = (), *, participants: int = 5) -> Table:
    """A federation in one process before its first round, whose payloads can be tampered with."""
    federation = Federation(participants=participants, adversaries=len(adversaries), seed=1)
    network, everybody = mlp(), range(federation.total)
    start = flat_parameters(network)
    server.start(
        Task(
            examples=[28 + i for i in everybody],
            classes=[3 for _ in everybody],
            layers=layer_sizes(network),
            learning_rate=0.3,
            seed=1,
            initial=start,
            accuracy=lambda weights: 0.5 + 0.5 * float((weights - start).sum().tanh()),
            root=Compass(sum(layer_sizes(network))),
        )
    )
    return Table(
        federation=federation,
        cohort=Cohort(network, everybody, sgd, CPU),
        cast=Cast(federation, adversaries),
        exchange=Tampered([everybody], 0, CPU, sum(server.layers)),
        server=server,
        schedule=Schedule(epochs=1),
        precision=Full(),
    )


def rounds(federation: Table, count: int) -> Iterator[Verdict]:
    """Some rounds, after each of which nothing that anybody honest has is other than finite."""
    for number in range(count):
        shards = {i: examples(i, 7) for i in range(federation.federation.total)}
        verdict = play(federation, shards, number).verdict
        assert verdict is not None
        assert federation.cohort.weights.isfinite().all(), number
        for values in (verdict.reputations, verdict.quotas, verdict.weights):
            assert values.isfinite().all(), number
        assert finite(federation.server.state_dict()), number
        yield verdict


def finite(state: object) -> bool:
    """Whether all numbers of a state are."""
    if isinstance(state, dict):
        return all(map(finite, state.values()))
    return bool(state.isfinite().all()) if isinstance(state, Tensor) else True


@every_server
def test_every_kind_of_upload(name: str) -> None:
    """Of six, four send one kind after the other: something becomes NaN, or one of them is not named."""
    liars = [2, 3, 4, 5]
    federation = table(SERVERS[name](), [Hostile(since=1) for _ in liars], participants=2)
    for number, verdict in enumerate(rounds(federation, 1 + len(KINDS))):
        kind = KINDS[number - 1] if number else None
        here = [i for i in liars if i in federation.exchange.asked]
        named = verdict.set_aside if kind in UNFIT else verdict.silent if kind in BLANK else here
        if kind not in BLANK or name != "sign_sgd":  # whose momentum votes on
            assert set(here) <= set(named), kind
        if kind in UNFIT or kind in BLANK:
            assert not verdict.weights[here].any() or name == "sign_sgd", kind


@every_server
def test_every_payload(name: str) -> None:
    """A payload that nobody packs, of some or of all, ends the run, is taken for an upload, or is not named."""
    federation = table(SERVERS[name]())
    everybody = tuple(range(5))
    tampering = [((), "nothing"), *(((1, 3), how) for how in TAMPERED), (everybody, "nothing"), (everybody, "all bits")]
    played = rounds(federation, len(tampering))
    assert isinstance(federation.exchange, Tampered)
    for who, how in tampering:
        federation.exchange.who, federation.exchange.how = who, TAMPERED[how]
        assert next(played).set_aside == tuple(i for i in who if i in federation.exchange.asked), how


def uploads(server: Server, count: int, now: int) -> Tensor:
    """Uploads ``[count, D]`` of a common direction, as servers under test get them."""
    generator = torch.Generator().manual_seed(now)
    common = torch.randn(sum(server.layers), generator=generator)
    rows = 0.02 * (common + torch.randn(count, len(common), generator=generator))
    return rows.sign() if isinstance(server, SignSGD) else rows


def step(server: Server, rows: Tensor, senders: Sequence[int] | None = None) -> Verdict:
    """A round of all members, or of some; losses are those of everybody."""
    senders = server.members.nonzero().flatten().tolist() if senders is None else senders
    losses = torch.linspace(0.5, 2, len(server.members)).double() if server.hears_losses else None
    return server.step(rows[senders], senders, losses)


@every_server
def test_nothing_but_zeros(name: str) -> None:
    """With zeros from everybody, from the first round on, somebody moves, is removed or is not named."""
    server = table(SERVERS[name]()).server
    for now in range(3):
        verdict = step(server, torch.zeros(5, sum(server.layers)))
        assert verdict.silent == (0, 1, 2, 3, 4)
        assert verdict.members.all()
        assert verdict.reputations.isfinite().all()
        assert not any(verdict.download(i).any() for i in range(5)), now
    step(server, uploads(server, 5, 1))
    assert step(server, uploads(server, 5, 2)).silent == ()


@pytest.mark.parametrize("name", CONSENSUS)
@pytest.mark.parametrize("kind", BLANK)
def test_zeros_are_no_vote(name: str, kind: Kind) -> None:
    """An upload of zeros makes another step than if its sender had not been asked."""
    blank, absent = (table(SERVERS[name](), participants=9).server for _ in range(2))
    for now in range(3):
        rows = uploads(blank, 9, now)
        here = [i for i in range(9) if i % 3 != now]
        for i in {*range(9)} - {*here}:
            rows[i] = hostile(kind, rows[i])
        assert_equal(step(blank, rows), step(absent, rows, here))


@every_server
def test_who_falls_silent_may_come_back(name: str) -> None:
    """Honest uploads that shrink to nothing cost membership, or what their sender had stays away when they return."""
    server = table(SERVERS[name]()).server
    for now in range(30):
        rows = uploads(server, 5, now)
        if 5 <= now < 29:
            rows[[1, 4]] = 0
        verdict = step(server, rows)
        assert verdict.silent == ((1, 4) if 5 <= now < 29 else ())
        assert not isinstance(server, RFFL | CFFL) or verdict.members[[1, 4]].all()
    if name not in (
        "afl",
        "flame",
        "flame-uploads",
        "fltrust",
        "multi_krum",
        "foolsgold",
        "foolsgold-sum",
        "q_ffl-sampled",
    ):  # which choose
        assert verdict.weights[[1, 4]].all()


def test_zeros_do_not_keep_others_in_probation() -> None:
    """Seven who send zeros deny three honest participants the confirmation that their downloads wait for."""
    server = table(RFFL(preset="guarded"), participants=10).server
    for now in range(6):
        rows = uploads(server, 10, now)
        rows[3:] = 0
        verdict = step(server, rows)
    assert (verdict.quotas[:3] > 0.5).all()
    assert not verdict.quotas[3:].any()


@pytest.mark.parametrize("kind", ["short", *BLANK])
@pytest.mark.parametrize("preset", ["paper", "guarded"])
def test_next_to_nothing_is_not_scaled_to_infinity(preset: Literal["paper", "guarded"], kind: Kind) -> None:
    """Scaled to the norm bound, an upload of 1e-45 makes the aggregate infinite, and nobody gets a download."""
    server = table(RFFL(preset=preset)).server
    for now in range(4):
        rows = uploads(server, 5, now)
        rows[2] = hostile(kind, rows[2])
        verdict = step(server, rows)
        assert finite_fraction(verdict) == 1
    assert all(verdict.download(i).any() for i in (0, 1, 3, 4))


def test_who_does_not_clip_is_clipped() -> None:
    """A participant that sends more than the norm bound decides the aggregate; one that keeps to it is changed."""
    long, clipped = (table(RFFL(removal_from="never")).server for _ in range(2))
    rows = torch.stack([long.kept(1000 * row) for row in uploads(long, 5, 1)])
    longer = rows.clone()
    longer[3] *= 1e12
    expected, found = step(clipped, rows), step(long, longer)
    torch.testing.assert_close(found.download(4), expected.download(4), rtol=1e-4, atol=1e-7)
    weighted = (expected.weights.float().unsqueeze(1) * rows).sum(0)
    top = int(expected.quotas.argmax())
    torch.testing.assert_close(expected.download(top), weighted, rtol=1e-5, atol=1e-8)


def test_each_is_named_once(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Somebody is named in every round, or never; a model that is handed out is no number."""
    lies = ("NaN", "infinity", "zeros", "denormal", "huge")
    sent = [word for kind in lies for word in ("--adversaries+=tests.hostile.Hostile", "--adversaries.kind", kind)]
    ended = rffl(
        "fit", "--config", "configs/digits.yaml", *QUICK, "--server.preset", "guarded", "--adversaries", "[]",
        *sent, "--federation.adversaries", len(lies), "--trainer.max_epochs", 4,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    for participant, word in ((5, "set aside"), (6, "set aside"), (7, "zeros"), (8, "zeros")):
        (told,) = [line for line in ended.err.splitlines() if f"participant {participant}'s upload" in line]
        assert word in told
        assert f"participant {participant} in " in ended.out
    folder = only_run(tmp_path / "runs")
    for path in (folder / "weights").iterdir():
        assert all(value.isfinite().all() for value in torch.load(path, weights_only=True).values())
    summary = json.loads((folder / "summary.json").read_text())
    assert all(isinstance(value, float) for name in ("final", "reputation") for value in summary[name])
    assert min(summary["final"][:5]) > 0.5
