"""What the parser says of the words of a command line, in the user's own."""

from __future__ import annotations

import inspect
import itertools
import pkgutil
import re
from contextlib import suppress
from typing import Any

from lightning.pytorch import Trainer

from rffl_pl.callbacks import StandaloneReference
from rffl_pl.cli.classes import CLASSES, constructors
from rffl_pl.cli.options import OUTER
from rffl_pl.cli.own import no_class, not_whole
from rffl_pl.cli.run import Run
from rffl_pl.errors import nearest
from rffl_pl.federation import Federation
from rffl_pl.module import FederatedModule
from rffl_pl.rehearsal.checks import no_precision
from rffl_pl.studies.own import of_package

# What other names of the literature are here.
KNOWN_AS = {
    "fedprox": "--model.proximal 0.1",
    "ditto": "--model.personal 0.5",
    "scaffold": "--model.scaffold true",
    "fedavgm": "--server FedOpt",
    "fedadam": "--config servers/fed_opt.yaml",
    "fedadagrad": "--server FedOpt --server.optimizer Adagrad --server.optimizer.lr 0.1 --server.optimizer.eps 1e-3",
    "fedmgda+": "--server FedMGDA",
    "mgda": "--server FedMGDA --server.slack 1",
    "krum": "--server MultiKrum --server.selected 1",
    "rfa": "--server GeometricMedian",
    "signsgd-mv": "--server SignSGD",
    "q-ffl": "--server QFFL",
    "q-fedavg": "--server QFFL",
    "normbounding": "--server NormBound",
    "normclipping": "--server NormBound",
    "dp-fedavg": "--server NormBound --server.max_norm 1 --server.noise 1",
}

# So many classes one sentence still names.
MOST_NAMED = 30


NO_CLASS = re.compile(
    r"dot import path|has no attribute|a subclass of|valid subclass|No module named|import path or a|is not iterable|"
    r"a path but \S+\.\S+ either not accessible|Unexpected import path format"
)
# Where the parser repeats what was given.
GIVEN = (
    r"Unable to load config '(.*)'",
    r"Given value: (?!NestedArg|Namespace)(.*?)(?:\. Got value: .*)?$",
    r"Got value: (.*?)(?:\. Got value: .*)?$",
    r"a path but (.*) either not",
    r"import path (?:string|format): (\S+)",
)


_ANOTHER = "another"
"""Stands for what was given where the parser does not repeat it."""

NAMED = r"(?:given class_path '|Import path )([\w.]+)"
"""Where the parser names the class that was given in a list."""

# What the parser calls a kind of value, and a user does.
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list",
    "tuple": "a list",
    "Sequence": "a list",
    "dict": "names with values",
    "Tensor": "a list of numbers",
}


# What stands for a class that nobody named, and how one is named.
_BASES = {
    "Optimizer": "--{} SGD",
    "Callback": "--{}+=EarlyStopping",
    "Consensus": "--{} TrimmedMean",
    "Module": "--{} CLASS",
}

# Arguments without a name of their own.
_OTHERS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

# The groups of options that belong to one class.
GROUPS: dict[str, type] = {
    "federation": Federation,
    "model": FederatedModule,
    "run": Run,
    "standalone": StandaloneReference,
    "trainer": Trainer,
}


def reading(message: str) -> str | None:
    """A sentence for what the parser says; None of a message that is none of its, or that nobody has met yet."""
    readings = [
        _ambiguous, _untyped, _abstract, _of_a_function, _left_out, _no_group, _unknown_class, _no_choice, _wrong_kind,
        _too_early, _no_such_option, _no_printing, _no_import, _of_another_type,
    ]  # fmt: skip
    if "NestedArg(" in message and "Expected a <class 'bool'>" in message:  # of a class, which may also be true
        readings.insert(0, _no_such_option)
    return next(filter(None, (read(message) for read in readings)), None)


