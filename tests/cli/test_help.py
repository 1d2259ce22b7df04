"""What is answered without a run: help, lists, nearest names, completion."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from rffl_pl import __version__
from rffl_pl.adversaries import Adversary, OmniscientAdversary
from rffl_pl.cli import catalogue
from rffl_pl.cli.help import COMMANDS
from rffl_pl.cli.options import TITLES, plain
from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.servers import Consensus, Server
from rffl_pl.trainer import NOT_OF_ONE_MODEL, RANKS, WHOLE_ROUNDS
from tests.cli.folders import DIGITS, Run
from tests.conftest import ROOT

ROOTS = {
    "servers": Server,
    "adversaries": Adversary,
    "datamodules": FederatedDataModule,
    "models": nn.Module,
}
ROOM_OF = {"servers": "servers", "adversaries": "adversaries", "datamodules": "datamodules"}
ROOM_OF |= {"networks": "models"}


def exported(room: str) -> dict[str, type]:
    """The classes of a room's public face that can be made, as Python sees them."""
    module = importlib.import_module(f"rffl_pl.{room}")
    named = {name: getattr(module, name) for name in module.__all__}
    return {
        name: value
        for name, value in named.items()
        if inspect.isclass(value)
        and issubclass(value, ROOTS[room])
        and not inspect.isabstract(value)
        and value not in (Adversary, OmniscientAdversary, Consensus)
    }


def python(*words: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    ).stdout


@pytest.mark.parametrize("kind", ROOM_OF)
def test_a_list_names_what_its_room_exports(rffl: Run, kind: str) -> None:
    """Read from the files or imported, it is the same names, each with the first sentence of its docstring."""
    ended = rffl("list", kind)
    assert ended.code == 0
    lines = dict(line.split(maxsplit=1) for line in ended.out.splitlines())
    classes = exported(ROOM_OF[kind])
    assert lines.keys() == classes.keys()
    for name, sentence in lines.items():
        start = " ".join(inspect.cleandoc(str(classes[name].__doc__)).split()).replace(":math:", "").replace("``", "`")
        assert start.startswith(sentence)
        assert len(sentence) > 10


def test_configurations_are_listed(rffl: Run) -> None:
    """Each file of configs/ with what its first line says."""
    lines = dict(line.split(maxsplit=1) for line in rffl("list", "configs").out.splitlines())
    assert lines.keys() == {path.relative_to(ROOT / "configs").as_posix() for path in ROOT.glob("configs/**/*.yaml")}
    assert lines["servers/median.yaml"].startswith("Coordinate-wise median")


def test_a_class_yet_to_come_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever descends from a kind's root, over any number of steps, but no base, helper or stranger."""
    (tmp_path / "datamodules").mkdir()
    (tmp_path / "datamodules" / "cuts.py").write_text(
        "class Split(ABC):\n    @abstractmethod\n    def cut(self): ...\n\n"
        'class UNI(Split):\n    """Equal shards (Xu et al. 2021). Of all."""\n\n'
        'class DIR(UNI):\n    """By Dirichlet."""\n\n'
        'class _Half(Split):\n    """Not for users."""\n\nclass Other:\n    """Unrelated."""\n'
    )
    monkeypatch.setattr(catalogue, "PACKAGE", tmp_path)
    assert catalogue.listed("splits") == {"DIR": "By Dirichlet.", "UNI": "Equal shards (Xu et al. 2021)."}


def test_help_shows_the_package_its_commands_and_an_example_each(rffl: Run) -> None:
    """One screen, and nothing that names a library's own tool."""
    for words in (("--help",), ("-h",)):
        ended = rffl(*words)
        assert ended.code == 0
        assert ended.out.startswith(f"rffl {__version__}: Robust and Fair Federated Learning")
        for name, (what, example) in COMMANDS.items():
            assert what in ended.out
            assert example.startswith(f"rffl {name}")
            assert f"              {example}\n" in ended.out
        assert len(ended.out.splitlines()) < 40
        assert max(map(len, ended.out.splitlines())) <= 120


