"""The parser of options, and how ``--help`` shows them: a federation's first, Lightning's last, in plain words."""

from __future__ import annotations

import re
import unicodedata
from argparse import SUPPRESS, Action
from typing import Any

from jsonargparse import DefaultHelpFormatter
from lightning.pytorch.cli import LightningArgumentParser

from rffl_pl.cli import catalogue
from rffl_pl.cli.help import COMMANDS
from rffl_pl.trainer import NOT_OF_ONE_MODEL, RANKS, WHOLE_ROUNDS

TITLES = {
    "federation": "federation: who takes part",
    "data": "data: the examples and how they are divided; rffl fit --data.help Digits has the options of one",
    "server": "server: what it makes of the uploads; rffl fit --server.help RFFL has the options of one",
    "model": "model: what participants train, and how",
    "run": "run: what it leaves, in <root>/<name>/<date and time>",
    "standalone": "standalone: what everybody reaches alone, trained after the run; fairness goes by it",
    "trainer": "trainer: Lightning's",
}
"""The groups of options in the order in which they are shown; one that is not here has none of its own."""

_GO_ON = (
    "What to go on from: `last`, the newest checkpoint of a run of this name and root, in its folder; or that "
    "of any run, as runs/NAME/TIME/checkpoints/last.ckpt, in a new one."
)
_SAID = {
    "config": "A file of options, of yours or of the package (rffl list configs); a later one overlays it.",
    "seed_everything": "The seed of everything; true draws one.",
    "data": "A data set by its name, or your own as my_package.MyData; its options as --data.batch_size 16.",
    "server": "A server by its name, or your own as my_package.MyServer; its options as --server.gamma 0.3.",
    "adversaries": "What each adversary does, in turn: '[ALIE, Mimic]' is a list, and --adversaries+=ALIE adds to one.",
    "ckpt_path": "Whose models: the checkpoints of a run, its last.ckpt or its folder.",
    "trainer.precision": "In which numbers is computed: 32-true or bf16-mixed; uploads are float32.",
    "trainer.logger": "A logger in place of W&B's; metrics.csv is written anyway.",
    "trainer.callbacks": "Callbacks: Lightning's by their names, or your own; --trainer.callbacks+=Timer adds one.",
    "trainer.fast_dev_run": "A trial: one round, and one batch of what is measured.",
    "trainer.max_epochs": "So many communication rounds; -1 for as many as callbacks or --trainer.max_time allow.",
    "trainer.max_steps": "As --trainer.max_epochs, since a round is one step; the lower of the two holds.",
    "trainer.min_epochs": "So many rounds are played whoever asks to stop early.",
    "trainer.min_steps": "As --trainer.min_epochs.",
    "trainer.check_val_every_n_epoch": "Models are measured after every so many rounds.",
    "trainer.num_sanity_val_steps": "So many batches are measured before the first round.",
    "trainer.log_every_n_steps": "Every so many rounds loggers have what Lightning's log is given; rounds always.",
    "trainer.enable_checkpointing": "Whether rounds leave checkpoints to go on from; null is true.",
    "trainer.enable_progress_bar": "Whether to show how far a run is; null is true.",
    "trainer.enable_model_summary": "Whether to list the network's layers at the start.",
}
"""Help for options that Lightning explains in its own words, or nobody explains."""
_REFUSED = {
    f"--trainer.{name}"
    for name in {*RANKS, *WHOLE_ROUNDS, *NOT_OF_ONE_MODEL, "default_root_dir", "use_distributed_sampler"}
    - {"fast_dev_run"}
}
"""Lightning's options that are decided here."""
OUTER = {
    "data.split": "--data Digits ",
    "data.augment": "--data CIFAR10 ",
    "server.rule": "--server NNM ",
    "server.optimizer": "--server FedOpt ",
}
"""By option whose class is chosen inside another class: an example of that other class, as it is typed before it."""
_INNER = {key.rpartition(".")[2]: key for key in OUTER}
"""The same options by their last name, with which the parser's help of an inner class begins its options."""
_SYMBOLS = {
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "leftarrow": "←", "cdot": "·", "sum": "Σ", "|": "‖",
}  # fmt: skip
"""What formulas of docstrings are made of beside Greek letters and words."""


