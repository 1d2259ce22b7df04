"""BatchNorm's running statistics: one for all where all have one model, everybody's own elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rffl_pl.adversaries import Adversary, FreeRider
from rffl_pl.errors import UserError
from rffl_pl.evaluation import Evaluation
from rffl_pl.exchange import Exchange
from rffl_pl.federation import Federation
from rffl_pl.module import FederatedModule
from rffl_pl.round.running import RunningStatistics
from rffl_pl.servers import (
    ARC,
    CFFL,
    NNM,
    RFFL,
    Bucketing,
    Consensus,
    FedAvg,
    FedMGDA,
    FedOpt,
    FLTrust,
    FoolsGold,
    Median,
    MultiKrum,
    Server,
    SignSGD,
    TrimmedMean,
    Verdict,
)
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters, running_statistics
from tests.functional.reference import uploads
from tests.norms import Normed
from tests.runs import digits, federate, whole
from tests.servers.tasks import shards, task
from tests.training.test_personal import locally

CPU = torch.device("cpu")
SIZE = 2 * (64 + 16)


def statistics(network: nn.Module) -> Tensor:
    """The running statistics of a network ``[S]``, by PyTorch's layers alone."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm1d)]
    kept = [t for layer in layers for t in (layer.running_mean, layer.running_var) if t is not None]
    return torch.cat(kept)


def held(module: FederatedModule) -> Tensor:
    """Those of all participants, ``[P, S]``."""
    return torch.stack([statistics(network) for network in module.cohort.networks])


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_they_are_averaged_as_the_model_is(share: float) -> None:
    """FedAvg as whoever averages whole state_dicts would write it: whoever is not asked has others."""
    federation = Federation(participants=5, participation=share, seed=1)
    data = digits(federation, batch_size=14)  # of no shard a single example is left
    torch.manual_seed(1)
    shared: nn.Module = Normed()
    for number in range(3):
        asked = federation.asked(range(5), number)
        trained = [locally(data, i, number, shared, None) for i in asked]
        sizes = torch.tensor([float(data.shard_sizes[i]) for i in asked])
        weights = sizes / sizes.sum()
        step = weights @ torch.stack([update for _, update in trained])
        averaged = weights @ torch.stack([statistics(network) for network, _ in trained])
        nn.utils.vector_to_parameters(flat_parameters(shared) + step, shared.parameters())
        for buffer, part in zip(running_statistics(shared), averaged.split([64, 64, 16, 16]), strict=True):
            buffer.copy_(part)
    module = federate(FedAvg(), rounds=3, network=Normed, participation=share, batch_size=14)
    found = held(module)
    assert all(torch.equal(row, found[0]) for row in found)
    torch.testing.assert_close(found[0], statistics(shared), rtol=1e-4, atol=1e-5)
    assert (found[0] - statistics(Normed())).abs().max() > 0.1
    counted = [int(network.get_buffer("layers.1.num_batches_tracked")) for network in module.cohort.networks]
    assert len(set(counted)) > (1 if share < 1 else 0)  # how many batches one has trained on stays with it
    assert module.cohort.distinct() == [0] * 5


def accuracy(module: FederatedModule) -> list[float]:
    """Of all participants' models on the test set."""
    x, y = whole(module.data.test_dataloader())
    evaluation = Evaluation([], {})
    with torch.inference_mode():
        return evaluation.of(iter([(x, y)]), module.models)["accuracy"].tolist()


class Glaring(Adversary):
    """Trains on images a thousand times as bright, which BatchNorm hides from its update."""

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return 1000 * x, y


@pytest.mark.parametrize(
    ("server", "withstands"), [(FedAvg, False), (Median, True), (lambda: TrimmedMean(trim=0.2), True)]
)
def test_a_robust_rule_takes_care_of_them_too(server: Callable[[], Consensus], withstands: bool) -> None:
    """Somebody's statistics spoil everybody's model under a rule that its upload cannot spoil."""
    module = federate(server(), [Glaring()], rounds=8, network=Normed)
    assert (min(accuracy(module)) > 0.75) == withstands
    assert (held(module).abs().max() < 100) == withstands


