"""The usual variants of attacks: a sign turned, all classes mirrored, ALIE's own z, and a backdoor scaled up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import confusion_matrix
from torch import Tensor

from rffl_pl.adversaries import ALIE, Adversary, Backdoor, LabelFlip, OmniscientAdversary, Rescale, Situation
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from rffl_pl.servers import Standalone
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import forked
from tests.runs import RecordedFedAvg, digits, federate, training_examples, whole

DIGITS = ("fit", "--config", "configs/digits.yaml", *QUICK)
simulates = pytest.mark.filterwarnings("ignore:Simulation")


def drawn(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def sent(attack: Adversary, update: Tensor, honest: Tensor | None = None, adversaries: int = 1) -> Tensor:
    """What is uploaded in a first round."""
    situation = Situation(
        round=0, participant=5, update=update, model=torch.zeros_like(update), memory={}, download=None,
        generator=torch.Generator().manual_seed(3), agreed=torch.Generator().manual_seed(4), honest=honest,
        adversaries=adversaries,
    )  # fmt: skip
    return attack.collude(situation) if isinstance(attack, OmniscientAdversary) else attack.upload(situation)


@pytest.mark.parametrize("factor", [-1, -1.0, 0.0, 2.5, -1e6])
@pytest.mark.parametrize("variant", ["released", "paper"])
def test_rescale_by_a_number(variant: Any, factor: float) -> None:
    """Every entry times the factor, whatever the variant; -1 turns the sign and nothing else."""
    update = drawn(2000)
    uploaded = sent(Rescale(variant=variant, factor=factor), update)
    np.testing.assert_array_equal(uploaded.numpy(), update.numpy() * factor)
    assert torch.equal(update, drawn(2000))
    single = drawn(2000, dtype=torch.float32)
    assert sent(Rescale(factor=factor), single).dtype == torch.float32
    assert torch.equal(sent(Rescale(factor=-1), single), -single)


@pytest.mark.parametrize("classes", [2, 3, 10, 47])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_all_classes_mirrored(classes: int, dtype: torch.dtype) -> None:
    """Class c is called C - 1 - c, whatever source and target say; who does it twice has what was."""
    y = torch.randint(classes, (500,), generator=torch.Generator().manual_seed(classes)).to(dtype)
    attack = LabelFlip(source=9, target=9, classes="mirrored")
    attack.prepare(classes)
    flipped = attack.labels(y)
    assert flipped.dtype == dtype
    assert flipped.tolist() == [range(classes)[::-1][label] for label in y.tolist()]
    assert torch.equal(attack.labels(flipped), y)


@pytest.mark.parametrize("classes", [2, 3, 10, 47])
def test_success_of_a_mirror(classes: int) -> None:
    """Of the examples of all classes that get another name: the share read rightly, and that read by this name."""
    y = torch.randint(classes, (900,), generator=torch.Generator().manual_seed(2))
    logits = drawn(900, classes) + 2 * torch.eye(classes)[y] + 2 * torch.eye(classes)[classes - 1 - y]
    metrics = LabelFlip(classes="mirrored").measures(classes)
    for metric in metrics.values():
        for part in range(0, 900, 90):
            metric.update(logits[part : part + 90], y[part : part + 90])
    counts = confusion_matrix(y, logits.argmax(1), labels=range(classes)).astype(float)
    moved = np.arange(classes) != np.arange(classes)[::-1]
    expected = {
        "target_accuracy": counts.diagonal()[moved].sum() / counts[moved].sum(),
        "attack_success": counts[:, ::-1].diagonal()[moved].sum() / counts[moved].sum(),
    }
    assert {name: metric.compute().item() for name, metric in metrics.items()} == pytest.approx(expected, abs=1e-6)


def test_a_mirror_in_a_run() -> None:
    """The adversary trains as an honest participant would who has its examples and those labels, and others do not."""
    attacked = federate(Standalone(), [LabelFlip(classes="mirrored")], rounds=1)
    flipped, honest = (attacked.cohort.weights[i] - attacked.initial_weights() for i in (5, 0))
    plain = federate(Standalone(), [LabelFlip()], rounds=1)
    assert torch.equal(honest, plain.cohort.weights[0] - plain.initial_weights())
    network = Perceptron(64, 64, 10)
    torch.nn.utils.vector_to_parameters(attacked.initial_weights().clone(), network.parameters())
    x, y = training_examples(attacked.data)
    torch.manual_seed(attacked.data.federation.seed_for("training", 5, 0))
    for epoch in range(3):
        order = attacked.data.shards[5][torch.randperm(len(attacked.data.shards[5]))]
        torch.empty((), dtype=torch.int64).random_()  # torch's loader draws a seed for its workers
        for batch in order.split(16):
            network.zero_grad()
            torch.nn.functional.cross_entropy(network(x[batch]), 9 - y[batch]).backward()
            with torch.no_grad():
                for parameter in network.parameters():
                    assert parameter.grad is not None
                    parameter.sub_(0.1 * 0.977**epoch * parameter.grad)
    update = torch.nn.utils.parameters_to_vector(network.parameters()).detach() - attacked.initial_weights()
    torch.testing.assert_close(flipped, update, rtol=1e-3, atol=1e-5)


def test_results_of_a_mirror(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """`summary.json` has what scikit-learn's confusion matrices of the exported models have."""
    config = ("--config", "adversaries/label_flip.yaml", "--adversaries.classes", "mirrored")
    ended = rffl(*DIGITS, *config, "--server", "Standalone", "--trainer.max_epochs", 4)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    summary = json.loads((folder / "summary.json").read_text())
    network, kept, success = Perceptron(64, 64, 10), [], []
    x, y = whole(digits(Federation(participants=5)).test_dataloader())
    for participant in range(6):
        network.load_state_dict(torch.load(folder / "weights" / f"participant_{participant}.pt", weights_only=True))
        answers = network(x).argmax(1)
        kept.append(float((answers == y).double().mean()))
        success.append(float((answers == 9 - y).double().mean()))
    assert summary["target_accuracy"] == pytest.approx(np.mean(kept[:5]), abs=1e-6)
    assert summary["attack_success"] == pytest.approx(np.mean(success[:5]), abs=1e-6)
    assert success[5] > 0.5 > max(success[:5])


