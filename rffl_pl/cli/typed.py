"""What is typed: words that lack a value, and options without effect, since a later class or configuration wins."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl.cli.classes import CLASSES
from rffl_pl.cli.configurations import text_of
from rffl_pl.cli.options import OUTER
from rffl_pl.cli.own import no_class
from rffl_pl.cli.readings import MOST_NAMED
from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder

_CHOSEN = (
    r"server(?:\.rule|\.optimizer)?|adversaries|data(?:\.split|\.augment)?|model\.(?:network|optimizer|loss|objective)"
)
"""The options that take a class, or several."""


def check_words(words: Sequence[str]) -> None:
    """See that no option that takes a class is given a file, whose content the parser would take for options.

    Raises:
        UserError: If one is.
    """
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, told, said = word.partition("=")
        given, key = said if told else following, option.lstrip("-").rstrip("+")
        if key in CLASSES and given.endswith(".py"):
            raise UserError(no_class(f"--{key}", given))
        asked = key.removesuffix(".help")
        if asked != key and asked in CLASSES:
            _check_help(asked, given, words)


def _check_help(key: str, given: str, words: Sequence[str]) -> None:
    """See that help is asked for of a class, behind that which takes it."""
    if not given or given.startswith("--"):
        names = list(CLASSES[key]())
        some = f"one of {', '.join(names)}" if 0 < len(names) <= MOST_NAMED else ""
        some = some or "its name, or your own as my_package.MyClass"
        raise UserError(f"Expected a class behind --{key}.help, but got none; give {some}.")
    outer = key.partition(".")[0]
    if key in OUTER and not any(word.partition("=")[0] == f"--{outer}" for word in words):
        raise UserError(f"Expected --{outer} before --{key}.help, but got none; give {OUTER[key]}--{key}.help {given}.")


def check_behind(words: Sequence[str]) -> None:
    """Say which option lacks a value, as it is typed: of one of a class the parser names that which takes the class.

    Raises:
        UserError: Of the first one.
    """
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if not word.startswith("--") or "=" in word or word == "--print_config":
            continue
        if following.startswith("--"):
            raise UserError(f"Expected a value behind {word}, but got none.")
        if following.startswith("-") and not re.fullmatch(r"-\d+|-\d*\.\d+", following):  # a number to the parser
            raise UserError(f"Expected a value behind {word}, but got {following}; give {word}={following}.")


def tell_of_dropped(words: Sequence[str], config: Namespace) -> None:
    """Warn of every option of a class that was typed and is not there: another class behind it has dropped it.

    Args:
        words: As they were typed.
        config: What became of them.
    """
    for place, (word, following) in enumerate(itertools.pairwise([*words, ""]), 1):
        found = re.fullmatch(rf"--({_CHOSEN})\.(?:init_args\.)?(\w+)(?:=(.*))?", word)
        if found is None or found[2] in ("help", "class_path", "init_args", "dict_kwargs"):
            continue
        chosen = config.get(re.sub(r"^(server|data)\.", r"\1.init_args.", found[1]))
        every = [one for one in (chosen if isinstance(chosen, list) else [chosen]) if isinstance(one, Namespace)]
        having = [one.init_args[found[2]] for one in every if found[2] in (one.get("init_args") or ())]
        names = " and ".join(one.class_path.rpartition(".")[2] for one in every)
        if every and not having:
            has = "has" if len(every) == 1 else "have"
            rank_zero_warn(f"--{found[1]}.{found[2]} has no effect: {names}, given after it, {has} no such option.")
        elif found[1] == "adversaries" and _are_others(words[place:], found[3] or following, having):
            rank_zero_warn(
                f"--{found[1]}.{found[2]} has no effect: {names}, given after it, are others than it was given for; "
                "give each its own in the list."
            )
        elif len({*map(str, having)}) > 1 and not any(word.startswith("--adversaries+") for word in words):
            rank_zero_warn(
                f"--{found[1]}.{found[2]} is of the last of {names} alone; give each its own in the list, as "
                f"{{class_path: {names.partition(' ')[0]}, init_args: {{{found[2]}: {found[3] or following}}}}}."
            )


def _are_others(behind: Sequence[str], typed: str, having: Sequence[Any]) -> bool:
    """Whether adversaries are listed behind an option of them, and none of these has what was typed."""
    listed = any(word.partition("=")[0] == "--adversaries" for word in behind)
    return listed and not any(_alike("None" if typed == "null" else typed, one) for one in having)


def tell_of_rate(words: Sequence[str], config: Namespace) -> None:
    """Warn where an optimizer that is typed keeps the learning rate of another one, of a configuration.

    Args:
        words: As they were typed, with configurations as files, each behind a ``--config``.
        config: What became of them.
    """
    if not isinstance(config.get("model.optimizer"), Namespace):  # a function, which is given nothing of another's
        return
    chosen = whose = ""
    rate = None
    for before, word in itertools.pairwise(["", *words]):
        option, equals, value = word.partition("=")
        option, value = (option, value) if equals else (before, word)
        if option in ("--model.optimizer.lr", "--model.optimizer.init_args.lr"):
            return
        said = _optimizer_in(option, value)
        chosen = str(said.get("class_path") or chosen).rpartition(".")[2]
        options = said.get("init_args") or said
        if "lr" in options:
            rate, whose = options["lr"], chosen
    if rate is not None and chosen != whose:
        rank_zero_warn(
            f"--model.optimizer {chosen} has the learning rate {rate} of the configuration's {whose}; give it one of "
            "its own with --model.optimizer.lr."
        )


def _optimizer_in(option: str, value: str) -> dict[str, Any]:
    """What an option says of the optimizer: its class, options of it, both or nothing."""
    said: Any = None
    if option in ("--model.optimizer", "--model.optimizer.class_path"):
        said = yaml.safe_load(value)
    elif option in ("--config", "--model"):
        model = (_content_of(value).get("model") or {}) if option == "--config" else _content_of(value)
        said = model.get("optimizer")
    return said if isinstance(said, dict) else {"class_path": said}


def tell_of_stages(words: Sequence[str], config: Namespace) -> None:
    """Warn where a run begins with the configuration of one that went on with other options: it does not repeat it.

    Args:
        words: As they were typed, with configurations as files, each behind a ``--config``.
        config: What became of them.
    """
    for run in _whose_configurations(words):
        with suppress(UserError):  # an earlier one is damaged, which nothing here needs
            if config.get("ckpt_path") not in (None, run.config().get("ckpt_path")):
                continue
            for number, _ in run.earlier_configs()[-1:]:
                rank_zero_warn(
                    f"{run.config_file} has the options of its run after round {number}; the rounds before went by "
                    f"config.{number}.yaml beside it, and this run goes by the later ones from its first round."
                )


def check_whose(words: Sequence[str], command: str, checkpoint: str) -> None:
    """See that a run's own configuration does not stand for the models of another run, which it went on from.

    Args:
        words: As they were typed, with configurations as files, each behind a ``--config``.
        command: What is done to the models.
        checkpoint: Theirs.

    Raises:
        UserError: If that run has checkpoints of its own, and nobody typed which are meant.
    """
    if any(word.startswith("--ckpt_path") for word in words):
        return
    for run in _whose_configurations(words):
        own = Path(checkpoint).resolve().is_relative_to(run.path.resolve())
        if run.newest_checkpoint() is not None and not own and run.config().get("ckpt_path") == checkpoint:
            raise UserError(
                f"Expected --ckpt_path to say whose models to {command}, but {run.config_file} alone names "
                f"{checkpoint}, which its run went on from; give --ckpt_path {run.checkpoints}."
            )


def _whose_configurations(words: Sequence[str]) -> list[RunFolder]:
    """The runs whose own configurations are given."""
    files = [Path(word) for before, word in itertools.pairwise(words) if before == "--config" and "{" not in word]
    return [RunFolder(file.parent) for file in files if file.name == RunFolder(file.parent).config_file.name]


def tell_of_overlaid(words: Sequence[str]) -> None:
    """Warn of every option before a configuration where that says something else: what stands later wins.

    Args:
        words: As they were typed, with configurations as files, each behind a ``--config``.
    """
    contents = {place: _content_of(words[place + 1]) for place, word in enumerate(words) if word == "--config"}
    options = [word.partition("=")[0] for word in words]
    for place, (word, following) in enumerate(itertools.pairwise([*words, ""])):
        option, equals, value = word.partition("=")
        option, value = option.rstrip("+"), value if equals else following
        later = [_said(content, option) for behind, content in contents.items() if behind > place]
        said = [one for one in later if one is not None]
        if word.startswith("--") and option not in options[place + 1 :] and said and not _alike(value, said[-1]):
            rank_zero_warn(
                f"{option} {value} has no effect: a configuration given after it says {said[-1]}; give options after "
                "every --config."
            )


def _said(content: Any, option: str) -> Any:
    """What a configuration says of an option, of a class, or of several, the names; None if nothing."""
    for name in option.removeprefix("--").split("."):
        inside = content if isinstance(content, dict) else {}
        content = inside.get(name, (inside.get("init_args") or {}).get(name))
    if isinstance(content, list):
        return [*map(_named, content)]
    return content.get("class_path") if isinstance(content, dict) else content


def _alike(typed: str, said: Any) -> bool:
    """Whether a typed word means what a configuration says: a value, or one or several classes by their last names."""
    if isinstance(said, list):
        listed = yaml.safe_load(typed) if typed.startswith("[") else [typed]
        return [*map(_named, listed)] == said
    with suppress(ValueError, TypeError):
        return float(typed) == float(said)  # 3 is 3.0, and 1e-3 no number to YAML
    return typed.lower() == str(said).lower() or typed == str(said).rpartition(".")[2]


def _named(item: Any) -> Any:
    """An element of a list, a class by its last name."""
    name = item.get("class_path") if isinstance(item, dict) else item
    return name.rpartition(".")[2] if isinstance(name, str) else name


def _content_of(given: str) -> dict[str, Any]:
    content = yaml.safe_load(text_of(given))
    return content if isinstance(content, dict) else {}