class OwnHead(FedAvg):
    """The last layer stays with its owner."""

    def kept(self, update: Tensor) -> Tensor:
        mine = torch.zeros_like(update)
        mine[-self.layers[-1] :] = update[-self.layers[-1] :]
        return mine


@pytest.mark.parametrize("server", [RFFL, lambda: FedAvg(variant="released"), OwnHead, lambda: NNM(rule=OwnHead())])
def test_they_are_private_where_something_else_is(server: Callable[[], Server]) -> None:
    """A model of one's own is measured with others' statistics."""
    found = held(federate(server(), rounds=2, network=Normed))
    assert len({tuple(row.tolist()) for row in found}) == 5


def test_models_of_ones_own_have_their_own() -> None:
    """Those of Ditto are measured with the shared ones, or the shared model with those."""
    module = federate(FedAvg(), [FreeRider()], rounds=2, network=Normed, personal=0.5)
    assert module.personal is not None
    own = [statistics(network) for network in module.personal.networks]
    assert len({tuple(row.tolist()) for row in own}) == 6
    shared = held(module)
    assert all(torch.equal(row, shared[0]) for row in shared)
    assert torch.equal(own[5], shared[0])  # an adversary takes home what is shared


def test_who_validates_without_them_is_told() -> None:
    """It has those that the network begins with: scores of uploads were half of what models reach."""
    with pytest.warns(UserWarning, match="validates with the running statistics that normalisation layers of --model"):
        federate(CFFL(), rounds=1, network=Normed)


def normed(tell: Callable[[nn.Module], None] = lambda network: None) -> Cohort:
    """Five participants of one process."""
    torch.manual_seed(3)
    network = Normed()
    tell(network)
    return Cohort(network, range(5), lambda p: torch.optim.SGD(p, lr=0.1), CPU)


def started(server: Server, dimension: int, **others: Any) -> Server:
    """A server of five participants before its first round."""
    server.start(task(shards(5), [dimension], **others))
    return server


def play(server: Server, cohort: Cohort, measured: Mapping[int, Tensor], sent: Tensor) -> tuple[Verdict, Exchange]:
    """A round in which participants have measured statistics ``[S]``, those that are named, and send uploads."""
    exchange = Exchange([range(5)], 0, CPU, cohort.weights.shape[1])
    running = RunningStatistics(cohort, exchange, server, 0)
    exchange.ask_all()
    running.begin()
    for i, values in measured.items():
        cohort.set_statistics(i, values)
    rows = dict(enumerate(sent.clone()))
    running.upload()
    running.screen(rows)
    verdict = server.step([*rows.values()], [*rows])
    running.share(verdict)
    return verdict, exchange


def drawn(seed: int) -> dict[int, Tensor]:
    """Statistics of five participants; two entries are the same for all."""
    values = torch.randn(5, SIZE, generator=torch.Generator().manual_seed(seed)).square() + 0.1
    values[:, 7], values[:, 40] = 0.1, 1e-30
    return dict(enumerate(values))


MEANS: dict[str, Callable[[], Server]] = {
    "fedavg": FedAvg,
    "krum": lambda: MultiKrum(byzantine=1),
    "fed_opt": FedOpt,
    "fed_mgda": FedMGDA,
    "foolsgold_sum": lambda: FoolsGold(scale="sum"),
    "fltrust": FLTrust,
    "sign_sgd": SignSGD,
    "arc": lambda: ARC(rule=FedAvg(), tolerated=2),
}