class Parser(LightningArgumentParser):
    """Lightning's, whose help is plain; that of a class begins with what it is, for no command is of it alone."""

    def __init__(self, *args: Any, usage: str | None = SUPPRESS, description: str | None = None, **kwargs: Any) -> None:
        said = {"usage": usage, "formatter_class": PlainHelp, "description": _as_typed(description or "") or None}
        whole = {"allow_abbrev": False}  # of classes and groups too, whose parsers are made without a word
        super().__init__(*args, **said | whole | kwargs)
        self.shown: list[Any] = []
        """The groups that help shows, in its order; none for all as they are."""

    def format_help(self, *args: Any) -> str:
        """The help; in the parser itself the order of groups is that in which classes are made."""
        every = self._action_groups
        self._action_groups = self.shown or [*every]
        try:
            return super().format_help(*args)
        finally:
            self._action_groups = every


class PlainHelp(DefaultHelpFormatter):
    """Of the classes that an option takes the package's alone, by the names that are typed; no markup."""

    def _expand_help(self, action: Action) -> str:
        known = _no_classes if action.dest.endswith(("loss", "rule")) else _our_classes  # which take not all of those
        return plain(re.sub(r", known subclasses: ([^)]*)\)$", known, super()._expand_help(action)))

    def _format_action(self, action: Action) -> str:
        refused = any(option.rstrip("+").removesuffix(".help") in _REFUSED for option in action.option_strings)
        return "" if refused or action.dest.startswith("data.federation") else super()._format_action(action)

    def _format_action_invocation(self, action: Action) -> str:
        return _as_typed(super()._format_action_invocation(action))

    def start_section(self, heading: str | None) -> None:
        """Begin a group of options."""
        super().start_section(None if heading is None else plain(heading))


def arrange(parser: Parser, command: str) -> None:
    """Put the groups of a command's options in order, and say what they are."""
    groups = dict(parser.groups or {})
    for name, title in TITLES.items():
        groups[name].title = title
    ours = [groups[name] for name in TITLES]
    derived = [group for group in parser._action_groups if group.title == "Linked arguments"]
    left_out = [*ours, *derived, groups["reputation"]]
    parser.shown = [group for group in parser._action_groups if group not in left_out] + ours
    said = _SAID | ({"ckpt_path": _GO_ON} if command == "fit" else {})
    for action in parser._actions:
        action.help = said.get(action.dest, action.help)
    for group in parser._action_groups:
        if any(action.dest == "ckpt_path" for action in group._group_actions):
            group.title = "checkpoint"


def described(command: str) -> dict[str, str]:
    """The head of a command's help, as the parser takes it."""
    what, example = COMMANDS[command]
    return {
        "usage": f"rffl {command} [--ranks R] [options]",
        "description": f"{what[0].upper()}{what[1:]}, for instance by: {example}",
    }


def _as_typed(text: str) -> str:
    """Options of an inner class with the outer one before them: ``--data.split.alpha`` of ``--split.alpha``."""
    return re.sub(rf"--({'|'.join(_INNER)})(?=\.)", lambda found: f"--{_INNER[found[1]]}", text)


def plain(text: str) -> str:
    """A docstring's words without the marks of its formulas, names and code."""
    text = re.sub(r":math:`([^`]*)`", lambda found: _formula(found[1]), text)
    text = re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"\1", text)
    return re.sub(r"(``?)([^`]+)\1", r"\2", text)


def _formula(tex: str) -> str:
    tex = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", lambda of: f"{_together(of[1])} / {_together(of[2])}", tex)
    tex = re.sub(r"\\(left|right|operatorname|bar|[{},])", "", tex)
    tex = re.sub(r"\\([A-Za-z]+|\|)", lambda found: _SYMBOLS.get(found[1]) or _letter(found[1]), tex)
    tex = re.sub(r"\{([^{}]*)\}", lambda found: _together(found[1]), tex)
    return " ".join(re.sub(r"(?<=[⌊⌈]) | (?=[⌋⌉])", "", tex).split())


def _letter(name: str) -> str:
    """A Greek letter of that name; else the name, of a function."""
    case = "CAPITAL" if name[0].isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"GREEK {case} LETTER {'LAMDA' if name == 'lambda' else name.upper()}")
    except KeyError:
        return name


def _together(part: str) -> str:
    return part if re.fullmatch(r"\w+|\\[A-Za-z]+", part) else f"({part})"


def _no_classes(_: re.Match[str]) -> str:
    return ")"


def _our_classes(found: re.Match[str]) -> str:
    ours = {name for kind in catalogue.KINDS for name in catalogue.listed(kind)}
    names = {path.rpartition(".")[2] for path in found[1].split(", ") if path.startswith("rffl_pl.")} & ours
    return f"; one of {', '.join(sorted(names, key=str.lower))})" if names else ")"