def test_the_options_are_those_of_a_federation_first(rffl: Run) -> None:
    """Thousands of lines of torch's classes hide them, formulas are markup, or a command makes of it what it will."""
    ended = rffl("fit", "--help")
    assert ended.code == 0
    assert ended.out.startswith(
        "usage: rffl fit [--ranks R] [options]\n\nTrain a federation, for instance by: rffl fit"
    )
    lines = ended.out.splitlines()
    assert len(lines) < 600
    places = [lines.index(next(line for line in lines if line.startswith(f"{group}: "))) for group in TITLES]
    assert places == sorted(places)
    one = " ".join(ended.out.split())
    assert "--server CONFIG | CLASS_PATH_OR_NAME | .INIT_ARG_NAME VALUE A server by its name, or your own" in one
    assert "one of CIFAR10CNN, MNISTCNN, Perceptron, TextCNN)" in one
    assert "μ / 2 ‖w - w^t‖^2 is added" in one
    assert not any(mark in one for mark in (":math:", "``", "torch.nn.ReLU", "Linked arguments", "torchmetrics.text"))
    assert not any(mark in one for mark in (":class:", ":paramref:", "TensorBoardLogger", "--trainer.devices"))
    refused = {*RANKS, *WHOLE_ROUNDS, *NOT_OF_ONE_MODEL} - {"fast_dev_run"}  # of which one round is a trial
    assert not any(f"--trainer.{name} " in one for name in refused)
    assert "--trainer.fast_dev_run " in one
    assert "usage: rffl predict " in rffl("predict", "--help").out


@pytest.mark.parametrize(
    ("outer", "option", "inner"),
    [
        ("NNM", "--server.rule", "TrimmedMean"),
        ("FedOpt", "--server.optimizer", "Adam"),
        ("Digits", "--data.split", "DIR"),
        ("CIFAR10", "--data.augment", "CropFlip"),
    ],
)
def test_the_options_of_an_inner_class(rffl: Run, tmp_path: Path, outer: str, option: str, inner: str) -> None:
    """They are shown as they are typed."""
    words = (option.partition(".")[0], outer, f"{option}.help", inner)
    shown = rffl("fit", "--run.root", tmp_path, *words).out
    assert shown.startswith(f"Help for {option}.help=")
    assert {*re.findall(r"^  (--[\w.]+)\.\w+", shown, re.MULTILINE)} == {option}


def test_the_options_of_a_class(rffl: Run, tmp_path: Path) -> None:
    """Its formulas are read as text, and what its rule may be is not all that there is."""
    krum, mixing = (
        " ".join(rffl("fit", "--run.root", tmp_path, "--server.help", name).out.split())
        for name in ("MultiKrum", "NNM")
    )
    assert krum.startswith("Help for --server.help=rffl_pl.MultiKrum The unweighted mean of the m uploads")
    assert "without it ⌊0.2 P⌋, the paper's clip ratio" in krum
    assert "FoolsGold" not in mixing
    assert "--data.federation" not in rffl("fit", "--run.root", tmp_path, "--data.help", "Digits").out


def test_formulas_in_words() -> None:
    """Marks of a docstring are left, or its letters are lost."""
    text = r"at most :math:`\lceil P / s \rceil` of ``those``, :math:`\frac{\lambda}{2} \|w\|^2`, `Name`"
    assert plain(text) == "at most ⌈P / s⌉ of those, λ / 2 ‖w‖^2, Name"
    assert plain(r":math:`\Phi^{-1} \left( \frac{n - f}{2} \right)`") == "Φ^(-1) ( (n - f) / 2 )"


