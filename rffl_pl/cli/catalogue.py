"""What there is to choose from, read from the package's files: neither torch nor a room is imported for a list."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

from rffl_pl.errors import UserError, nearest

PACKAGE = Path(__file__).parent.parent
CONFIGS = PACKAGE / "configs"
KINDS = {  # what `rffl list` lists: where its classes live, and what all of them descend from
    "servers": ("servers", "Server"),
    "adversaries": ("adversaries", "Adversary"),
    "datamodules": ("datamodules", "FederatedDataModule"),
    "splits": ("datamodules", "Split"),
    "augmentations": ("datamodules", "Augmentation"),
    "networks": ("models", "Module"),
}
LISTED = (*KINDS, "configs")


@dataclass(frozen=True)
class _Class:
    """A class as its file says it."""

    node: ast.ClassDef
    file: Path

    @property
    def parents(self) -> set[str]:
        """Last names of its bases: ``Module`` of ``nn.Module``; torch's containers are modules."""
        bases = [base.value if isinstance(base, ast.Subscript) else base for base in self.node.bases]
        names = {ast.unparse(base).rpartition(".")[2] for base in bases}
        return names | ({"Module"} if "Sequential" in names else set())

    @property
    def is_base(self) -> bool:
        """Whether it is there to be derived from: so it says, lives in a room's ``base.py`` or has abstract methods."""
        if (ast.get_docstring(self.node) or "").startswith("Base of"):
            return True
        abstract = any("abstractmethod" in ast.unparse(decorator) for decorator in _decorators(self.node))
        return abstract or self.file.name == "base.py"


def listed(kind: str) -> dict[str, str]:
    """Name and first sentence of everything of one kind, as ``--server`` and the like take it, sorted by name."""
    if kind == "configs":
        return {name: _first_line(path) for name, path in configs().items()}
    room, root = KINDS[kind]
    classes = _classes_in(PACKAGE / room)
    chosen = {
        name: _first_sentence(found.node)
        for name, found in classes.items()
        if not name.startswith("_") and not found.is_base and _descends(name, root, classes)
    }
    return dict(sorted(chosen.items(), key=lambda item: item[0].lower()))


def options(kind: str) -> set[str]:
    """Names of the arguments that some class of one kind takes, itself or by what it derives from."""
    classes, family = _classes_in(PACKAGE / KINDS[kind][0]), {*listed(kind)}
    while further := {parent for name in family for parent in classes[name].parents & classes.keys()} - family:
        family |= further
    makers = (item for name in family for item in classes[name].node.body if isinstance(item, ast.FunctionDef))
    taken = (maker.args for maker in makers if maker.name == "__init__")
    words = {word.arg for made in taken for word in (*made.args[1:], *made.kwonlyargs)}
    return words - {"federation"}  # which nobody gives


def configs() -> dict[str, Path]:
    """The package's configurations by name: ``mnist.yaml``, ``servers/krum.yaml``."""
    paths = sorted(CONFIGS.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
    return {path.relative_to(CONFIGS).as_posix(): path for path in paths}


def config_text(name: str) -> str:
    """One of the package's configurations as it is written.

    Raises:
        UserError: If there is none of that name.
    """
    known = configs()
    if name not in known:
        raise UserError(
            f"Expected one of the package's configurations, but got {name}{nearest(name, known) or '.'} `rffl list "
            "configs` names all."
        )
    return known[name].read_text(encoding="utf-8").rstrip()


@functools.cache
def _classes_in(room: Path) -> dict[str, _Class]:
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(room.rglob("*.py"))}
    return {
        node.name: _Class(node, file)
        for file, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _descends(name: str, root: str, classes: dict[str, _Class]) -> bool:
    parents = classes[name].parents
    return root in parents or any(_descends(parent, root, classes) for parent in parents & classes.keys() - {name})


def _decorators(node: ast.ClassDef) -> list[ast.expr]:
    return [decorator for item in node.body if isinstance(item, ast.FunctionDef) for decorator in item.decorator_list]


def _first_sentence(node: ast.ClassDef) -> str:
    paragraph = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    plain = paragraph.replace(":math:", "").replace("``", "`")
    return re.split(r"(?<=\.)(?<!et al\.) (?=[A-Z`])", plain)[0]


def _first_line(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip().removesuffix(":")
