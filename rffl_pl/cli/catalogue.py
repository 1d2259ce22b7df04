"""What there is to choose from, read from the package's files: neither torch nor a room is imported for a list."""

from __future__ import annotations

import ast
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from rffl_pl.errors import UserError, check_keys, nearest

PACKAGE = Path(__file__).parent.parent
CONFIGS = PACKAGE / "configs"
KINDS = {  # what `rffl list` lists: where its classes live, and what all of them descend from
    "servers": ("servers", "Server"),
    "adversaries": ("adversaries", "Adversary"),
    "datamodules": ("datamodules", "FederatedDataModule"),
    "splits": ("datamodules", "Split"),
    "networks": ("models", "Module"),
}
GROUPS = ("federation", "model", "run", "standalone", "trainer")
"""What a configuration has several options of, and that is no class to be chosen."""


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
    return known[name].read_text().rstrip()


def config_file(given: str) -> str:
    """The file that ``--config`` means: the user's own, else the package's of that name.

    Raises:
        UserError: If there is neither, or it says no options.
    """
    known = configs()
    name = given.removeprefix("./").removeprefix("configs/")
    if os.path.isfile(given) or given.startswith("{"):
        _check_config(given)
        return given
    if name in known:
        return str(known[name])
    near = nearest(name, known, likeness=0.75) or "."
    said = given if given.isprintable() and given else repr(given)
    raise UserError(
        f"Expected --config to be a file or one of the package's, but got {said}{near} `rffl list configs` names all."
    )


def _check_config(given: str) -> None:
    """See that a file, or the text itself, says options.

    Raises:
        UserError: If not.
    """
    import yaml  # a list needs none

    try:
        text = given if given.startswith("{") else Path(given).read_text(encoding="utf-8")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        content = yaml.load(text, Loader=loader)
        repr(content)  # what is nested too deeply for that is so for the parser
        check_keys(yaml.compose(text, Loader=loader), f"--config {given}")
    except UserError:
        raise
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"Expected --config {given} to be YAML, but {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise UserError(f"Expected --config {given} to name options, but it holds {type(content).__name__}.")
    for group in GROUPS:
        if not isinstance(content.get(group), dict | None):
            raise UserError(
                f"Expected {group} in --config {given} to have a name and a value each, but got {content[group]!r}."
            )


def with_files(args: list[str]) -> list[str]:
    """The words of a command line with every configuration's name replaced by its file."""
    words = []
    for before, word in itertools.pairwise(["", *args]):
        option, equals, name = word.partition("=")
        if before in ("-c", "--config"):
            word = config_file(word)
        elif equals and option == "--config":
            word = f"--config={config_file(name)}"
        words.append(word)
    return words


def _classes_in(room: Path) -> dict[str, _Class]:
    trees = {file: ast.parse(file.read_text()) for file in sorted(room.rglob("*.py"))}
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
    return path.read_text().partition("\n")[0].removeprefix("#").strip().removesuffix(":")
