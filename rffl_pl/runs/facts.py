"""What a run is found again by: data, split, server, attack, how many take part, and the seed."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from numbers import Integral
from typing import Any

from rffl_pl.federation import coalition_name

_RULES = {"NNM": "Median", "ARC": "Median", "Bucketing": "Median", "FedOpt": "FedAvg"}
"""What servers around another rule have inside by default."""
_VARIANTS = {
    "variant": "fedavg", "setting": "tuned", "weights": "full", "scale": "mean", "summation": "mean",
    "contribution": "examples", "selection": "random", "compounding": "released", "compare": "models",
}  # fmt: skip
"""Options of servers that choose by a word which of two rules they are, and what they are by default."""
_OPTIMIZER = "SGD"
LIMITS = ("max_epochs", "max_steps")
"""Options of the trainer that say how many rounds a run is to have: a step is a round as well, and so is an epoch."""
_LONGEST = 128
"""Letters that W&B takes of a name."""
_TERMS = ("proximal", "personal", "scaffold")
"""Of the participants' training: FedAvg with them is FedProx, Ditto or SCAFFOLD."""


def facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved configuration in a few flat words, each a class's own name or a number.

    Args:
        config: As a run leaves it in ``config.yaml``.

    Returns:
        ``dataset``, ``split``, ``server_name`` (``server`` is the configuration's own), ``preset`` where the server
        has one, ``attack`` (``none``, or all kinds in turn), ``participants``, ``adversaries``, ``coalition`` (``0+2``,
        or ``nobody``) where only some take part, ``seed``, ``rounds`` where a number of them is asked for, and
        ``study`` and ``place`` (``server=RFFL split=UNI``) where the run is a cell of one.

    A server's name says what makes it another one, but for what is its default: its variant, the kind of its optimizer,
    the rule inside and what participants train with: ``FedOpt Adam``, ``NNM of MultiKrum``, ``FedAvg proximal 0.1``,
    ``FedAvg Moon`` with an objective of one's own.
    """
    server, federation, run = config["server"], config["federation"], config.get("run", {})
    found = {
        "dataset": _name(config["data"]),
        "split": _name(config["data"].get("init_args", {}).get("split")),
        "server_name": " ".join([_rule(server), *_terms(config)]),
        "preset": (server.get("init_args") or {}).get("preset"),
        "attack": " + ".join(attacks_of(config)) or "none",
        "participants": federation["participants"],
        "adversaries": federation["adversaries"],
        "coalition": None if federation.get("coalition") is None else coalition_name(federation["coalition"]),
        "seed": config["seed_everything"],
        "rounds": rounds_asked(config["trainer"]),
        "study": run.get("study"),
        "place": " ".join(f"{axis}={label}" for axis, label in (run.get("place") or {}).items()) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def last_round(*limits: int | None) -> int:
    """The smallest of several limits as Lightning takes them; -1 if none is a number from 0 on."""
    return min((int(limit) for limit in limits if isinstance(limit, int | Integral) and limit > -1), default=-1)


def rounds_asked(trainer: Mapping[str, Any]) -> int | None:
    """How many rounds a run is to have, by the options of its trainer; None where they say nothing."""
    rounds = last_round(*(trainer.get(name) for name in LIMITS))
    return None if rounds == -1 else rounds


def attacks_of(config: Mapping[str, Any]) -> list[str]:
    """The attacks that somebody carries out, each once."""
    attacks = (config.get("adversaries") or [])[: config["federation"]["adversaries"]]
    return list(dict.fromkeys(name for name in map(_name, attacks) if name))


def group(config: Mapping[str, Any]) -> str:
    """The same for all runs that differ in their seed alone; beside cells of a study, or in smaller things."""
    return _short(_group(config), _LONGEST)


def _group(config: Mapping[str, Any]) -> str:
    known = facts(config)
    if "study" in known and "place" in known:
        return f"{known['study']} {known['place']}"
    size = f"{known['participants']}+{known['adversaries']}"
    words = [known.get(name) for name in ("dataset", "split", "server_name", "preset", "attack")]
    alone = [f"only {known['coalition']}"] if "coalition" in known else []  # first: what is too long is cut
    return " ".join([*alone, *(word for word in words if word), size])


def _short(name: str, most: int) -> str:
    """A name; a long one by its beginning, and what tells it from others that begin so."""
    return name if len(name) <= most else f"{name[: most - 9]}-{sha256(name.encode()).hexdigest()[:8]}"


def cell(config: Mapping[str, Any]) -> str | None:
    """What a study calls the run, and its seed; None if it is no cell of one."""
    known = facts(config)
    seed = f" seed={known['seed']}"
    return None if "place" not in known else _short(_group(config), _LONGEST - len(seed)) + seed


def tags(config: Mapping[str, Any]) -> list[str]:
    """Data set, split, server, its preset, each attack, the seed, and the study if there is one.

    A server that is named by more than its class is found by its class, too.
    """
    known = facts(config)
    servers = dict.fromkeys([_name(config["server"]), known["server_name"]])
    words = [known.get("dataset"), known.get("split"), *servers, known.get("preset")]
    every = [*(word for word in words if word), *(attacks_of(config) or ["no attack"]), f"seed {known['seed']}"]
    every += [f"study {known['study']}"] if "study" in known else []
    return [tag[:64] for tag in every]  # letters that W&B takes of a tag


def _rule(given: Any) -> str:
    """A server, or a rule inside one, by its class and what makes it another one."""
    name, options = _name(given) or "", _options(given)
    chosen = [(options.get(option), default) for option, default in _VARIANTS.items()]
    words = [word for word, default in chosen if isinstance(word, str) and word not in (default, "none")]
    words += [f"no {option}" for option in _VARIANTS if options.get(option) == "none"]
    optimizer = _name(options.get("optimizer"))
    if optimizer not in (None, _OPTIMIZER):
        words.append(optimizer)
    inside = _rule(options["rule"]) if _name(options.get("rule")) else None
    if inside not in (None, _RULES.get(name)):
        words.append(f"of {inside}")
    return " ".join([name, *words])


def _terms(config: Mapping[str, Any]) -> list[str]:
    """What participants train with beside their loss, a term with its weight, an objective by its class."""
    model = config.get("model") or {}
    given = {name: model[name] for name in _TERMS if model.get(name)}
    objective = _name(model.get("objective"))
    terms = [name if weight is True else f"{name} {weight:g}" for name, weight in given.items()]
    return [*terms, *([objective] if objective else [])]


def _options(given: Any) -> Mapping[str, Any]:
    return (given.get("init_args") or {}) if isinstance(given, Mapping) else {}


def _name(given: Any) -> str | None:
    """A class by its last name, whether it stands with its options or alone."""
    path = given.get("class_path") if isinstance(given, Mapping) else given
    return path.rpartition(".")[2] if isinstance(path, str) and path else None