def test_whoever_reads_no_more_is_no_error() -> None:
    """As with ``rffl list | head``: no traceback of a broken pipe, and no exit code that tells of one."""
    words = [sys.executable, "-m", "rffl_pl", "list"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 0


def test_version(rffl: Run) -> None:
    """As the package says."""
    assert rffl("--version").out == f"rffl {__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["list", "servers"], ["list"]])
def test_answers_at_once_without_torch(words: list[str]) -> None:
    """Nobody waits seconds for a list."""
    program = "import sys\nfrom rffl_pl.cli import main\nmain(sys.argv[1:])\nprint('torch' in sys.modules)"
    assert python("-c", program, *words).splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("fti", "--config", "digits.yaml"), "but got fti; did you mean fit?"),
        (("list", "server"), "but got server; did you mean servers?"),
        (("list", "xyzzy"), "to list, but got xyzzy."),
        ((*DIGITS, "--server", "Krumm"), "--server to be a class, but got Krumm; did you mean MultiKrum?"),
        ((*DIGITS, "--server", "rffl_pl.servers.FedAwg"), "but got FedAwg; did you mean FedAvg?"),
        (
            (*DIGITS, "--adversaries+=FreRider"),
            "--adversaries to be a class, but got FreRider; did you mean FreeRider?",
        ),
        ((*DIGITS, "--data", "Mnist"), "--data to be a class, but got Mnist; did you mean MNIST"),
        ((*DIGITS, "--model.network", "Percepton"), "but got Percepton; did you mean Perceptron?"),
        ((*DIGITS, "--model.optimizer", "Addam"), "but got Addam; did you mean Adam"),
        ((*DIGITS, "--trainer.callbacks+=EarlyStoping"), "but got EarlyStoping; did you mean EarlyStopping?"),
        (("fit", "--config", "digit.yaml"), "but got digit.yaml; did you mean digits.yaml"),
        (("fit", "--config=servers/crum.yaml"), "did you mean servers/krum.yaml"),
        (("fit", "--config", "xyzzy.yaml"), "one of the package's, but got xyzzy.yaml. `rffl list configs`"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(rffl: Run, words: tuple[str, ...], expected: str) -> None:
    """Commands, kinds, classes and configurations; where nothing is near, nothing is guessed."""
    ended = rffl(*words)
    assert ended.code == 2
    (error,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert expected in error


def test_help_of_a_command_by_its_name(rffl: Run) -> None:
    """As git has it."""
    assert rffl("help", "fit").out == rffl("fit", "--help").out
    assert rffl("help", "study").out == rffl("study", "--help").out
    assert "source ~/.rffl.bash" in rffl("completion", "--help").out


@pytest.fixture(scope="module")
def completions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The completion script."""
    path = tmp_path_factory.mktemp("bash") / "rffl.bash"
    path.write_text(python("-m", "rffl_pl", "completion"))
    return path


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("rffl f", {"fit"}),
        ("rffl list s", {"servers", "splits"}),
        ("rffl study --", {"--dry-run", "--only", "--table"}),
        ("rffl study s", {"studies/digits.yaml"}),
        ("rffl fit --server Fe", {"FedAvg"}),
        ("rffl fit --config servers/k", {"servers/krum.yaml"}),
        ("rffl fit --adversaries+ = L", {"LabelFlip"}),
        ("rffl fit --federation.", {"--federation.participants", "--federation.adversaries"}),
        ("rffl test --trainer.max_e", {"--trainer.max_epochs"}),
        ("rffl fit --server.pres", {"--server.preset"}),
        ("rffl fit --server.ru", {"--server.rule"}),  # of what bucketing derives from
        ("rffl fit --data.", {"--data.watch", "--data.path", "--data.vocabulary_size", "--data.own_test"}),
        ("rffl fit --data.fed", set()),
        ("rffl fit --model.network.hid", {"--model.network.hidden"}),
        ("rffl fit --ra", {"--ranks"}),
        ("rffl fit --no_such", set()),
        ("rffl --ranks 2 f", {"fit"}),
        ("rffl list configs d", {"digits.yaml"}),
        ("rffl fit --config pyp", {"pyproject.toml"}),  # a file of the folder
        ("rffl study READ", {"README.md"}),
        ("rffl fit --server.help Med", {"Median"}),
        ("rffl fit --server.preset g", {"guarded"}),
        ("rffl fit --exchange s", {"sharded"}),
        ("rffl fit --model.optimizer AdamW", {"AdamW"}),
    ],
)
def test_completion_in_bash(completions: Path, words: str, offered: set[str]) -> None:
    """The script is valid bash and offers commands, options and the names that options take."""
    subprocess.run(["bash", "-n", completions], check=True)
    program = f"source {completions}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _rffl; "
    program += 'echo "${COMPREPLY[@]}"'
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, timeout=30)
    found = set(ended.stdout.split())
    assert offered <= found if offered else not found
    assert all(option.startswith(words.split()[-1]) for option in found)
