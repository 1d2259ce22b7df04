"""Every YAML in configs/ parses, instantiates and names a run; overlays compose."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rffl_pl.cli.arguments import FederatedCLI
from rffl_pl.datamodules import POW, FederatedDataModule
from rffl_pl.module import FederatedModule
from tests.conftest import QUICK, ROOT, TORCHTEXTS, Ended, only_run

SERVERS, ATTACKS = (
    sorted(path.stem for path in (ROOT / "configs" / folder).iterdir()) for folder in ("servers", "adversaries")
)
BASES = [
    "digits.yaml", "mnist.yaml", "fashion_mnist.yaml", "emnist.yaml", "cifar10.yaml", "cifar100.yaml", "svhn.yaml",
    "mr.yaml", "sst.yaml",
]  # fmt: skip
OVERLAYS = {"mnist_paper.yaml": "mnist.yaml", "cifar10_paper.yaml": "cifar10.yaml"}
RELEASED = {"cifar10": 200, "mr": 100, "sst": 100}  # rounds by default; the overlay has 200


@pytest.fixture
def instantiated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., FederatedCLI]:
    """Everything a command would run with, not run."""
    monkeypatch.chdir(tmp_path)  # where its run gets a folder

    def made(*args: str) -> FederatedCLI:
        monkeypatch.setattr(sys, "argv", ["rffl_pl", *args])
        return FederatedCLI(
            FederatedModule, FederatedDataModule, subclass_mode_data=True, run=False, auto_configure_optimizers=False
        )

    return made


def test_every_config_is_known_here() -> None:
    """A new file in configs/ must be listed above, so that it is tested; servers and adversaries are, all of them."""
    assert sorted(path.name for path in (ROOT / "configs").glob("*.yaml")) == sorted(
        [*BASES, *OVERLAYS, *(f"{name}_released.yaml" for name in RELEASED)]
    )
    assert {path.parent.name for path in (ROOT / "configs").glob("*/*.yaml")} == {
        "servers", "adversaries", "studies", "sweeps",
    }  # fmt: skip


def leaves_finite_models(
    rffl: Callable[..., Ended],
    root: Path,
    server: str,
    attack: str,
    *words: object,
    adversaries: int = 2,
    rounds: int = 1,
) -> str:
    """Run a server against adversaries; the configuration of the run."""
    files = ("configs/digits.yaml", f"configs/servers/{server}.yaml", f"configs/adversaries/{attack}.yaml")
    configs = [argument for file in files for argument in ("--config", file)]
    length = ("--federation.adversaries", adversaries, "--trainer.max_epochs", rounds)
    ended = rffl("fit", *configs, *words, *length, *QUICK)
    assert ended.code == 0, ended.err
    run = only_run(root / "runs")
    for path in (run / "weights").iterdir():
        assert all(value.isfinite().all() for value in torch.load(path, weights_only=True).values())
    return (run / "config.yaml").read_text()


@pytest.mark.parametrize("server", SERVERS)
def test_every_server_trains_against_the_attacks_of_the_paper(
    rffl: Callable[..., Ended], tmp_path: Path, server: str
) -> None:
    """Overlays compose: a round under each server, one adversary of each kind for time, leaves finite models."""
    others = ("FreeRider", "Rescale", "SignRandom", "ValueInvert")
    beside = [f"--adversaries+={kind}" for kind in others]
    run = leaves_finite_models(rffl, tmp_path, server, "label_flip", *beside, adversaries=5)
    assert all(kind in run for kind in ("LabelFlip", *others))


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_what_its_file_is_named_after(rffl: Callable[..., Ended], tmp_path: Path, attack: str) -> None:
    """And two rounds with it leave finite models."""
    named = {"scaled_noise": "FreeRider", "alie": "ALIE", "fang_krum": "Fang", "label_flip_uniform": "LabelFlip"}
    kind = named.get(attack) or attack.title().replace("_", "")
    assert f"rffl_pl.adversaries.{kind}" in leaves_finite_models(rffl, tmp_path, "rffl", attack, rounds=2)


@pytest.mark.parametrize("name", BASES)
def test_a_config_instantiates(instantiated: Callable[..., FederatedCLI], name: str) -> None:
    """Network, data, server and optimizer are those of the file, and the network fits the data's classes."""
    plain = ("--model.optimizer.fused", "false") if TORCHTEXTS and name in ("mr.yaml", "sst.yaml") else ()
    words = ("--config", str(ROOT / "configs" / name), "--federation.participants", "3", *plain)
    cli = instantiated(*words)
    assert cli.model.federation.honest == 3
    assert cli.datamodule.federation is cli.model.federation
    assert list(cli.model.network.parameters())[-1].shape == (cli.datamodule.num_classes,)
    kind = torch.optim.Adam if name in ("mr.yaml", "sst.yaml") else torch.optim.SGD
    assert isinstance(cli.model.optimizer(cli.model.network.parameters()), kind)


def test_an_overlay_brings_nothing_of_the_server_before(instantiated: Callable[..., FederatedCLI]) -> None:
    """FedAvg over RFFL's `preset: released` is FedAvg, not its released variant, also by name alone."""
    overlay = ("--config", str(ROOT / "configs" / "servers" / "fedavg.yaml"))
    for chosen in (overlay, ("--server", "FedAvg")):
        cli = instantiated("--config", str(ROOT / "configs" / "mnist.yaml"), *chosen)
        server = cli.config_init["reputation"].server
        assert type(server).__name__ == "FedAvg"
        assert server.variant == "fedavg"


@pytest.mark.parametrize(("name", "base"), OVERLAYS.items())
def test_an_overlay_composes(instantiated: Callable[..., FederatedCLI], name: str, base: str) -> None:
    """The paper's schedule over the released one: the overlay's values win, the rest stays."""
    configs = [argument for file in (base, name) for argument in ("--config", str(ROOT / "configs" / file))]
    cli = instantiated(*configs)
    server = cli.config_init["reputation"].server
    assert server.switches.normalise
    assert cli.model.schedule.epochs == 1
    assert cli.model.schedule.rate(3, 0) == pytest.approx(0.977**3)
    assert isinstance(cli.datamodule.split, POW)
    assert cli.datamodule.batch_size in (16, 64)
    assert Path(cli.config["config"][0].absolute).name == base


@pytest.mark.parametrize("name", RELEASED)
def test_the_default_learns_to_its_end_and_the_released_schedule_is_an_overlay(
    instantiated: Callable[..., FederatedCLI], name: str
) -> None:
    """By default a tenth of the learning rate or about that is left at half time; of the released one a thousandth."""
    base = ("--config", str(ROOT / "configs" / f"{name}.yaml"))
    cli = instantiated(*base)
    assert cli.trainer.max_epochs == RELEASED[name]
    assert cli.model.schedule.rate(RELEASED[name] // 2, 0) > 0.09
    overlaid = instantiated(*base, "--config", str(ROOT / "configs" / f"{name}_released.yaml"))
    assert overlaid.trainer.max_epochs == 200
    assert overlaid.model.schedule.rate(100, 0) == pytest.approx(0.977**300)
    assert overlaid.model.schedule.epochs == cli.model.schedule.epochs == 3
    assert overlaid.config_init["reputation"].server.gamma == cli.config_init["reputation"].server.gamma