def _ambiguous(message: str) -> str | None:
    """What is said of a name that a class of a user's own has too."""
    found = re.search(r"Multiple subclasses with name (\w+)\..*ambiguity: ([\w., ]+)\.(?:\s|$)", message)
    if found is None:
        return None
    paths = " or ".join(found[2].split(", "))
    return (
        f"Expected --{_key(message)} to say which {found[1]}, but there are several; give {paths}, or your class "
        "another name."
    )


def _of_a_function(message: str) -> str | None:
    """What is said of options of a function, where one is taken that is called with something else."""
    called = r"expects a function or a callable class: (?:Dict must include|.*are required: params\b).*Namespace\("
    if not re.search(called, _innermost(message)):
        return None
    return (
        f"Expected --{_key(message)} to be a class where it is given options, but got a function; give the function "
        "alone, or write a class."
    )


def _left_out(message: str) -> str | None:
    """What is said where something is needed that was not given."""
    found = re.search(r"(?:class_path '([\w.]+)':\s+)?the following arguments are required: (\S.*)", message)
    if found is None:
        return None
    key = _key(message)
    if found[1] and key:
        options = " and ".join(f"--{key}.{name}" for name in found[2].split(", "))
        package, _, name = found[1].rpartition(".")
        see = _help_of(key, package, name)
        return f"Expected {options}, which {name} needs, but got none; {see}."
    names = [name.partition(".")[2] or name for name in found[2].split(", ")]
    options = " and ".join(f"--{name}" for name in names)
    which, it = ("which is", "it") if len(names) == 1 else ("which are", "them")
    return f"Expected {options}, {which} required, but got none; `--config digits.yaml` for instance says {it}."


def _help_of(key: str, package: str, name: str) -> str:
    """Where a class's options are listed, behind the one that it is an option of; of a function, which they are."""
    made = pkgutil.resolve_name(f"{package}.{name}")
    if not isinstance(made, type):
        return f"it takes {_of_each(key, made)}"
    return f"see `rffl fit {OUTER.get(key, '')}--{key}.help {_as_typed(package, name)}`"


def _of_each(key: str, function: Any) -> str:
    """The options that a function's arguments are."""
    return " and ".join(f"--{key}.{name}" for name in _options(function)) or "none"


def _untyped(message: str) -> str | None:
    """What is said of a class of a user's own with an argument that could be anything."""
    found = re.search(r"Parameter '(\w+)' from '([\w.]+)\.__init__' does not specify a type", message)
    if found is None:
        return None
    return (
        f"Expected every argument of {found[2]} that has no default to have a type, by which its option is read, but "
        f"{found[1]} has none; write {found[1]}: float, or what it is."
    )


def _abstract(message: str) -> str | None:
    """What is said of a class that is there to be derived from."""
    optimizer = "class_path='torch.optim.Optimizer'" in message and "required: defaults" in message
    if "is abstract" not in message and not optimizer:
        return None
    abstract = re.search(r"but ([\w.]+) is abstract", message)
    given = "Optimizer" if optimizer else abstract[1] if abstract else _given(message)
    unnamed = given == _ANOTHER or "NestedArg(" in _innermost(message)  # an option of a class alone
    if not (unnamed or of_package(given)) and (said := not_whole(f"--{_key(message)}", given)):
        return said
    what = "none is named" if unnamed else f"{given} is abstract"
    return (
        f"Expected --{_key(message)} to be a class that can be made, but {what}; name a class first, or put --config "
        "before the options that change it."
    )


