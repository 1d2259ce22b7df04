"""The rooms of the house: who may import whom, and where torch.distributed may be named."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import rffl_pl

PACKAGE = Path(rffl_pl.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# An import may only ever point down this list, or stay inside a room.
ROOMS = [
    "__main__", "cli", "comparison", "dashboard", "paper", "studies", "trainer", "callbacks", "module", "rehearsal",
    "evaluation", "round", "strategy", "runs", "datamodules", "adversaries", "training", "sharded", "exchange",
    "servers", "metrics", "models", "federation", "devices", "launch", "functional", "configured", "files", "errors",
    "__init__",
]  # fmt: skip


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(source: str, package: str) -> set[str]:
    """Full dotted names of all that a file in ``package`` imports, anywhere in it, relative imports resolved."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*parents, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def rooms_entered(source: str, package: str) -> set[str]:
    """The rooms of this package that a file imports from."""
    paths = [name.split(".") for name in imported_names(source, package)]
    entered = {path[1] if len(path) > 1 else "__init__" for path in paths if path[0] == "rffl_pl"}
    return {room if room in ROOMS else "__init__" for room in entered}


def names_distributed(source: str) -> bool:
    """Whether code, not prose, names torch.distributed."""
    imported = any((name + ".").startswith("torch.distributed.") for name in imported_names(source, "rffl_pl"))
    used = any(
        isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed"
        for node in ast.walk(ast.parse(source))
    )
    return imported or used


def package_of(file: Path) -> str:
    return ".".join(["rffl_pl", *file.relative_to(PACKAGE).parts[:-1]])


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_only_point_down(file: Path) -> None:
    """A file imports from its own room and from rooms below it, and it lives in a room that is on the list."""
    assert room_of(file) in ROOMS
    here = ROOMS.index(room_of(file))
    upward = {room for room in rooms_entered(file.read_text(), package_of(file)) if ROOMS.index(room) < here}
    assert upward == set()


def test_no_file_imports_itself_by_others() -> None:
    """Within a room imports point one way, too: who has read a file's imports has read all that it stands on."""
    files = {".".join(["rffl_pl", *file.relative_to(PACKAGE).with_suffix("").parts]): file for file in FILES}
    files = {name.removesuffix(".__init__"): file for name, file in files.items()}
    imports = {
        name: {max((one for one in files if f"{named}.".startswith(f"{one}.")), key=len) for named in theirs}
        for name, file in files.items()
        if (theirs := {one for one in at_the_top(file) if one.partition(".")[0] == "rffl_pl"})
    }
    rooms = {name: {other for other in others if other != name} for name, others in imports.items()}
    assert len([*TopologicalSorter(rooms).static_order()]) > 100


def at_the_top(file: Path) -> set[str]:
    """What a file imports as soon as it is imported itself."""
    tree = ast.parse(file.read_text())
    first = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return imported_names("\n".join(map(ast.unparse, first)), package_of(file))


def test_contributors_read_of_every_room() -> None:
    """The table of CONTRIBUTING.md names them in this order."""
    lines = (PACKAGE.parent / "CONTRIBUTING.md").read_text().splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| `")]
    named = [name.removesuffix("/").removesuffix(".py") for cell in cells for name in re.findall("`([^`]+)`", cell)]
    assert named == [room for room in ROOMS if room != "__init__"]


def test_only_exchange_and_strategy_name_torch_distributed() -> None:
    """One room knows that other ranks exist, and one starts them."""
    naming = {name_of(file) for file in FILES if names_distributed(file.read_text())}
    assert naming <= {"exchange.py", "strategy.py"}
    assert "exchange.py" in naming


def test_functional_is_pure() -> None:
    """The functional room imports nothing of the package but itself and the error."""
    files = [file for file in FILES if room_of(file) == "functional"]
    entered = set().union(*(rooms_entered(file.read_text(), package_of(file)) for file in files))
    assert len(files) > 1
    assert entered <= {"functional", "errors"}


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("import rffl_pl.cli", {"cli"}),
        ("from rffl_pl import module, cli", {"module", "cli"}),
        ("from rffl_pl import __version__", {"__init__"}),
        ("from rffl_pl.servers.base import Server", {"servers"}),
        ("def f():\n    from rffl_pl.exchange import Exchange", {"exchange"}),
        ("from . import sparsify", {"functional"}),
        ("from .wire import pack", {"functional"}),
        ("from ..module import FederatedModule", {"module"}),
        ("from .. import strategy", {"strategy"}),
        ("import torch\nfrom rffl_plus.cli import main", set()),
    ],
)
def test_every_form_of_import_is_seen(source: str, rooms: set[str]) -> None:
    """The tests above would notice an import however it is written."""
    assert rooms_entered(source, "rffl_pl.functional") == rooms


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("import torch.distributed as dist", True),
        ("from torch import distributed", True),
        ("from torch.distributed.nn import all_reduce", True),
        ("import torch\ntorch.distributed.barrier()", True),
        ("import torch\ntorch.distributions.Gamma(1, 1)", False),
        ('"""Works with torch.distributed."""', False),
    ],
)
def test_every_way_to_name_torch_distributed_is_seen(source: str, named: bool) -> None:
    """Likewise for torch.distributed; prose and torch.distributions do not count."""
    assert names_distributed(source) == named
