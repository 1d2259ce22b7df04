"""Mistakes in a user's own classes: each is one sentence that names the class, and nothing is left behind."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from rffl_pl.errors import ones_own
from tests.bad_input.own import Weighing
from tests.bad_input.refusal import FIT, Row, assert_refused, below
from tests.cli.folders import Run, rows
from tests.conftest import QUICK

pytestmark = pytest.mark.timeout(180)

OWN, FAILING = "tests.bad_input.own", "tests.bad_input.failing"
DATA = (
    "fit", *QUICK, "--trainer.max_epochs", 1, "--federation.participants", 3, "--model.network", "Perceptron",
    "--model.network.inputs", 2, "--model.network.classes", 2,
)  # fmt: skip

LOADED = {
    "nothing": "load() of Data to return Sources(train=..., test=...), but got NoneType.",
    "a pair": "load() of Data to return Sources(train=..., test=...), but got tuple.",
    "no training set": "training examples of Data to be a map-style dataset, but got none; give one",
    "no test set": "test examples of Data to be a map-style dataset, but got none; give one",
    "a stream": "but got Streamed, whose examples have no number; read them into a list or a TensorDataset first.",
    "a loader": "but got DataLoader, whose examples have no number; give its .dataset.",
    "dictionaries": "but got one with 'x' and 'label'; give a dataset of pairs, or take --data HFDataset.",
    "a generator": "but got generator, whose examples have no number",
    "a file name": "every training example of Data to be a pair (x, y) with y a class number",
    "a tensor": "labels of Data to be whole numbers",
    "a negative length": "but got Numbered, which has no length.",
    "double precision": "single precision, the test set's, but got torch.float64; give x.float().",
    "no examples": "Data to have training examples, but there is none",
    "no test examples": "Data to have test examples, but there is none",
    "NaN": "finite inputs of Data, but training example 0 has NaN or infinity",
    "features of a network": "but those of training example 0 require a gradient; make them under torch.no_grad(), or",
    "features one by one": "inputs of Data to be numbers alone, but those of test example 0 require a gradient",
    "a class too many": "labels of Data to lie in 0 .. 1, but training example",
    "half a class": "labels of Data to be whole numbers, but training example 0",
    "three tensors": "training examples of Data to be pairs (x, y), but its TensorDataset has 3",
    "other inputs than the test's": "Perceptron to take inputs of shape [2, 1], the training set's, but it fails",
    "other inputs to validate": "--model.network Perceptron to take inputs of shape [64, 1], the validation set's, but",
    "complex inputs": "--model.network Perceptron to take inputs of shape [2, 2] and of torch.complex64, the training",
    "ragged inputs": "every x of one shape, but a batch with example 0 is not",
    "names of classes": "with y a class number, but got",
    "several classes": "but got TypeError: 3 numbers for one example; give the number of its one class",
    "words as inputs": "pairs (x, y) of a tensor and a class number",
    "a torn file": "but got OSError: disk gone",
    "a torn file found late": "but test example 30 is not (OSError: disk gone)",
    "no file": "load() of Data to read the data, but FileNotFoundError: [Errno 2] No such file or",
    "a bug": "load() of Data to read the data, but KeyError: 'rings' (own.py, line ",
}

CLASSES: Mapping[str, Row] = {
    "a rule on whole vectors": (
        ("--server", "tests.rehearsal.test_pieces.Pasted"),
        "combine of --server Pasted to make every coordinate of what uploads have there alone",
    ),
    "a verdict that nobody asks for": (
        ("--server", "NNM", "--server.rule", f"{OWN}.Generous"),
        "--server.rule to decide by weigh, combine and stride, since the outer rule calls these and no rule, but "
        "Generous overrides rule; remove that, or give --server Generous alone.",
    ),
    "frozen": (("--model.network", f"{OWN}.Frozen"), "parameters that train, all of them float32, but Frozen has none"),
    "double": (
        ("--model.network", f"{OWN}.Double"),
        "all of them float32, but Double has 2, linear.weight in torch.float64, linear.bias in torch.float64; call its",
    ),
    "paired": (
        ("--model.network", f"{OWN}.Paired"),
        "Paired to give a tensor of logits, but got tuple; have it give these alone, without auxiliary outputs.",
    ),
    "searching": (("--model.network", f"{OWN}.Searching"), "--model.network Searching to take inputs of shape"),
    "detached": (("--model.network", f"{OWN}.Detached"), "--model.network Detached, but a first step fails"),
    "assisted": (
        ("--model.network", f"{OWN}.Assisted"),
        "[2, 10] in training, as in evaluation, but got tuple",
    ),
    "crashing": (
        ("--model.network", f"{OWN}.Crashing"),
        "in training, but it fails: KeyError: 'logits' (own.py, line",
    ),
    "nameless": (
        ("--model.optimizer", f"{OWN}.Nameless"),
        "Nameless to keep its learning rate as lr in its param",
    ),
    "stately": (("--model.network", f"{OWN}.Stately"), "state_dict, but _extra_state is of type dict; have get_extra"),
    "unmade": (
        ("--model.network", f"{OWN}.Unmade"),
        "Expected --model.network Unmade to take the options that it is given, but AttributeError",
    ),
    "learned": (("--model.loss", f"{OWN}.Learned"), "--model.loss to have nothing to train, but Learned has param"),
    "averaged": (("--model.loss", f"{OWN}.Averaged"), "Averaged to keep nothing from batch to batch, but mean changes"),
    "warming": (("--model.loss", f"{OWN}.Warming"), "Warming to keep nothing from batch to batch, but batches changes"),
    "wrong": (("--model.loss", f"{OWN}.Wrong"), "--model.loss Wrong to give one number for a batch, which logits can"),
    "unlike": (("--model.loss", f"{OWN}.Unlike"), f"--model.loss {OWN}.Unlike to be copied, but AttributeError"),
    "several": (("--model.loss", f"{OWN}.Several"), "can be trained by, but got tuple."),
    "every loss": (
        ("--model.loss", "torch.nn.CrossEntropyLoss", "--model.loss.reduction", "none"),
        "CrossEntropyLoss to give one number for a batch, which logits can be trained by, but got shape [11].",
    ),
    "another task's loss": (
        ("--model.loss", "torch.nn.BCEWithLogitsLoss"),
        "BCEWithLogitsLoss to take class logits of shape [11, 10] and as many classes, but it fails: ValueError: Targ",
    ),
    "no such loss": (("--model.loss", "CrosEntropyLoss"), "but got CrosEntropyLoss; did you mean CrossEntropyLoss"),
    "no class of that kind": (("--server", f"{OWN}.Attacking"), f"derived from Server, but got {OWN}.Attacking, which"),
    "a function that says nothing": (
        ("--model.network", f"{OWN}.unsaid"),
        f"but got {OWN}.unsaid, a function that does not say what it makes; write def unsaid(...) -> nn.Module.",
    ),
    "a function of another kind": (("--server", f"{OWN}.made"), f"derived from Server, but got {OWN}.made, which is n"),
    "no attack": (
        ("--adversaries", f"[{OWN}.Silent]"),
        f"derived from Adversary, but got {OWN}.Silent, which is",
    ),
    "nearly": (("--server", f"{OWN}.Silen"), f"got {OWN}.Silen, and {OWN} has no Silen; did you mean {OWN}.Silent"),
    "nearly an attack": (("--adversaries", f"[{OWN}.Atacking]"), f"has no Atacking; did you mean {OWN}.Attacking"),
    "without a rule": (("--server", f"{OWN}.Unwritten"), f"{OWN}.Unwritten has no rule; write it."),
    "starting": (("--server", f"{OWN}.Starting"), f"--server {OWN}.Starting to start, but KeyError: 'x' (own.py, line"),
    "beginning": (("--server", f"{OWN}.Beginning"), "start of --server Beginning to call super().start(task), but it"),
    "an option of no group": (
        ("--server", f"{OWN}.Grouped", "--server.lengths.moast", 2),
        f"an option of --server Grouped, but got --server.lengths.moast; see `rffl fit --server.help {OWN}.Grouped`.",
    ),
    "the beginning of an option of a group": (
        ("--server", f"{OWN}.Grouped", "--server.lengths.mos", 2),
        "an option of --server Grouped, but got --server.lengths.mos; see `rffl fit",
    ),
    "a word for a group": (
        ("--server", f"{OWN}.Grouped", "--server.lengths", "abc"),
        "Expected --server.lengths to be names with values, but got abc.",
    ),
    "an option of a group of none": (
        ("--server", f"{OWN}.Grouped", "--server.classes.most", 2),
        "--server.classes to be a value, but got --server.classes.most; leave .most out.",
    ),
    "an option of none": (("--server", f"{OWN}.Silent", "--server.k", 1), f"see `rffl fit --server.help {OWN}.Silent`"),
    "no such class": (("--model.network", f"{OWN}.Nope"), f"--model.network to be a class, but got {OWN}.Nope"),
    "particular": (("--server", f"{OWN}.Particular", "--server.k", 0), "but ValueError: k is too small (own.py, line"),
    "attacking": (
        ("--federation.adversaries", 1, "--adversaries", f"[{OWN}.Attacking]", "--adversaries.since", 1),
        f"--adversaries {OWN}.Attacking to play a round, but RuntimeError: no upload today (own.py, line",
    ),
    "choosy": (
        ("--adversaries", f"[{OWN}.Choosy]", "--adversaries.k", 0),
        "--adversaries Choosy to take the options that it is given, but RuntimeError: k is too small (own.py, line",
    ),
} | {
    f"an attack that cannot {what}": (
        ("--federation.adversaries", 1, "--adversaries", f"[{FAILING}.Failing]", "--adversaries.where", where),
        f"--adversaries {FAILING}.Failing to {what}, but KeyError: '{where}' (failing.py, line",
    )
    for where, what in {
        "prepare": "prepare for its task",
        "measures": "say what it measures",
        "probe": "make the examples that its success is measured on",
    }.items()
}

_NAMED = "to be what its class takes, by its import path as torch.relu or my_package.mine, but got"
OPTIONS: dict[str, Row] = {
    "a mode": (("mode", "sof"), "--server.mode to be one of HARD, SOFT, but got sof; did you mean SOFT?"),
    "a function": (("act", "torch.reluu"), f"--server.act {_NAMED} torch.reluu, and torch has no reluu; did you mean"),
    "a number for a function": (("act", "torch.pi"), f"--server.act {_NAMED} torch.pi."),
    "a function of no module": (("act", "relu"), f"--server.act {_NAMED} relu, which names no module."),
    "a type": (("dtype", "float64"), f"--server.dtype {_NAMED} float64, which names no module."),
    "a type by half": (("dtype", "torch.flot64"), f"--server.dtype {_NAMED} torch.flot64, and torch has no flot64"),
    "a file": (
        ("note", "[1]"),
        f"to be of the type that its class declares, but got [1]; see `rffl fit --server.help {OWN}.Elaborate`.",
    ),
}

MEASURES: dict[str, Row] = {
    "too few classes": (
        ("torchmetrics.classification.MulticlassAccuracy", "--model.measures.num_classes", 3),
        "--model.measures to take logits [64, 10] and classes [64], but multiclass_accuracy fails: ",
    ),
    "another task": (("torchmetrics.MeanSquaredError",), "but mean_squared_error fails: RuntimeError: "),
    "eleventh": ((f"{OWN}.Eleventh",), "but eleventh fails: IndexError: "),
    "unborn": ((f"{OWN}.Unborn",), "Unborn to be copied, but AttributeError: "),
    "every": ((f"{OWN}.Every",), "--model.measures to give one number, but every gives [10]; have it average."),
    "taken": ((f"{OWN}.Reputation",), "names of their own, but reputation is taken; leave one, or rename the class."),
    "taken in tables": ((f"{OWN}.AccuracyMean",), "names of their own, but accuracy_mean is taken; leave one"),
    "taken by attacks": ((f"{OWN}.AttackSuccess",), "names of their own, but attack_success is taken; leave one"),
}

CUTS = {
    "nothing": "split Cut to cut a list of index vectors, but got another NoneType.",
    "none": "split Cut to cut 5 shards, but got 0.",
    "lists": "split Cut to cut a list of index vectors, but got another list.",
    "matrices": "split Cut to cut a list of index vectors, but got another list.",
    "a bug": f"--data.split {OWN}.Cut to cut the shards, but KeyError: 'a bug' (own.py, line",
    "numbers": "split Cut to cut index vectors, int64 in 0 .. 1293, but that of participant 0 is torch.float32",
    "elsewhere": "from 1000000 to 1000004",
}


@pytest.mark.parametrize("what", LOADED)
def test_data_that_nobody_can_train_on(rffl: Run, here: Path, what: str) -> None:
    """Whoever writes a data module would look for the mistake in our code."""
    assert_refused(rffl(*DATA, "--data", f"{OWN}.Data", "--data.what", what), LOADED[what])
    assert below(here) == set()


def test_data_that_passes_no_options_on(rffl: Run, here: Path) -> None:
    """What is offered instead is the option that was given."""
    ended = rffl(*DATA, "--data", f"{OWN}.Narrow", "--data.split", "UNI")
    assert_refused(ended, "take --data.split, as what it derives from does, but its constructor passes no **kwargs on")


def test_data_whose_constructor_begins_nothing(rffl: Run, here: Path) -> None:
    """An attribute of ours that is missing says nothing to whoever forgot a call."""
    ended = rffl(*DATA, "--data", f"{OWN}.Alone")
    assert_refused(ended, "the constructor of Alone to call super().__init__(federation, **kwargs), but it does not")
    assert below(here) == set()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "Begun",
            "Begun to have read its examples, but it has not; call setup('fit') first, and super().setup(st",
        ),
        (
            "Moving",
            "Expected Moving to leave on_after_batch_transfer as it is, which participants' training go",
        ),
    ],
)
def test_data_with_hooks_of_lightnings(rffl: Run, here: Path, kind: str, expected: str) -> None:
    """Whoever knows Lightning writes them; some were a riddle, others had no effect, or one in part."""
    ended = rffl(*DATA, "--data", f"{OWN}.{kind}", "--data.what", "all that is needed")
    assert_refused(ended, expected)
    assert below(here) == set()


def test_an_option_of_no_group_in_a_file(rffl: Run, here: Path, tmp_path: Path) -> None:
    """It is named as in a file, or by what its group alone calls it."""
    file = tmp_path / "own.yaml"
    file.write_text(f"server: {{class_path: {OWN}.Grouped, init_args: {{lengths: {{moast: 2}}}}}}")
    ended = rffl(*FIT, "--config", file)
    assert_refused(ended, "an option of --server Grouped, but got --server.lengths.moast; see")


def test_a_loss_that_mixes_up_examples_and_classes(rffl: Run, here: Path) -> None:
    """Two examples and two classes fit each other by chance, and nonsense is trained to the end."""
    words = (*DATA, "--data", f"{OWN}.Data", "--data.what", "all that is needed", "--data.batch_size", 2)
    ended = rffl(*words, "--model.loss", "torch.nn.MSELoss")
    assert_refused(
        ended, "MSELoss to take class logits of shape [3, 2] and as many classes, but it fails: RuntimeError"
    )
    assert below(here) == set()


def test_whole_numbers_weigh(rffl: Run, here: Path) -> None:
    """As good as others."""
    assert rffl(*FIT, "--server", f"{OWN}.Counting").code == 0


def test_that_a_rank_is_gone_is_nobodys_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a sentence says so, and not that one's own rule is to be mended; of a GPU without room likewise."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    gone = RuntimeError("[gloo/transport/tcp/pair.cc:525] Connection closed by peer")
    for met in (gone, torch.cuda.OutOfMemoryError("CUDA out of memory")):
        with pytest.raises(RuntimeError) as caught, ones_own(Weighing(), "--server", "judge"):
            raise met
        assert caught.value is met


def test_data_without_a_number_of_classes(rffl: Run, here: Path) -> None:
    """Nobody would know how many outputs a network needs."""
    ended = rffl(*DATA, "--data", f"{OWN}.Unnumbered", "--data.what", "no examples")
    assert_refused(
        ended, "Unnumbered to say its number of classes, but got None; set num_classes in the class to an int."
    )
    assert below(here) == set()


@pytest.mark.parametrize("mistake", CLASSES)
def test_a_class_that_does_not_fit(rffl: Run, here: Path, mistake: str) -> None:
    """Likewise for networks, servers and attacks."""
    words, expected = CLASSES[mistake]
    assert_refused(rffl(*FIT, *words), expected)
    assert below(here) == set()


@pytest.mark.parametrize("mistake", OPTIONS)
def test_an_option_that_is_not_of_its_type(rffl: Run, here: Path, mistake: str) -> None:
    """The parser's own words are shown, several sentences that name the option as nobody types it."""
    (name, given), expected = OPTIONS[mistake]
    ended = rffl(*FIT, "--server", f"{OWN}.Elaborate", f"--server.{name}", given)
    assert_refused(ended, expected)
    assert below(here) == set()


