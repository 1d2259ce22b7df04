"""The options of the commands that train nothing themselves, read with argparse; mistakes are one sentence."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rffl_pl.errors import UserError, check_number, nearest


def expanded(given: str) -> Path:
    """A file or folder; behind an equals sign no shell has replaced what stands for somebody's home."""
    return Path(os.path.expanduser(given))


class Words(argparse.ArgumentParser):
    """A command's options; a mistake is raised, not printed.

    Args:
        command: Its name, ``rffl study``.
        description: What it does.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(command, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        if choice := re.fullmatch(r"argument (--\w+): invalid choice: '?(.*?)'? \(choose from (.*)\)", message):
            choices = choice[3].replace("'", "")
            raise UserError(f"Expected {choice[1]} to be one of {choices}, but got {choice[2]}.")
        if number := re.fullmatch(r"argument (--\w+): invalid int value: '(.*)'", message):
            raise UserError(f"Expected {number[1]} to be a whole number, but got {number[2]}.")
        raise UserError(f"Expected words that {self.prog} knows, but {message}; `{self.prog} --help` lists them.")

    def options(self) -> list[str]:
        """Every option, for completion too."""
        words = [option for action in self._actions for option in action.option_strings]
        return [option for option in words if option.startswith("--")]

    def read(self, args: Sequence[str]) -> argparse.Namespace:
        """What the words say.

        Raises:
            UserError: If one of them is unknown, or a number is none.
        """
        for word in args:
            if not word.isprintable() or not word or any(len(os.fsencode(part)) > 255 for part in word.split("/")):
                raise UserError(f"Expected every word behind {self.prog} to be one line of a name, but got {word!r}.")
        known = self.options()
        for word in args:
            option = word.partition("=")[0]
            number = re.fullmatch(r"-\d*\.?\d+", word)  # a label may be one, and other options say what they expect
            if option.startswith("-") and option not in (*known, "-h") and not number:
                raise UserError(f"Expected an option of {self.prog}, but got {option}{nearest(option, known) or '.'}")
        given = self.parse_args(list(args))
        rounds = getattr(given, "rounds", None)
        if rounds is not None:
            check_number("--rounds", rounds, 1, 10_000_000)
        return given

    def add_cells(self) -> None:
        """The options of commands that run a study's cells."""
        self.add_argument("--reduced", action="store_true", help="the small version, which two cores can run")
        self.add_argument("--seeds", metavar="SEED", type=int, nargs="+", help="instead of the study's")
        self.add_argument("--rounds", type=int, help="communication rounds of every cell, instead of the study's")
        self.add_argument("--jobs", type=int, help="cells, or packs, at a time, each with its share of the cores")
        self.add_argument("--pack", type=int, help="cells of a job that train as one stack, at most: 1")
        self.add_argument("--devices", metavar="GPU", nargs="+", help="GPUs by number; cells take turns on them")
        self.add_argument(
            "--root", type=expanded, default=Path("runs/studies"), help="folder of all cells' folders: %(default)s"
        )