def _unknown_class(message: str) -> str | None:
    """What is said of a class that does not exist, with the nearest names of those that do, or all of them."""
    # --server.help takes one as --server does.
    asked = re.match(r"--([\w.]+)\.help: (?:.*(?:string|format): |\"|No module named ')([\w.-]+)", message)
    key = asked[1] if asked else _key(message)
    kind = re.sub(r"(\.rule)+$", ".rule", key)  # a rule may have one of its own
    if kind == "server.rule" and re.findall(r"class_path '[\w.]*?(\w+)'", message)[-1:] == ["FedOpt"]:
        kind = "FedOpt.rule"
    if kind not in CLASSES or not NO_CLASS.search(message):
        return None
    given, known = asked[2] if asked else _given(message), list(CLASSES[kind]())
    if kind == "model.measures" and "Expected a <class 'list'>" in message and re.fullmatch(r"[A-Za-z_][\w.]*", given):
        return f"Expected --model.measures to be a list, but got {given}; give --model.measures+={given}."
    given = given.rpartition(".")[2] if given.startswith("rffl_pl.") else given
    if asked and key.startswith("model.") and (told := _help_of_function(key, given)):
        return told
    if base := re.search(r"(?:to|is not) a (?:subclass of|valid subclass of) (\w+)", message):
        return f"Expected --{key} to be a class derived from {base[1]}, but got {given}, {_why_none(given, base[1])}."
    if said := no_class(f"--{key}", given):
        return said
    if key == "server" and given.lower() in KNOWN_AS:
        return f"Expected --server to be a class, but got {given}, which is {KNOWN_AS[given.lower()]} here."
    near = nearest(given, known)
    every = f"one of {', '.join(known)}" if len(known) <= MOST_NAMED else ""
    which = every if every and not near else "one of those that there are by its name"
    which = f"{which}, or your own" if known else "your own"
    rest = f"{f'{near} Give' if near else '; give'} {which} as my_package.MyClass."
    unfit = kind.endswith(".rule") and given in CLASSES["server"]()
    what = "a rule that another one can go around" if unfit else "a class"
    return f"Expected --{key}{'.help' if asked else ''} to be {what}, but got {given}{rest}"


def _help_of_function(key: str, path: str) -> str | None:
    """What is said where help is asked for of a function; None of what is none."""
    with suppress(ImportError, AttributeError, ValueError):
        if inspect.isfunction(made := pkgutil.resolve_name(path)):
            return f"Expected --{key}.help of a class, but got {path}, a function, which takes {_of_each(key, made)}."
    return None


def _why_none(path: str, base: str) -> str:
    """What keeps something from being taken for a class of that base: of a function what it makes may not be said."""
    with suppress(ImportError, AttributeError, ValueError):
        made = pkgutil.resolve_name(path)
        if inspect.isfunction(made) and "return" not in made.__annotations__:
            kind = "nn.Module" if base == "Module" else base
            return f"a function that does not say what it makes; write def {made.__name__}(...) -> {kind}"
    return "which is none"


def _no_choice(message: str) -> str | None:
    """What is said of a value that is none of those that an option takes."""
    found = re.search(r"Expected a (?:typing\.Literal\[(.+)\]|member of <enum '\w+'>: {(.+)})", message)
    if found is None:
        return None
    key, given = _key(message), _given(message)
    if key == "trainer.precision":  # of which Lightning knows more
        return no_precision(given)
    choices = re.split(", ?", (found[1] or found[2]).replace("'", ""))
    near = nearest(given, choices) or "."
    named = {"int": " or a whole number", "float": " or a number"}
    numbers = next((said for name, said in named.items() if f"Expected a <class '{name}'>" in _innermost(message)), "")
    return f"Expected --{key} to be one of {', '.join(choices)}{numbers}, but got {given}{near}"


def _wrong_kind(message: str) -> str | None:
    """What is said of a word where an option takes a number, and the like."""
    if "Unable to load config" in message:
        return f"Expected --{_key(message)} to be {KINDS['dict']}, but got {_given(message)}."
    named = re.findall(r"Expected a <class '(?:[\w.]+\.)?(\w+)'>", _innermost(message))
    kinds = [kind for kind in dict.fromkeys(KINDS.get(name, "") for name in named) if kind]
    if KINDS["float"] in kinds:  # which any whole number is, and a tensor of one is of no use
        kinds = [kind for kind in kinds if kind not in (KINDS["int"], KINDS["Tensor"])]
    if several := re.search(r"Expected a tuple with (\d+) elements", _innermost(message)):
        kinds = [f"a list of {several[1]} values"]
    if not kinds:
        return None
    given, key = _given(message), _key(message)
    if key == "data.split" and (of_class := _no_such_option(message)):  # which is a name or a class
        return of_class
    if re.fullmatch(r"[+-]?inf(inity)?", given, re.IGNORECASE):
        return f"Expected --{key} to be {' or '.join(kinds)}, but got {given}; write .inf, as YAML has it."
    listed = "[]" if given in ("None", "null") else f"[{given}]"
    added = f"; give --adversaries '{listed}'" if key == "adversaries" and re.fullmatch(r"[\w.]+", given) else ""
    return f"Expected --{key} to be {' or '.join(kinds)}, but got {given}{added}."