def of_the_paper(n: int, f: int) -> float:
    """The largest z with Phi(z) < (n - f - s) / (n - f), Baruch et al. 2019, Algorithm 3, where an attack is one."""
    s = int(np.floor(n / 2 + 1)) - f
    return max(0.0, float(norm.ppf((n - f - max(s, 1)) / (n - f))))


@settings(derandomize=True, database=None, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), honest=st.integers(1, 60), adversaries=st.integers(1, 60))
def test_alie_of_the_paper(seed: int, honest: int, adversaries: int) -> None:
    """What is uploaded is not the mean less the paper's z standard deviations, for any number of either."""
    known = drawn(honest, 50, seed=seed)
    z = of_the_paper(honest + adversaries, adversaries)
    expected = known.numpy().mean(0) - z * known.numpy().std(0)
    np.testing.assert_allclose(sent(ALIE(z="paper"), torch.zeros(50), known, adversaries), expected, atol=1e-12)


def test_alie_of_the_paper_by_hand() -> None:
    """24 of 50 need 2 of the other 26 for a majority, and z is that of 24 / 26; two of ten need half of the others."""
    known = drawn(26, 50)
    expected = known.mean(0) - 1.4261 * known.std(0, correction=0)
    torch.testing.assert_close(sent(ALIE(z="paper"), torch.zeros(50), known, 24), expected, atol=2e-4, rtol=0)
    torch.testing.assert_close(sent(ALIE(z="paper"), torch.zeros(50), known[:8], 2), known[:8].mean(0))
    majority = sent(ALIE(z="paper"), torch.zeros(50), known[:4], 9)
    torch.testing.assert_close(majority, known[:4].mean(0) - 0.6745 * known[:4].std(0, correction=0), atol=1e-4, rtol=0)