THREE = ("--trainer.max_epochs", 3)
ROUNDS: Mapping[str, Row] = {
    "weighing": (
        ("--server", f"{OWN}.Weighing"),
        "Weighing to judge the uploads in round 1, but AttributeError: 'Evidence' object has no attribute 'inner_pr",
    ),
    "silent": (("--server", f"{OWN}.Silent"), "rule of --server Silent to return a Verdict, but got NoneType."),
    "keeping": (("--server", f"{OWN}.Keeping"), "kept of --server Keeping to give shape ["),
    "generous": (
        ("--server", f"{OWN}.Generous"),
        "quotas of --server Generous to be shares, between 0 and 1, but go",
    ),
    "sending": (
        ("--server", f"{OWN}.Sending"),
        "Sending to give a participant its download in round 1, but KeyError: 'nobody' (own",
    ),
    "attacking": (
        (*THREE, "--federation.adversaries", 1, "--adversaries", f"[{OWN}.Attacking]"),
        "Attacking to forge its upload in round 3, but RuntimeError: no upload today (own.py, line",
    ),
    "a measure": (
        (f"--model.measures+={OWN}.Late",),
        f"--model.measures {OWN}.Late to say what measure late has seen, but KeyError: ",
    ),
    "not training": (
        (
            *(*THREE, "--federation.adversaries", 1),
            *("--adversaries", f"[{FAILING}.Failing]", "--adversaries.where", "trains_in"),
        ),
        "Failing to say whether it trains in round 3, but KeyError: 'trains_in' (failing",
    ),
} | {
    f"a server that cannot {what}": (
        ("--server", f"{FAILING}.Packing", "--server.where", where, "--federation.participation", 0.5),
        f"--server {FAILING}.Packing to {what}, but KeyError: '{where}' (failing.py, line",
    )
    for where, what in {
        "pack": "pack an upload in round 1",
        "unpack": "unpack an upload in round 1",
        "model_for": "give a participant its model in round 1",
        "state_dict": "give its state for a checkpoint",
    }.items()
}