@pytest.mark.parametrize("kind", MEANS)
def test_mean_by_the_weights_of_the_uploads(kind: str) -> None:
    """A rule's scales, votes, optimizer or clipping act on statistics, or weights do not add up to 1."""
    for seed in range(3):
        cohort, values = normed(), drawn(seed)
        dimension = cohort.weights.shape[1]
        server = started(MEANS[kind](), dimension)
        sent = uploads(5, dimension, seed)
        sent[2] *= 30
        verdict, _ = play(server, cohort, values, sent.sign() if kind == "sign_sgd" else sent)
        weights = verdict.weights.numpy()
        if kind == "arc":  # of what it clips it takes less, of the statistics as much
            weights = np.array(shards(5)) / sum(shards(5))
        if kind == "fed_mgda":  # of a short upload it takes more, of the statistics the share of its direction
            weights = weights * sent.double().norm(dim=1).numpy()
        expected = weights / weights.sum() @ np.stack([row.double().numpy() for row in values.values()])
        for index in range(5):
            np.testing.assert_allclose(cohort.statistics(index), expected, rtol=2e-5, err_msg=f"{kind} {seed}")
        assert cohort.statistics(0)[[7, 40]].tolist() == values[0][[7, 40]].tolist()


@pytest.mark.parametrize("server", [FedMGDA, lambda: ARC(rule=FedMGDA(), tolerated=1), lambda: FedOpt(rule=FedMGDA())])
def test_a_short_upload_does_not_bring_all_of_them(server: Callable[[], Server]) -> None:
    """Directions count alike, and of the model's statistics nearly all are those of whose update is nothing."""
    cohort, values = normed(), drawn(6)
    dimension = cohort.weights.shape[1]
    sent = uploads(5, dimension, 6)
    sent /= sent.norm(dim=1, keepdim=True)
    sent[1] *= 1e-6
    values[1] = values[1] + 100
    play(started(server(), dimension), cohort, values, sent)
    others = torch.stack([values[i] for i in (0, 2, 3, 4)])
    pulled = (cohort.statistics(0) - others.mean(0)) / 100
    assert pulled.mean() < 0.4


def test_entry_by_entry_where_the_rule_goes_so() -> None:
    """The mean is taken under a rule that takes the middle."""
    cohort, values = normed(), drawn(1)
    dimension = cohort.weights.shape[1]
    stacked = np.stack([row.numpy() for row in values.values()])
    sent = uploads(5, dimension, 1)
    play(started(Median(), dimension), cohort, values, sent)
    np.testing.assert_array_equal(cohort.statistics(4), np.median(stacked, axis=0))
    play(started(TrimmedMean(trim=0.2), dimension), cohort, values, sent)
    np.testing.assert_allclose(cohort.statistics(4), np.sort(stacked, 0)[1:-1].mean(0), rtol=1e-5)
    play(started(FedOpt(rule=Median()), dimension), cohort, values, sent)
    np.testing.assert_array_equal(cohort.statistics(4), np.median(stacked, axis=0))


@pytest.mark.parametrize("kind", ["nnm", "bucketing"])
def test_mixed_as_the_uploads_are(kind: str) -> None:
    """The rule that mixes is around one that is given statistics unmixed, or mixed by other weights."""
    cohort, values = normed(), drawn(2)
    dimension = cohort.weights.shape[1]
    sent = uploads(5, dimension, 2)
    seen: list[Tensor] = []

    class Seen(Median):
        def weigh(self, evidence: Any) -> Tensor:
            seen.append(evidence.mixing)
            return super().weigh(evidence)

    server = NNM(rule=Seen(), tolerated=1) if kind == "nnm" else Bucketing(rule=Seen())
    play(started(server, dimension), cohort, values, sent)
    mixed = seen[0].numpy() @ np.stack([row.double().numpy() for row in values.values()])
    assert mixed.shape[0] == (5 if kind == "nnm" else 3)
    np.testing.assert_allclose(cohort.statistics(3), np.median(mixed, axis=0), rtol=1e-5)