@simulates
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_alie_counts_who_uploads(participation: float) -> None:
    """n and f are those of the round, and an adversary of another kind is one too."""
    server = RecordedFedAvg()
    federate(server, [ALIE(z="paper"), Rescale(factor=-1), ALIE(z="paper")], participation=participation, rounds=4)
    found = []
    for uploads, senders in server.seen:
        known = uploads[[k for k, i in enumerate(senders) if i < 5]].double()
        for k in (k for k, i in enumerate(senders) if i in (5, 7) and len(known)):
            z = of_the_paper(len(senders), len(senders) - len(known))
            torch.testing.assert_close(
                uploads[k].double(), known.mean(0) - z * known.std(0, correction=0), atol=1e-6, rtol=1e-5
            )
            found.append(z)
    assert len(found) >= 3
    assert max(found) > 0.25


@pytest.mark.parametrize("scale", [0.5, 1.0, 5.0, 100.0])
def test_a_scaled_backdoor(scale: float) -> None:
    """The update is uploaded so many times."""
    update = drawn(2000)
    np.testing.assert_array_equal(sent(Backdoor(scale=scale), update).numpy(), update.numpy() * scale)


def test_a_scaled_backdoor_in_a_run() -> None:
    """It trains as without a scale, and what the server has of it is so many times as long; the mean then is its model.

    With six of six its update is what the mean of all moves by, but for a sixth of the honest five's.
    """
    servers = {scale: RecordedFedAvg() for scale in (1.0, 6.0)}
    for scale, server in servers.items():
        module = federate(server, [Backdoor(scale=scale)], rounds=1)
    (plain, _), (scaled, _) = (server.seen[0] for server in servers.values())
    assert torch.equal(scaled[:5], plain[:5])
    torch.testing.assert_close(scaled[5], 6 * plain[5])
    moved = module.cohort.weights[0] - module.initial_weights()
    weights = torch.tensor(servers[6.0].task.examples) / sum(servers[6.0].task.examples)
    torch.testing.assert_close(moved, plain[5] * 6 * weights[5] + weights[:5] @ plain[:5], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        *((lambda x=x: Rescale(factor=x), f"factor of Rescale .* got {x}") for x in (float("nan"), float("inf"))),
        *((lambda x=x: Backdoor(scale=x), f"scale of Backdoor .* got {x}") for x in (0, -1.0, float("inf"))),
        (lambda: ALIE(z=cast("Any", "papers")), r"\.z of ALIE to be a number or paper, .* did you mean paper\?"),
        (lambda: LabelFlip(classes=cast("Any", "all")), r"\.classes of LabelFlip to be one of one, mirrored, but"),
    ],
)  # fmt: skip
def test_what_means_nothing(make: Callable[[], Adversary], named: str) -> None:
    """An option out of its range is taken, or the sentence does not name the attack, the option and the value."""
    with pytest.raises(UserError, match=named):
        make()


VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "rescale": ("rescale", {"factor": -1}, {"variant": "released", "factor": -1.0}),
    "label_flip": ("label_flip", {"classes": "mirrored"}, {"source": 1, "target": 7, "classes": "mirrored"}),
    "alie": ("alie", {"z": "paper"}, {"z": "paper"}),
    "backdoor": (
        "backdoor",
        {"scale": 4},
        {"target": 0, "share": 0.5, "size": 2, "value": 2.0, "scale": 4.0},
    ),
}


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("variant", VARIANTS)
def test_behind_a_configuration_and_on_two_ranks(rffl: Callable[..., Ended], tmp_path: Path, variant: str) -> None:
    """One word behind the attack's configuration asks for it, the saved one has it, and ranks change no bit."""
    config, options, expected = VARIANTS[variant]
    said = [word for name, value in options.items() for word in (f"--adversaries.{name}", str(value))]
    words = (*DIGITS, "--server", "FedAvg", "--config", f"adversaries/{config}.yaml", *said,
             "--federation.adversaries", "3", "--trainer.max_epochs", "2")  # fmt: skip
    assert rffl(*words).code == 0
    ended = forked(2, *words, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    one, two = only_run(tmp_path / "runs"), only_run(tmp_path / "two")
    saved = yaml.safe_load((one / "config.yaml").read_text())["adversaries"]
    assert [attack["init_args"] for attack in saved] == [expected]
    for path in sorted((one / "weights").iterdir()):
        states = [torch.load(folder / "weights" / path.name, weights_only=True) for folder in (one, two)]
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
