"""What the words of a command line stand for, without running them."""

from __future__ import annotations

import json
from typing import Any

from rffl_pl.cli.arguments import FederatedCLI, made
from rffl_pl.cli.configurations import with_files
from rffl_pl.cli.linked import check_linked
from rffl_pl.cli.mistakes import mistake_behind, sentence
from rffl_pl.cli.process import be_quiet
from rffl_pl.errors import UserError


class OnlyParsed(FederatedCLI):
    """Parses and stops there."""

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        return {"fit": FederatedCLI.subcommands()["fit"]}

    def _set_seed(self) -> None:
        """Nothing: it would stay in the environment."""

    def before_instantiate_classes(self) -> None:
        """Nothing: nothing is made."""

    def instantiate_classes(self) -> None:
        """Nothing."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Nothing."""


class Resolver:
    """Every option that words of ``rffl fit`` stand for; its parser is built once."""

    def __init__(self) -> None:
        self._cli: FederatedCLI | None = None

    def __call__(self, words: list[str]) -> dict[str, Any]:
        """The options by group, as plain values.

        Raises:
            UserError: If the words say no run.
        """
        be_quiet()
        try:
            full = with_files(["fit", *words])
            check_linked(full)
            if self._cli is None:
                self._cli = made(OnlyParsed, full)
            self._cli.parse_arguments(self._cli.parser, full)
            options = self._cli._parser("fit").dump(self._cli.config["fit"], format="json", skip_validation=True)
            return dict(json.loads(options))
        except Exception as error:
            mistake = mistake_behind(error)
            if mistake is None:
                raise
            raise UserError(sentence(mistake)) from error