def test_what_does_not_count_takes_its_statistics_along() -> None:
    """Whoever is set aside, votes for nothing or does not train is averaged in, or what it did not train on is not."""
    cohort, values = normed(), drawn(4)
    before = cohort.statistics(0)
    dimension = cohort.weights.shape[1]
    sent = uploads(5, dimension, 4)
    sent[1] = 0  # no vote
    sent[2, 5] = torch.nan
    values[3][9] = torch.inf  # its upload is sound
    del values[4]  # does not train: sends what it got
    verdict, _ = play(started(FedAvg(), dimension), cohort, values, sent)
    assert (verdict.silent, verdict.set_aside) == ((1,), (2, 3))
    sizes = np.array(shards(5), dtype=float)[[0, 4]]
    expected = sizes / sizes.sum() @ np.stack([values[0].double().numpy(), before.double().numpy()])
    for index in range(5):
        np.testing.assert_allclose(cohort.statistics(index), expected, rtol=2e-5)


def test_where_nothing_counts_nothing_changes() -> None:
    """A round without any upload leaves everybody with what it measured itself, or NaN."""
    cohort = normed()
    before = cohort.statistics(0)
    dimension = cohort.weights.shape[1]
    play(started(FedAvg(), dimension), cohort, drawn(1), torch.zeros(5, dimension))
    assert all(torch.equal(cohort.statistics(i), before) for i in range(5))


def test_variances_stay_positive() -> None:
    """Weights that add up to more than 1 by rounding, or large and small variances, give 0 or less."""
    generator = torch.Generator().manual_seed(0)
    for seed in range(20):
        cohort = normed()
        dimension = cohort.weights.shape[1]
        values = dict(enumerate(10 ** (torch.rand(5, SIZE, generator=generator) * 70 - 35)))
        play(started(FedAvg(), dimension), cohort, values, uploads(5, dimension, seed))
        rows, found = torch.stack([*values.values()]), cohort.statistics(0)
        assert (found > 0).all()
        assert ((rows.amin(0) <= found) & (found <= rows.amax(0))).all()


class Wrong(FedAvg):
    """Makes something else of them."""

    def pool(self, statistics: Tensor, weights: Tensor) -> Tensor:
        return statistics


def test_a_pool_of_ones_own_is_looked_at() -> None:
    """A shape that is none of a network's ends in torch's words."""
    with pytest.raises(UserError, match=r"what pool gives of --server Wrong .* each of 160 running statistics"):
        federate(Wrong(), rounds=1, network=Normed)


def test_bytes_are_counted() -> None:
    """They travel for nothing, or who starts from the server's model gets it without them."""
    cohort, dimension = normed(), normed().weights.shape[1]
    _, exchange = play(started(FedAvg(), dimension), cohort, drawn(1), uploads(5, dimension, 1))
    assert exchange.traffic is not None
    assert (exchange.traffic.up, exchange.traffic.down) == ([4 * SIZE] * 5, [4 * SIZE] * 5)
    model = torch.ones(dimension)
    assert [i for i, _ in exchange.ask([1, 3], lambda i: model if i == 3 else None, 4 * SIZE)] == [3]
    assert exchange.traffic.down == [0, 0, 0, 4 * (dimension + SIZE), 0]


def other_norms(norm: Callable[[int], nn.Module]) -> Callable[[nn.Module], None]:
    """What puts other layers in the place of those that keep statistics, and another buffer beside them."""

    def change(network: nn.Module) -> None:
        for key, width in (("1", 64), ("3", 16)):
            setattr(network.layers, key, norm(width))
        network.register_buffer("mean", torch.zeros(3))

    return change


@pytest.mark.parametrize("norm", [nn.LayerNorm, lambda n: nn.BatchNorm1d(n, track_running_stats=False)])
def test_without_them_nothing_is_done(norm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that has none pays for a transfer."""

    def transfer(*_: Any) -> None:
        raise AssertionError("something travels")

    monkeypatch.setattr(Exchange, "gather_statistics", transfer)
    monkeypatch.setattr(Exchange, "spread_statistics", transfer)
    cohort = normed(other_norms(norm))
    dimension = cohort.weights.shape[1]
    _, exchange = play(started(FedAvg(), dimension), cohort, {}, uploads(5, dimension, 1))
    assert exchange.traffic is not None
    assert exchange.traffic.up == [0] * 5
