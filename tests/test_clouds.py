"""The examples for Kubernetes and SkyPilot: what they say is what those take, and their command is one of ours."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.conftest import ROOT, Ended

FILES = {"trainjob": "kubernetes/trainjob.yaml", "skypilot": "skypilot.yaml"}


def example(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "examples" / FILES[name]).read_text()))


def mistakes(name: str, content: dict[str, Any]) -> list[str]:
    """What the published schema has against a file."""
    schema = yaml.safe_load((ROOT / "tests" / "schemas" / f"{name}.yaml").read_text())
    Draft202012Validator.check_schema(schema)
    return [error.message for error in Draft202012Validator(schema).iter_errors(content)]


def words(name: str) -> list[str]:
    """The command that an example runs."""
    content = example(name)
    if name == "trainjob":
        return [*content["spec"]["trainer"]["command"], *content["spec"]["trainer"]["args"]]
    return shlex.split(content["run"].replace("\\\n", " "))


@pytest.mark.parametrize("name", FILES)
def test_an_example_is_what_is_taken(name: str) -> None:
    """By the published schema."""
    assert mistakes(name, example(name)) == []


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("trainjob", ("spec", "trainer", "numNode"), 2),
        ("trainjob", ("spec", "trainer", "numNodes"), "two"),
        ("trainjob", ("spec", "runtimeRef"), {"kind": "ClusterTrainingRuntime"}),
        ("trainjob", ("spec", "runtimePatches"), [{"manager": "", "trainingRuntimeSpec": {}}]),
        ("skypilot", ("resources", "gpus"), 4),
        ("skypilot", ("num_nodes",), "2"),
        ("skypilot", ("envs", "OMP_NUM_THREADS"), 4),
    ],
)
def test_a_slip_of_the_pen_is_seen(name: str, path: tuple[str, ...], value: object) -> None:
    """The test above would notice a wrong name, a wrong type and what is missing."""
    content = copy.deepcopy(example(name))
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert len(mistakes(name, content)) == 1


def test_the_job_and_its_runtime_meet() -> None:
    """What the job mounts is a volume that it has, in the container that Trainer starts."""
    (patch,) = example("trainjob")["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert job["name"] == container["name"] == "node"
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("name", FILES)
def test_the_command_is_understood(rffl: Callable[..., Ended], name: str) -> None:
    """Every option exists, a run that is put back goes on in its own name, and it lies where all nodes see it."""
    command = words(name)
    assert command[0] == "torchrun"
    ours = command[command.index("rffl_pl") + 1 :]
    ended = rffl(*ours, "--print_config")
    assert ended.code == 0, ended.err
    config = yaml.safe_load(ended.out)
    assert config["ckpt_path"] == "last"
    assert config["run"]["name"] == "rffl"
    assert any("/shared/runs" in word for word in ours)