@pytest.mark.parametrize("mistake", ROUNDS)
def test_a_class_that_fails_in_a_round(rffl: Run, here: Path, mistake: str) -> None:
    """Sixty lines of ours and Lightning's hide the one line of theirs; and how to go on is not said."""
    words, expected = ROUNDS[mistake]
    assert_refused(rffl(*FIT, *words), expected)


FILES = {
    "def a(:": "--server to be a class, but got mine.A, whose module cannot be imported: SyntaxError: ",
    "raise RuntimeError('early')": "whose module cannot be imported: RuntimeError: early (mine.py, line 1); mend it.",
    "import not_installed": "cannot be imported, since there is no module not_installed; install it.",
    "": "got mine.A, and mine has no A.",
}


@pytest.mark.parametrize("content", FILES)
def test_a_file_of_ones_own(rffl: Run, here: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    """What is wrong in it is not said, or that it is there at all."""
    (here / "mine.py").write_text(content)
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    assert_refused(rffl(*FIT, "--server", "mine.A"), FILES[content])


def test_a_file_that_is_not_there(rffl: Run, here: Path) -> None:
    """Which of the two is missing, the file or the class, is not said."""
    assert_refused(rffl(*FIT, "--server", "mina.py"), "got mina.py, which is a file; start in its folder and give mi")
    (here / "here.py").write_text("class A: pass\n")  # the parser would read it as options
    for words in (("--server", "here.py"), ("--server=here.py",), ("--model.network", "./here.py")):
        assert_refused(rffl(*FIT, *words), "here.py, which is a file; start in its folder and give here.MyClass,")
    missing = "got mina.A, and there is no module mina in this folder or among the packages that are installed."
    assert_refused(rffl(*FIT, "--server", "mina.A"), missing)
    assert_refused(rffl(*FIT, "--adversaries", "[mina.A]"), missing)


def test_a_network_in_a_file_that_is_no_python(rffl: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser lets the mistake through."""
    (here / "mine.py").write_text("def a(:")
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    assert_refused(rffl(*FIT, "--model.network", "mine.A"), "invalid syntax (mine.py, line 1)")


@pytest.mark.parametrize("content", ["x = 1 / 0", "open('nowhere')", "[][0]"])
@pytest.mark.parametrize("option", ["--model.network=mine.A", "--model.optimizer=mine.A", "--adversaries=[mine.A]"])
def test_a_file_that_fails(rffl: Run, here: Path, monkeypatch: pytest.MonkeyPatch, content: str, option: str) -> None:
    """Likewise: a traceback hides where in one's own file it is, or the files of the run are blamed."""
    (here / "mine.py").write_text(content)
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    ended = rffl(*FIT, option)
    assert_refused(ended, "your own classes to lie in files that can be imported, but ")
    assert "(mine.py, line 1); mend it." in ended.err


def test_a_network_that_needs_two_examples(rffl: Run) -> None:
    """Trying a step refuses nobody who can be trained."""
    ended = rffl(*FIT, "--model.network", f"{OWN}.Unnormalised")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("network", ["Outer.Inner", "Outer.made", "made"])
def test_a_network_that_is_no_class_of_a_module(rffl: Run, network: str) -> None:
    """One inside another class, and what makes one; the parser takes them all."""
    ended = rffl(*FIT, "--model.network", f"{OWN}.{network}")
    assert ended.code == 0, ended.err


def test_a_network_that_is_made_when_it_is_imported(rffl: Run, here: Path) -> None:
    """No seed would decide its weights."""
    ended = rffl(*FIT, "--model.network", f"{OWN}.MADE")
    assert_refused(
        ended, "--model.network to be a class, or a function that makes a network, but got a Sequential that"
    )
    assert below(here) == set()


def test_an_option_that_no_function_has(rffl: Run, here: Path) -> None:
    """What is known of it is asked as of a class."""
    ended = rffl(*FIT, "--model.network", f"{OWN}.made", "--model.network.widht", 9)
    assert_refused(ended, "but got --model.network.widht; did you mean --model.network.width?")


@pytest.mark.parametrize("mistake", MEASURES)
def test_a_measure_that_does_not_fit(rffl: Run, here: Path, mistake: str) -> None:
    """It is told before a round is trained."""
    (measure, *options), expected = MEASURES[mistake]
    assert_refused(rffl(*FIT, f"--model.measures+={measure}", *options), expected)
    assert below(here) == set()


def test_a_measure_that_is_a_number_of_pythons(rffl: Run, tmp_path: Path) -> None:
    """As good as a tensor; what was tried before the run does not count."""
    ended = rffl(*FIT, f"--model.measures+={OWN}.Seen")
    assert ended.code == 0, ended.err
    (row,) = rows(next((tmp_path / "runs").rglob("metrics.csv")))
    assert float(row["seen/mean"]) == 144


@pytest.mark.parametrize("what", CUTS)
def test_a_split_that_cuts_no_shards(rffl: Run, here: Path, what: str) -> None:
    """Likewise for splits."""
    assert_refused(rffl(*FIT, "--data.split", f"{OWN}.Cut", "--data.split.what", what), CUTS[what])
    assert below(here) == set()
