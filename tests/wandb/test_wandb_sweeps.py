"""configs/sweeps/: what W&B's own code makes of them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args, load_sweep_config

from rffl_pl.cli.resolve import Resolver
from tests.conftest import QUICK, ROOT, Ended, only_run

SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))
PARAMETERS = {
    "alpha": {"server.alpha"},
    "beta": {"server.threshold", "server.removal_from"},
    "gamma": {"server.gamma"},
    "local_epochs": {"model.local_epochs"},
}


def loaded(file: Path) -> dict[str, Any]:
    """A sweep as `wandb sweep` reads it."""
    found = load_sweep_config(str(file))
    assert found is not None
    return found


def combinations(sweep: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every choice of the grid."""
    values = {name: parameter["values"] for name, parameter in sweep["parameters"].items()}
    yield from (dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values()))


def command(sweep: dict[str, Any], chosen: dict[str, Any]) -> list[str]:
    """The words that W&B's agent starts."""
    given = create_sweep_command_args({"args": {name: {"value": value} for name, value in chosen.items()}})
    macros = {"${env}": ["/usr/bin/env"], "${program}": [sweep["program"]], "${args}": given["args"]}
    return [part for word in create_sweep_command(list(sweep["command"])) for part in macros.get(word, [str(word)])]


def test_there_is_one_for_each_of_the_papers_parameters() -> None:
    """By its name, and with three seeds at least."""
    assert {file.stem: loaded(file)["parameters"].keys() - {"seed_everything"} for file in SWEEPS} == PARAMETERS
    assert all(len(loaded(file)["parameters"]["seed_everything"]["values"]) >= 3 for file in SWEEPS)


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_wandb_finds_nothing_wrong(file: Path) -> None:
    """W&B's own schema and grid search take the file; every combination comes up once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is written for an older pydantic
        sweeps = pytest.importorskip("sweeps", reason="W&B's validator is in the extra test")
    sweep = loaded(file)
    assert sweeps.schema_violations_from_proposed_config(sweep) == []
    assert sweeps.schema_violations_from_proposed_config({**sweep, "method": "guess"})
    total = len(list(combinations(sweep)))
    runs = sweeps.next_runs(sweeps.SweepConfig(sweep), [], n=total + 1)
    assert runs[total] is None
    found = [{name: item["value"] for name, item in run.config.items()} for run in runs[:total]]
    assert sorted(map(repr, map(sorted_items, found))) == sorted(map(repr, map(sorted_items, combinations(sweep))))


def sorted_items(chosen: dict[str, Any]) -> list[tuple[str, Any]]:
    """In an order of no matter."""
    return sorted(chosen.items())


@pytest.fixture(scope="module")
def resolve() -> Resolver:
    """The package's parser."""
    return Resolver()


@pytest.mark.slow
@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_every_combination_is_a_run(file: Path, resolve: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's words are those of `rffl fit`, and each parameter arrives where it belongs."""
    monkeypatch.chdir(file.parent)  # as anywhere: the configurations are the package's
    sweep = loaded(file)
    for chosen in combinations(sweep):
        env, program, fit, *words = command(sweep, chosen)
        assert (env, program, fit) == ("/usr/bin/env", "rffl", "fit")
        resolved = resolve(words)
        assert resolved["seed_everything"] == chosen["seed_everything"]
        for name in PARAMETERS[file.stem]:
            group, _, option = name.partition(".")
            options = resolved[group].get("init_args", resolved[group])
            assert options[option] == chosen[name]


def test_an_agents_run_trains(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """The last choice of a grid, on data that is at hand, is the run of its words."""
    sweep = loaded(ROOT / "configs" / "sweeps" / "beta.yaml")
    *_, chosen = combinations(sweep)
    words = command(sweep, chosen)[2:]
    at_hand = ["digits.yaml" if word == "mnist.yaml" else word for word in words]
    ended = rffl(*at_hand, *QUICK, "--trainer.max_epochs", 1)
    assert ended.code == 0, ended.err
    config = yaml.safe_load((only_run(tmp_path / "runs") / "config.yaml").read_text())
    assert (config["server"]["init_args"]["removal_from"], config["seed_everything"]) == ("never", 3)


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_a_users_own_copy_is_printed(rffl: Callable[..., Ended], file: Path) -> None:
    """The list says what it is, and one word more prints the file, as `wandb sweep` needs it from a wheel."""
    assert f"sweeps/{file.name} " in rffl("list", "configs").out
    assert "A sweep of W&B over" in file.read_text().splitlines()[0]
    printed = rffl("list", "configs", f"sweeps/{file.name}")
    assert (printed.code, printed.out) == (0, file.read_text())
    ended = rffl("list", "configs", f"sweeps/{file.stem}x.yaml")
    assert ended.code == 2
    assert f"did you mean sweeps/{file.name}" in ended.err