def _too_early(message: str) -> str | None:
    """What is said of a file of options before the command."""
    found = re.search(r"is not accepted before subcommand '(\w+)'", message)
    if found is None:
        return None
    return f"Expected a command first, but got --config; put it behind it: rffl {found[1]} --config digits.yaml."


def _no_such_option(message: str) -> str | None:
    """What is said of an option that does not exist, with the nearest that does."""
    option = re.search(r"Option '([\w.]+\+?)' is not accepted", message)
    classes = re.findall(r"class_path[ =]'([\w.]+)\.(\w+)'", message)  # from the outermost to that of the option
    if option is not None and classes:
        package, name = next((pair for pair in reversed(classes) if pair[1] not in ("Callback", "Logger")), classes[-1])
        kind = pkgutil.resolve_name(f"{package}.{name}")
        key, known = _key(message), _options(kind, passed_on=True)
        if option[1] == "class_path":
            return (
                f"Expected the options of --{key} below init_args, but got some beside class_path; write "
                "{class_path: CLASS, init_args: {...}}."
            )
        if name in _BASES:
            return (
                f"Expected --{key} to be a class, but got --{key}.{option[1]} alone; give {_BASES[name].format(key)} "
                "before it."
            )
        if _is_own(package) and option[1] in _options(kind):  # of what it derives from
            return (
                f"Expected --{key} {name} to take --{key}.{option[1]}, as what it derives from does, but its "
                "constructor passes no **kwargs on; add them."
            )
        alike = [f"--{key}.{one}" for one in known if nearest(option[1], [one])]
        near = nearest(f"--{key}.{option[1]}", alike, likeness=0.85)
        rest = near or f"; {_help_of(key, package, name)}."
        return f"Expected an option of --{key} {name}, but got --{key}.{option[1]}{rest}"
    if classes and (nested := _of_a_group(message)):
        package, name = classes[-1]
        key = _key(message)
        return f"Expected an option of --{key} {name}, but got --{key}.{nested}; {_help_of(key, package, name)}."
    alone = re.search(r"(?:unrecognized arguments: |does not accept option ')((?:-*(\w+)\.\w+)?[^']*)", message, re.I)
    if alone is None:
        return None
    given = alone[1] if alone[1].startswith("-") or "arguments" in message else f"--{alone[1]}"
    groups = [alone[2]] if alone[2] in GROUPS else list(GROUPS)
    known = [f"--{group}.{name}" for group in groups for name in _options(GROUPS[group])]
    near = nearest(given.partition(" ")[0], known, likeness=0.85) or "; `rffl fit --help` lists them."
    if given.endswith((".yaml", ".yml")):
        near = f"; give --config {given.split()[-1]}."
    return f"Expected a known option, but got {given or 'an empty word'}{near}"


def _no_group(message: str) -> str | None:
    """What is said of an option of what is a number or a text."""
    inner = _innermost(message)
    # A rate may be a tensor too, and a profiler a class; whatever names one is not of a value.
    value = re.search("Expected a <class '(float|str)'>", inner) is not None and "class_path '" not in inner
    found = re.search(rf"{'(?:Got|Given)' if value else 'Got'} value: NestedArg\(key='([\w.]+)'", inner)
    if found is None:
        return None
    return f"Expected --{_key(message)} to be a value, but got --{_key(message)}.{found[1]}; leave .{found[1]} out."


