"""Which settings differ between runs, and what runs are called by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

SEEDS = ("--seed_everything", "seed")
"""What the seed is called on the command line and in a study."""


_NOTHING = "None"


def differing(every: Sequence[Mapping[str, str]]) -> list[str]:
    """The options that differ between some settings.

    An option that a class does not have differs only where that class is the same: what another server cannot be told
    is no difference of its own.
    """
    names = dict.fromkeys(name for settings in every for name in settings)
    return [name for name in names if _differs(name, every)]


def _differs(name: str, every: Sequence[Mapping[str, str]]) -> bool:
    values = {settings[name] for settings in every if name in settings}
    if len(values) > 1:
        return True
    lacking = [settings for settings in every if settings and name not in settings]
    if values == {_NOTHING} and all(f"{name}.0" in settings for settings in lacking):
        return False  # nothing there and a list here, whose classes say it
    owner = name.rpartition(".")[0]
    owners = {settings.get(owner) if settings.get(owner) != _NOTHING else None for settings in every}
    return len(owners) == 1 and bool(lacking)


def ordered(options: Sequence[str]) -> list[str]:
    """Server, attack, who takes part, data, the rest, the seed, as readers ask for them; a study's axes as they are."""
    rooms = ("--server", "--adversaries", "--federation", "--data")

    def place(option: str) -> int:
        if option in SEEDS:
            return len(rooms) + 1
        room = option.split(".")[0]
        return rooms.index(room) if room in rooms else len(rooms)

    return sorted(options, key=place)


def plain(option: str) -> str:
    """An option as a heading: ``server.gamma``, ``seed``."""
    return "seed" if option in SEEDS else option.removeprefix("--")


def called(settings: Mapping[str, str], options: Sequence[str]) -> str:
    """What a run is called by some of its settings: words speak for themselves, numbers need their option's name.

    Of that the last part, or two where that is another's too, or is not a name that says anything.
    """
    last = Counter(plain(option).rpartition(".")[2] for option in options)
    words = []
    for option in options:
        value = settings.get(option)
        if value is not None and option not in SEEDS:
            speaks = value[:1].isalpha() and value not in ("None", "True", "False")
            parts = plain(option).split(".")
            few = 2 if last[parts[-1]] > 1 or parts[-1] == "enabled" else 1
            words.append(value if speaks else f"{'.'.join(parts[-few:])} {value}")
    return " · ".join(words)


def axes_about(
    every: Sequence[tuple[Mapping[str, str], Mapping[str, str]]], differ: Sequence[str], owner: str
) -> list[str]:
    """The axes of a study that change something of an option and what belongs to it, as ``--server``.

    Args:
        every: A run's labels by axis, and its options.
        differ: The axes that differ.
        owner: The option.
    """
    return [axis for axis in differ if axis not in SEEDS and _changes(every, axis, owner)]


def _changes(every: Sequence[tuple[Mapping[str, str], Mapping[str, str]]], axis: str, owner: str) -> bool:
    """Whether some two runs that differ in this label, and at most in the seed, have other options of the owner."""
    known: dict[tuple[tuple[str, str], ...], dict[str, Mapping[str, str]]] = {}
    for labels, options in every:
        rest = tuple(sorted(item for item in labels.items() if item[0] not in (axis, *SEEDS)))
        known.setdefault(rest, {})[labels.get(axis, "")] = options
    pairs = (pairwise(several.values()) for several in known.values())
    return any(about(differing(list(pair)), owner) for pair in chain.from_iterable(pairs))


def about(differ: Sequence[str], owner: str) -> list[str]:
    """The options that differ of all that belong to one: ``--server``, ``--server.gamma``; a study's axis alone."""
    return [name for name in differ if name in (owner, owner.removeprefix("--")) or name.startswith(f"{owner}.")]
