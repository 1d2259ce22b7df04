"""Words of a command line that no run can do with: each is one sentence, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from rffl_pl.cli.readings import KNOWN_AS
from tests.bad_input.refusal import FIT, Row, assert_refused, below
from tests.cli.folders import Run

pytestmark = pytest.mark.timeout(180)

HUGE = 10**9
BEYOND = 10**30

OPTIONS: dict[str, Row] = {
    "unknown option": (("--federation.participantz", 3), "--federation.participantz 3; did you mean --federation.part"),
    "unknown option of nothing": (("--foo", 3), "a known option, but got --foo 3"),
    "a stray word": (("stray",), "a known option, but got stray"),
    "a file of options": (("mine.yaml",), "a known option, but got mine.yaml; give --config mine.yaml."),
    "a seed of the federation's, whole": (
        ("--federation", "{participants: 3, seed: 9}"),
        "--seed_everything alone to say what federation.seed is, but got federation.seed in --federation {partic",
    ),
    "a seed of the federation's, at once": (
        ("--federation={participants: 3, seed: 9}",),
        "but got federation.seed in --federation={participants: 3, seed: 9}, which has no effect",
    ),
    "an option twice, at once": (("--run={name: a, name: b}",), "every key of --run {name: a, name: b} once"),
    "help of nothing": (("--server.help",), "a class behind --server.help, but got none; give one of AFL, ARC,"),
    "a stray word of two lines": (("a\nb",), "a known option, but got a b"),
    "an empty word": (("",), "but got an empty word"),
    "one dash": (("-federation.participants", 3), "but got -federation.participants 3"),
    "no value": (("--federation.participants",), "a value behind --federation.participants"),
    "no value of a server's option": (("--server.gamma",), "a value behind --server.gamma, but got none."),
    "no value of an optimizer's option": (("--model.optimizer.lr",), "a value behind --model.optimizer.lr, but got n"),
    "no attacks": (("--adversaries",), "a value behind --adversaries, but got none."),
    "a number that looks like an option": (
        ("--adversaries.scale", "-1e3"),
        "a value behind --adversaries.scale, but got -1e3; give --adversaries.scale=-1e3.",
    ),
    "one dash before a checkpoint": (("-ckpt_path", "last"), "before ckpt_path, but got one; give --ckpt_path."),
    "one dash before a file": (("-config", "digits.yaml"), "two dashes before config, but got one; give --config."),
    "the beginning of --config": (("--conf", "my.yaml"), "but got --conf my.yaml; give --config my.yaml."),
    "a number for an option": (("--config", "{1: 2}"), "--config {1: 2} to name options, but got 1, which is none;"),
    "options beside their class": (
        ("--config", "{adversaries: [{class_path: Mimic, scale: 3}]}"),
        "the options of --adversaries below init_args, but got some beside class_path; write {class_path: CLASS,",
    ),
    "an option that no class names": (
        ("--server.dict_kwargs.x", 1),
        "an option of --server RFFL, but got --server.dict_kwargs.x; leave it out.",
    ),
    "an option that no attack names": (
        ("--adversaries", "[SignRandom]", "--adversaries.dict_kwargs.x", 1),
        "an option of --adversaries SignRandom, but got --adversaries.dict_kwargs.x; leave it",
    ),
    "what is added to a number": (("--server.gamma+=3",), "got --server.gamma+; did you mean --server.gamma?"),
    "another way to print": (
        ("--print_config=comments",),
        "--print_config alone, or with =skip_null or =skip_default behind it, but got comments.",
    ),
    "the beginning of an option": (("--federation.participant", 3), "participant 3; did you mean --federation.partic"),
    "an option of a misspelt group": (("--federaton.participants", 3), "did you mean --federation.participants"),
    "removal soon": (("--server.removal_from", "soon"), "to be one of never or a whole number, but got soon."),
    "unknown key of a server": (("--server.presett", "paper"), "--server.presett; did you mean --server.preset?"),
    "unknown key of an optimizer": (("--model.optimizer.momentun", 1), "did you mean --model.optimizer.momentum?"),
    "a key of another optimizer": (
        ("--model.optimizer.betas", 3),
        "an option of --model.optimizer SGD, but got --model.optimizer.betas; see `rffl fit",
    ),
    "what an optimizer is given by the run": (
        ("--model.optimizer.params", 3),
        "an option of --model.optimizer SGD, but got --model.optimizer.params; see `rffl fit",
    ),
    "unknown key of an attack": (("--adversaries.scal", 1), "did you mean --adversaries.scale?"),
    "participants in words": (("--federation.participants", "many"), "--federation.participants to be a whole number"),
    "half a participant": (("--federation.participants", 2.5), "to be a whole number, but got 2.5"),
    "participants nan": (("--federation.participants", "nan"), "to be a whole number, but got nan"),
    "adversaries null": (("--federation.adversaries", "null"), "--federation.adversaries to be a whole number"),
    "participation in words": (("--federation.participation", "x"), "--federation.participation to be a number"),
    "participation inf": (("--federation.participation", "inf"), "--federation.participation to be a number"),
    "a section as a number": (("--federation", 3), "--federation to be names with values, but got 3"),
    "one contribution": (
        ("--server", "IAFL", "--server.contributions", 0.5),
        "--server.contributions to be a list, but got 0.5.",
    ),
    "gamma without a bound": (("--server.gamma", "inf"), "to be a number, but got inf; write .inf, as YAML has it."),
    "gamma in words": (("--server.gamma", "x"), "--server.gamma to be a number, but got x."),
    "scale of an attack in words": (("--adversaries.scale", "x"), "--adversaries.scale to be a number, but got x."),
    "seed in words": (("--seed_everything", "x"), "--seed_everything to be true or false or a whole numb"),
    "wandb in words": (("--run.wandb", "maybe"), "--run.wandb to be true or false, but got maybe."),
    "half of all are bad": (
        ("--federation.participants", "3", "--federation.adversaries", "1", "--federation.tolerated", "2"),
        "--federation.tolerated to be 0 or more and less than half of the 4 participants that are asked in a round",
    ),
    "unknown server": (("--server", "Nope"), "but got Nope; give one of AFL, ARC, Bucketing, Bulyan, "),
    "an option of no optimizer": (
        ("--server", "FedOpt", "--server.optimizer.lr", "0.1"),
        "Expected --server.optimizer to be a class, but got --server.optimizer.lr alone; give --server.optimizer SGD",
    ),
    "options before their class": (
        ("--model.loss.label_smoothing", "0.1", "--model.loss", "CrossEntropyLoss"),
        "Expected --model.loss to be a class, but got --model.loss.label_smoothing alone; give --model.loss CLASS be",
    ),
    "the base of a server's optimizers": (
        ("--server", "FedOpt", "--server.optimizer", "Optimizer"),
        "Expected --server.optimizer to be a class that can be made, but Optimizer is abstract; name a class first",
    ),
    "an option of no rule": (
        ("--server", "NNM", "--server.rule.trim", "0.2"),
        "Expected --server.rule to be a class, but got --server.rule.trim alone; give --server.rule TrimmedMean before",
    ),
    "an option of a text": (
        ("--trainer.profiler", "simple", "--trainer.profiler.dirpath", "x"),
        "Expected --trainer.profiler to be a value, but got --trainer.profiler.dirpath; leave .dirpath out.",
    ),
    "an option that the data set's base lacks": (
        ("--data", "MNIST", "--data.dict_kwargs.foo", 3),
        "an option of --data MNIST, but got --data.dict_kwargs.foo; leave it out.",
    ),
    "an option of a number": (
        ("--model.optimizer.lr.b", "3"),
        "Expected --model.optimizer.lr to be a value, but got --model.optimizer.lr.b; leave .b out.",
    ),
    "unknown rule of an optimizer's": (
        ("--server", "FedOpt", "--server.rule", "RFFL"),
        "--server.rule to be a rule that another one can go around, but got RFFL; give one of ARC, Bucketing, Bulyan,",
    ),
    "a server by another name": (("--server", "FedProx"), "got FedProx, which is --model.proximal 0.1 here."),
    "training by another name": (("--server", "SCAFFOLD"), "got SCAFFOLD, which is --model.scaffold true here."),
    "unknown rule of a server": (
        ("--server", "NNM", "--server.rule", "RFFL"),
        "--server.rule to be a rule that another one can go around, but got RFFL; give one of ARC, Bucketing, Bul",
    ),
    "unknown rule of a rule": (
        ("--server", "ARC", "--server.rule", "NNM", "--server.rule.rule", "ARC", "--server.rule.rule.rule", "Krum"),
        "--server.rule.rule.rule to be a class, but got Krum; did you mean MultiKrum?",
    ),
    "a rule that is not mixed": (
        ("--server", "NNM", "--server.rule", "FoolsGold"),
        "--server.rule to be one of ARC, Bucketing, Bulyan, CenteredClipping, DnC, FedAvg, FedMGDA, GeometricMedian,",
    ),
    "option of a rule": (
        ("--server", "NNM", "--server.rule", "TrimmedMean", "--server.rule.trim", "0.7"),
        "Expected --server.rule.trim to lie in [0, 0.5), but got 0.7",
    ),
    "unknown option of a rule": (
        ("--server", "NNM", "--server.rule", "TrimmedMean", "--server.rule.trimm", "0.1"),
        "Expected an option of --server.rule TrimmedMean, but got --server.rule.trimm; did you",
    ),
    "a server near one": (("--server", "fedavg"), "but got fedavg; did you mean FedAvg?"),
    "a server of another module": (("--server", "nowhere.Server"), "--server to be a class, but got nowhere.Server"),
    "a module with a dash": (("--server", "my-server.A"), "my-server.A, whose module has a dash in its name, which"),
    "an attack of a module with a dash": (("--adversaries", "[my-attack.A]"), "my-attack.A, whose module has a dash"),
    "a module as a server": (("--server", "os"), "--server to be a class, but got os; give one of A"),
    "a layer as a server": (("--server", "torch.nn.Linear"), "a class derived from Server, but got torch.nn.Linear"),
    "no server": (("--server", ""), "--server to be a class, but got nothing; give one of"),
    "a server that is null": (("--server", "null"), "--server to be a class, but got null"),
    "the base of servers": (("--server", "Server"), "a class that can be made, but Server is abstract; name a class f"),
    "unknown attack": (("--adversaries", "[Nope]"), "--adversaries to be a class, but got Nope; give one of ALIE, Bac"),
    "attacks in words": (("--adversaries", "x"), "--adversaries to be a list, but got x; give --adversaries '[x]'."),
    "attacks that are null": (("--adversaries", "null"), "to be a list, but got None; give --adversaries '[]'."),
    "attacks unclosed": (("--adversaries", "[FreeRider"), "--adversaries to be a list, but got [FreeRider."),
    "a number as an attack": (("--adversaries", "[1]"), "--adversaries to be a class, but got 1; give one of"),
    "more than a float holds": (("--data.batch_size", 10**320), "but got a number of more than 308 digits"),
    "no participants": (("--federation.participants", 0), "--federation.participants to be at least 1, but got 0"),
    "negative adversaries": (("--federation.adversaries", -1), "--federation.adversaries to be 0 or more, but got -1"),
    "a thousand million participants": (("--federation.participants", HUGE), "at most 1000000 participants, but got"),
    "a thousand million adversaries": (("--federation.adversaries", HUGE), "at most 1000000 participants, but got"),
    "participants beyond": (("--federation.participants", BEYOND), "to be a whole number of 64 bits, but got 1e+30"),
    "a member option beyond": (("--server.removal_from", BEYOND), "--server.removal_from to be a whole number of 64"),
    "coalition in words": (("--federation.coalition", "x"), "--federation.coalition to be a list, but got x"),
    "coalition of one": (("--federation.coalition", 1), "--federation.coalition to be a list, but got 1"),
    "coalition of a stranger": (
        ("--federation.coalition", "[0, 9]"),
        "--federation.coalition to be different participants of 0 .. 5, but got [0, 9]; leave it out",
    ),
    "coalition with one twice": (("--federation.coalition", "[0, 0]"), "participants of 0 .. 5, but got [0, 0]"),
    "participation of nobody": (("--federation.participation", 0), "--federation.participation to lie in (0, 1], but"),
    "adversaries without attack": (("--adversaries", "[]"), "--adversaries to say what the 1 adversaries do"),
    "seed below": (("--seed_everything", -1), "--seed_everything to be at least 0, but got -1."),
    "seed above": (("--seed_everything", 2**32), "--seed_everything to be at most 4294967295, but got 4.29497e+09."),
    "gamma": (("--server.gamma", -1), "--server.gamma to be positive, but got -1"),
    "gamma null": (("--server.gamma", "null"), "--server.gamma to have a value, but got null; leave it out."),
    "scale null": (("--adversaries.scale", "null"), "--adversaries.scale to have a value, but got null"),
    "removal_from": (("--server.removal_from", -2), "--server.removal_from to be a round from 0 on or never"),
    "an argument without a type": (
        ("--server", "tests.bad_input.own.Untyped", "--server.share", 1),
        "Expected every argument of tests.bad_input.own.Untyped that has no default to have a type, by which its opti",
    ),
    "a factor that is none": (
        ("--adversaries", "[Rescale]", "--adversaries.factor", "x"),
        "--adversaries.factor to be a number, but got x",
    ),
    "a backdoor of no length": (
        ("--adversaries", "[Backdoor]", "--adversaries.scale", 0),
        "--adversaries.scale of Backdoor to be a positive number, but got 0.0; 1 leaves it.",
    ),
    "another thing to do then": (
        ("--adversaries", "[OnOff]", "--adversaries.then", "reply"),
        "--adversaries.then to be one of noise, replay, delta_weights, but got reply; did you mean replay?",
    ),
    "less than silence": (
        ("--adversaries", "[OnOff]", "--adversaries.scale=-1"),
        "--adversaries.scale of OnOff to be a number from 0 on, but got -1.0; 0 is silence.",
    ),
    "another z": (
        ("--adversaries", "[ALIE]", "--adversaries.z", "papers"),
        "--adversaries.z to be one of paper or a number, but got papers; did you mean paper?",
    ),
    "other classes": (
        ("--adversaries", "[LabelFlip]", "--adversaries.classes", "all"),
        "--adversaries.classes to be one of one, mirrored, but got all.",
    ),
    "impatient": (("--run.patience", 4), "--run.patience to be at least 5, but got 4.0"),
    "a federation for the data": (
        ("--data.federation.participants", 9),
        "--federation alone to say what data.federation is, but got --data.federation.participants, which has no",
    ),
    "adversaries for the model": (("--model.adversaries", "[Mimic]"), "--adversaries alone to say what model.adver"),
    "a seed for the federation": (("--federation.seed", 4), "--seed_everything alone to say what federation.seed is"),
    "attacks that nobody plays": (
        ("--adversaries+=ALIE", "--adversaries+=Mimic"),
        "of which ALIE and Mimic would not be played; give --adversaries '[ALIE, Mimic]'",
    ),
    "help of no server": (("--server.help", "multikrm"), "--server.help to be a class, but got multikrm; did you m"),
    "help of no module": (("--data.help", "my.Own"), "--data.help to be a class, but got my"),
    "help of another class": (("--server.help", "torch.nn.Linear"), "derived from Server, but got torch.nn.Linear"),
    "no name": (("--run.name", ""), "--run.name to be the name of a folder, one line of at most 255 bytes, but got ''"),
    "a blank name": (("--run.name", "  "), "--run.name to be the name of a folder"),
    "a name of two lines": (("--run.name", "a\nb"), r"at most 255 bytes, but got 'a\nb'"),
    "a name with a colour": (("--run.name", "\x1b[31m"), "--run.name to be the name of a folder"),
    "a long name": (("--run.name", "n" * 300), "one line of at most 255 bytes, but got"),
    "a name outside": (("--run.name", "../../x"), "--run.name to be a folder below --run.root, but got ../../x"),
    "an absolute name": (("--run.name", "/x"), "--run.name to be a folder below --run.root, but got /x"),
    "a name of a dot": (("--run.name", "."), "--run.name to be a folder below --run.root, but got ."),
    "never a checkpoint": (("--run.checkpoint_every", 0), "--run.checkpoint_every to be at least 1, but got 0; for no"),
    "a checkpoint in a bucket": (("--ckpt_path", "s3://x"), "--ckpt_path to be a folder on this machine, but got s3://x"),
    "a checkpoint on the web": (("--ckpt_path", "https://h.example/x"), "on this machine, but got https://h.example/x"),
    "the best checkpoint": (("--ckpt_path", "best"), "--ckpt_path to be a folder as runs leave it in checkpoints/"),
    "a checkpoint of a cluster": (("--ckpt_path", "hpc"), "--ckpt_path to be a folder as runs leave it"),
    "a checkpoint of a registry": (("--ckpt_path", "registry:m"), "--ckpt_path to be a folder as runs leave it"),
    "no checkpoint": (("--ckpt_path", ""), "--ckpt_path to be the name of a folder"),
    "nobody's checkpoint": (("--ckpt_path=~nobodys/x",), "to be a folder, but got ~nobodys/x, which is nobody's home"),
    "nobody's references": (
        ("--standalone.enabled", "true", "--standalone.cache_dir=~nobodys/x"),
        "--standalone.cache_dir to be a folder, but got ~nobodys/x, which is nobody's home",
    ),
    "no such checkpoint": (("--ckpt_path", "nowhere.ckpt"), "nowhere.ckpt, but there is no such file"),
    "a class that there is not": (
        ("--adversaries", "[LabelFlip]", "--adversaries.source", 12),
        "--adversaries.target of LabelFlip to lie in 0 .. 9, but got 12",
    ),
    "more Byzantine than participants": (
        ("--server", "MultiKrum", "--server.byzantine", 5),
        "--server.byzantine f with f >= 0 and 2f + 2 < P",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", OPTIONS)
def test_an_option_that_cannot_be(rffl: Run, here: Path, mistake: str) -> None:
    """A user would meet a traceback, a wrong sentence, a hang, or a folder of a run that never was."""
    words, expected = OPTIONS[mistake]
    assert_refused(rffl(*FIT, *words), expected)
    assert below(here) == set()


@pytest.mark.parametrize(
    "text",
    [
        "federation: {seed: 9}",
        "model: {adversaries: [Mimic]}",
        "data: {init_args: {federation: {participants: 9}}}",
        "data:\n  federation: {seed: 2}",
        "reputation: {server: FedAvg}",
    ],
)
def test_a_configuration_of_what_follows(rffl: Run, here: Path, text: str) -> None:
    """The parser takes it, it has no effect, and another experiment is run than was written."""
    own = here / "own.yaml"
    own.write_text(text)
    for given in (("--config", own), (f"--config={own}",), (f"-c{own}",), (f"-c={own}",)):
        assert_refused(rffl(*FIT, *given), f"in {own}, which has no effect; leave that out.")
    own.write_text("federation: {seed: null}")
    assert "max_epochs" in rffl(*FIT, "--config", own, "--print_config").out


@pytest.mark.parametrize("name", KNOWN_AS)
def test_what_another_name_is_here(rffl: Run, name: str) -> None:
    """Who types a name of the literature is answered with words that are refused in turn."""
    assert_refused(rffl(*FIT, "--server", name), f"which is {KNOWN_AS[name]} here.")
    assert "max_epochs" in rffl(*FIT, *KNOWN_AS[name].split(), "--print_config").out


@pytest.mark.parametrize("root", ["", "a\nb", "a\0b", "n" * 300, "file/runs", "~nobodys/runs"])
def test_a_root_that_cannot_be(rffl: Run, here: Path, root: str) -> None:
    """Likewise where the folder of all runs cannot be one."""
    (here / "file").write_text("")
    assert_refused(rffl(*FIT, f"--run.root={root}"), "Expected --run.root to be")
    assert below(here) == {here / "file"}


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
@pytest.mark.parametrize("checkpoint", [None, "last", "best", "s3://x"])
def test_a_checkpoint_that_cannot_be(rffl: Run, here: Path, command: str, checkpoint: str | None) -> None:
    """Nobody wants the accuracy of untrained weights."""
    given = () if checkpoint is None else ("--ckpt_path", checkpoint)
    assert_refused(rffl(command, "--config", "digits.yaml", *given), "ckpt_path")
    assert below(here) == set()
