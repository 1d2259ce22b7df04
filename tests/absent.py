"""Has a program find no packages of some names, as where nothing can be installed.

python -m tests.absent NAMES PROGRAM [ARGUMENTS]: names with commas between, a module or a file.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from typing import Any


def hide(names: Iterable[str]) -> None:
    """Neither their modules nor what is known of their versions can be found from now on."""
    hidden = frozenset(names)

    class Without(PathFinder):
        """Looks where Python looks, and overlooks some."""

        @classmethod
        def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
            return None if fullname.partition(".")[0] in hidden else super().find_spec(fullname, path, target)

        @classmethod
        def find_distributions(cls, *given: Any, **options: Any) -> Any:
            found = super().find_distributions(*given, **options)
            return (one for one in found if one.metadata["Name"].replace("-", "_") not in hidden)

    sys.meta_path[sys.meta_path.index(PathFinder)] = Without


if __name__ == "__main__":
    _, listed, program, *rest = sys.argv
    hide(listed.split(","))
    sys.argv = [program, *rest]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    reached = {*listed.split(",")} & {name.partition(".")[0] for name in sys.modules}
    assert not reached, reached