def _of_a_group(message: str) -> str | None:
    """The option of a group of options, which a dataclass in a constructor is, that has none of that name."""
    typed = re.search(r"unrecognized arguments: --(\w+(?:\.\w+)+)", message)
    written = re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message)
    return typed[1] if typed else ".".join(written.groups()) if written else None


def _no_printing(message: str) -> str | None:
    """What is said of a way to print a configuration that there is not."""
    found = re.search(r'Invalid option "(.*)" for --print_config', message)
    if found is None:
        return None
    return f"Expected --print_config alone, or with =skip_null or =skip_default behind it, but got {found[1]}."


def _no_import(message: str) -> str | None:
    """What is said of an option of one's own class that takes a function, or what else Python has by a name."""
    inner = _innermost(message)
    if not re.search("expects a function or a callable class|a dot import path|a path but", inner):
        return None
    option, given = f"--{_key(message)}", _given(inner)
    what = "what its class takes, by its import path as torch.relu or my_package.mine"
    why = "" if "." in given else ", which names no module"
    return no_class(option, given, what, object) or f"Expected {option} to be {what}, but got {given}{why}."


def _of_another_type(message: str) -> str | None:
    """What is said of an option of one's own class whose type none of the others knows."""
    inner = _innermost(message)
    classes = re.findall(r"given class_path '([\w.]+)\.(\w+)'", message.partition(inner)[0])
    if not classes:
        return None
    key = _key(message)
    help = _help_of(key.rpartition(".")[0], *classes[-1])
    return f"Expected --{key} to be of the type that its class declares, but got {_given(inner)}; {help}."


def _key(message: str) -> str:
    """The option that the parser speaks of, as it is typed."""
    named = ""
    for _, key in _keys(message):
        named = key if not named or f"{key}.".startswith(f"{named}.") else f"{named}.{key}"
    return named.replace("init_args.", "")


def _keys(message: str) -> list[tuple[int, str]]:
    """The parser's keys from the outermost to the first innermost one, each with the line it stands in."""
    chain: list[tuple[int, str]] = []
    depth = -1
    for number, line in enumerate(message.splitlines()):
        for key in re.findall(r'Parser key "([\w.]+)"(?!: Unable to load)', line):  # which says it once more
            if _depth(line) <= depth:
                return chain
            chain.append((number, key))
        depth = _depth(line) if chain and chain[-1][0] == number else depth
    return chain


def _innermost(message: str) -> str:
    """What the parser says of the innermost key."""
    lines = message.splitlines()
    start = (_keys(message) or [(0, "")])[-1][0]
    below = itertools.takewhile(lambda line: not line or _depth(line) > _depth(lines[start]), lines[start + 1 :])
    return "\n".join([lines[start], *below])


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _given(message: str) -> str:
    """What was given, as far as the parser repeats it; of a class with options the class."""
    found = re.search("|".join(GIVEN), message, re.MULTILINE)
    text = next((text for text in found.groups() if text), "nothing") if found else _ANOTHER
    named = re.findall(r"'class_path': '([^']+)'", text) or ([] if found else re.findall(NAMED, message))
    return (named[-1] if named else text)[:100]


def _options(kind: type, *, passed_on: bool = False) -> list[str]:
    """The arguments of a class and of what it derives from, less an optimizer's params, which no option gives.

    Args:
        kind: The class.
        passed_on: Whether those alone that its constructors pass on with ``**kwargs``.
    """
    names = []
    for made in constructors(kind) or [kind]:  # one of a user's own may have __new__ alone
        parameters = inspect.signature(made).parameters.values()
        names += [one.name for one in parameters if one.name not in ("self", "params") and one.kind not in _OTHERS]
        if passed_on and inspect.Parameter.VAR_KEYWORD not in (one.kind for one in parameters):
            break
    return names


def _is_own(package: str) -> bool:
    """Whether what lies in a package is a user's."""
    return package.partition(".")[0] not in ("rffl_pl", "torch", "torchmetrics", "lightning")


def _as_typed(package: str, name: str) -> str:
    """A class as an option takes it: by its name, or one of a user's own by its path."""
    return f"{package}.{name}" if _is_own(package) else name
