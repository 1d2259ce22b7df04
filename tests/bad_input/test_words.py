"""Words of a command line that no run can do with: each is one sentence, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from rffl_pl.cli.mistakes import KNOWN_AS
from tests.bad_input.refusal import FIT, Row, assert_refused, below
from tests.cli.folders import Run
from tests.conftest import QUICK, TORCHTEXTS

pytestmark = pytest.mark.timeout(180)

HUGE = 10**9
BEYOND = 10**30

OPTIONS: dict[str, Row] = {
    "unknown option": (("--federation.participantz", 3), "--federation.participantz 3; did you mean --federation.part"),
    "unknown option of nothing": (("--foo", 3), "options that there are, but got --foo 3"),
    "a stray word": (("stray",), "options that there are, but got stray"),
    "a file of options": (("mine.yaml",), "options that there are, but got mine.yaml; give --config mine.yaml."),
    "a seed of the federation's, whole": (
        ("--federation", "{participants: 3, seed: 9}"),
        "--seed_everything alone to say what federation.seed is, but got federation.seed in --federation {partic",
    ),
    "a seed of the federation's, at once": (
        ("--federation={participants: 3, seed: 9}",),
        "but got federation.seed in --federation={participants: 3, seed: 9}, which nothing goes by",
    ),
    "an option twice, at once": (("--run={name: a, name: b}",), "every key of --run {name: a, name: b} once"),
    "what nobody logs": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "accuracy"),
        "--trainer.callbacks.monitor to be accuracy/mean, but EarlyStopping got accuracy, which is not logged; give",
    ),
    "help of nothing": (("--server.help",), "a class behind --server.help, but got none; give one of AFL, ARC,"),
    "a stray word of two lines": (("a\nb",), "options that there are, but got a b"),
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
        "--server RFFL to have every option that is given, but got --server.dict_kwargs.x; leave it out.",
    ),
    "an option that no attack names": (
        ("--adversaries", "[SignRandom]", "--adversaries.dict_kwargs.x", 1),
        "--adversaries SignRandom to have every option that is given, but got --adversaries.dict_kwargs.x; leave it",
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
    "unknown key of an attack": (("--adversaries.scal", 1), "did you mean --adversaries.scale?"),
    "participants in words": (("--federation.participants", "many"), "--federation.participants to be a whole number"),
    "half a participant": (("--federation.participants", 2.5), "to be a whole number, but got 2.5"),
    "participants nan": (("--federation.participants", "nan"), "to be a whole number, but got nan"),
    "adversaries null": (("--federation.adversaries", "null"), "--federation.adversaries to be a whole number"),
    "participation in words": (("--federation.participation", "x"), "--federation.participation to be a number"),
    "participation inf": (("--federation.participation", "inf"), "--federation.participation to be a number"),
    "a section as a number": (("--federation", 3), "--federation to be names with values, but got 3"),
    "batch size in words": (("--data.batch_size", "x"), "--data.batch_size to be a whole number, but got x."),
    "examples in words": (("--data.examples_per_participant", "x"), "--data.examples_per_participant to be a whole"),
    "a misspelt augmentation": (("--data.augment", "Cropflip"), "be a class, but got Cropflip; did you mean CropFlip?"),
    "an option of no augmentation": (("--data.augment.padding", 2), "--data.augment to be a class that can be made, b"),
    "unknown key of an augmentation": (
        ("--data.augment", "CropFlip", "--data.augment.pading", 2),
        "but got --data.augment.pading; did you mean --data.augment.padding?",
    ),
    "an augmentation too wide": (
        ("--data.augment", "CropFlip", "--data.augment.padding", HUGE),
        "--data.augment.padding to be at most 4096, but got 1e+09; try 4.",
    ),
    "an augmentation of nothing": (
        ("--data.augment", "CropFlip", "--data.augment.padding", 0, "--data.augment.flip", "false"),
        "move images or to mirror them, but got padding 0 and flip false; leave --data.augment out",
    ),
    "a transform of torchvision": (
        ("--data.augment", "torchvision.transforms.v2.RandomRotation"),
        "to be a class derived from Augmentation, but got torchvision.transforms.v2.RandomRotation, which is none",
    ),
    "alpha of a split in words": (
        ("--data.split", "DIR", "--data.split.alpha", "x"),
        "--data.split.alpha to be a number, but got x.",
    ),
    "learning rate in words": (("--model.optimizer.lr", "fast"), "--model.optimizer.lr to be a number, but got fast."),
    "learning rate nan": (("--model.optimizer.lr", "nan"), "--model.optimizer.lr to be a number, but got nan."),
    "a learning rate of several": (("--model.optimizer.lr", "[0.1,0.2]"), "Expected --model.optimizer to fit, but "),
    "no learning rate": (("--model.optimizer.lr", ""), "--model.optimizer.lr to be a number, but got nothing."),
    "betas in words": (
        ("--model.optimizer", "Adam", "--model.optimizer.betas", "x"),
        "--model.optimizer.betas to be a list, but got x.",
    ),
    "one of two betas": (
        ("--model.optimizer", "Adam", "--model.optimizer.betas", "[0.9]"),
        "--model.optimizer.betas to be a list of 2 values, but got [0.9].",
    ),
    "one contribution": (
        ("--server", "IAFL", "--server.contributions", 0.5),
        "--server.contributions to be a list, but got 0.5.",
    ),
    "gamma without a bound": (("--server.gamma", "inf"), "to be a number, but got inf; write .inf, as YAML has it."),
    "gamma in words": (("--server.gamma", "x"), "--server.gamma to be a number, but got x."),
    "weights of classes in words": (
        ("--model.loss", "torch.nn.CrossEntropyLoss", "--model.loss.weight", "[1,x]"),
        "--model.loss.weight to be a list of numbers, but got [1, 'x'].",
    ),
    "an objective by its name": (
        ("--model.objective", "Contrast"),
        "--model.objective to be a class, but got Contrast; give your own as my_package.MyClass.",
    ),
    "an objective that is none": (
        ("--model.objective", "torch.nn.Linear"),
        "--model.objective to be a class derived from Objective, but got torch.nn.Linear, which is none.",
    ),
    "scale of an attack in words": (("--adversaries.scale", "x"), "--adversaries.scale to be a number, but got x."),
    "hidden in words": (("--model.network.hidden", "x"), "--model.network.hidden to be a whole number, but got x."),
    "seed in words": (("--seed_everything", "x"), "--seed_everything to be true or false or a whole numb"),
    "wandb in words": (("--run.wandb", "maybe"), "--run.wandb to be true or false, but got maybe."),
    "rounds in words": (("--trainer.max_epochs", "x"), "--trainer.max_epochs to be a whole number, but got x."),
    "patience in words": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "a", "--trainer.callbacks.patience", "x"),
        "--trainer.callbacks.patience to be a whole number, but got x.",
    ),
    "half of all are bad": (
        ("--federation.participants", "3", "--federation.adversaries", "1", "--federation.tolerated", "2"),
        "--federation.tolerated to be 0 or more and less than half of the 4 participants that are asked in a round",
    ),
    "none of the choices": (("--data.watch", "tests"), "to be one of validation, test, but got tests; did you mean te"),
    "unknown decay": (("--model.lr_decay_every", "step"), "--model.lr_decay_every to be one of epoch, round, but got"),
    "unknown server": (("--server", "Nope"), "but got Nope; give one of AFL, ARC, Bucketing, Bulyan, "),
    "an option of no optimizer": (
        ("--server", "FedOpt", "--server.optimizer.lr", "0.1"),
        "Expected --server.optimizer to be a class, but got --server.optimizer.lr alone; give --server.optimizer SGD",
    ),
    "options before their class": (
        ("--model.loss.label_smoothing", "0.1", "--model.loss", "CrossEntropyLoss"),
        "Expected --model.loss to be a class, but got --model.loss.label_smoothing alone; give --model.loss CLASS be",
    ),
    "the base of optimizers": (("--model.optimizer", "Optimizer"), "--model.optimizer to be a class that can be made"),
    "the base of a server's optimizers": (
        ("--server", "FedOpt", "--server.optimizer", "Optimizer"),
        "Expected --server.optimizer to be a class that can be made, but Optimizer is abstract; name a class first",
    ),
    "an option of no rule": (
        ("--server", "NNM", "--server.rule.trim", "0.2"),
        "Expected --server.rule to be a class, but got --server.rule.trim alone; give --server.rule TrimmedMean before",
    ),
    "an option of a number": (
        ("--model.optimizer.lr.b", "3"),
        "Expected --model.optimizer.lr to be a value, but got --model.optimizer.lr.b; leave .b out.",
    ),
    "unknown rule of an optimizer's": (
        ("--server", "FedOpt", "--server.rule", "RFFL"),
        "--server.rule to be a class, but got RFFL; give one of ARC, Bucketing, Bulyan, CenteredClipping, DnC",
    ),
    "a server by another name": (("--server", "FedProx"), "got FedProx, which is --model.proximal 0.1 here."),
    "training by another name": (("--server", "SCAFFOLD"), "got SCAFFOLD, which is --model.scaffold true here."),
    "unknown rule of a server": (
        ("--server", "NNM", "--server.rule", "RFFL"),
        "--server.rule to be a class, but got RFFL; give one of ARC, Bucketing, Bul",
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
        "Expected --server.rule TrimmedMean to have every option that is given, but got --server.rule.trimm; did you",
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
    "unknown network": (("--model.network", "Nope"), "but got Nope; give one of CIFAR10CNN, MNISTCNN, Perceptron"),
    "no network": (("--model.network", "null"), "--model.network to be a class, but got null; give one of"),
    "a function as a network": (("--model.network", "torch.nn.functional.relu"), "a class derived from Module, but"),
    "unknown optimizer": (("--model.optimizer", "adam"), "but got adam; did you mean Adam"),
    "a layer as an optimizer": (("--model.optimizer", "torch.nn.Linear"), "--model.optimizer to be a class, but got"),
    "unknown metric": (("--model.measures+=Nope",), "--model.measures to be a class, but got Nope"),
    "unknown callback": (("--trainer.callbacks+=Nope",), "--trainer.callbacks to be a class, but got Nope"),
    "more than a float holds": (("--data.batch_size", 10**320), "but got a number of more than 308 digits"),
    "unknown data": (("--data", "digits"), "--data to be a class, but got digits; did you mean Digits?"),
    "a base of data": (("--data", "TextDataModule"), "but TextDataModule is abstract"),
    "what data needs": (("--data", "TextFile"), "Expected --data.train_file, which TextFile needs, but got none; see"),
    "what a layer needs": (("--model.network", "torch.nn.Linear"), "--model.network.in_features and --model.net"),
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
    "batch size": (("--data.batch_size", 0), "--data.batch_size to be at least 1, but got 0"),
    "batch size null": (("--data.batch_size", "null"), "--data.batch_size to have a value, but got null"),
    "workers": (("--data.num_workers", HUGE), "--data.num_workers to be at most 4096, but got 1e+09."),
    "validation": (("--data.validation", 1.5), "--data.validation to lie between 0 and 1, but got 1.5"),
    "a split that is not there": (("--data.split", "tests.extensions.Nix"), "and tests.extensions has no Nix"),
    "an argument without a type": (
        ("--server", "tests.bad_input.own.Untyped", "--server.share", 1),
        "Expected every argument of tests.bad_input.own.Untyped that has no default to have a type, by which its opti",
    ),
    "a split with its option": (
        ("--data.split", "DIR(alpha=0.5)"),
        "but got DIR(alpha=0.5); give options behind it, as in --data.split DIR --data.split.alpha 0.5.",
    ),
    "a split of a module with a dash": (("--data.split", "my-data.A"), "got my-data.A, whose module has a dash in its"),
    "a split without cut": (("--data.split", "tests.bad_input.own.NoCut"), "tests.bad_input.own.NoCut has no cut;"),
    "a split that is none": (("--data.split", "tests.extensions.Echo"), "from Split, but got tests.extensions.Echo"),
    "a split without its option": (
        ("--data.split", "tests.bad_input.own.Cutting"),
        "which Cutting needs, but got none; see `rffl fit --data Digits --data.split.help tests.bad_input.own.Cutting`",
    ),
    "an option that a split lacks": (
        ("--data.split", "tests.bad_input.own.Cutting", "--data.split.pieces", 3),
        "got --data.split.pieces; did you mean --data.split.piece?",
    ),
    "unknown split": (("--data.split", "XYZ"), "--data.split to be one of UNI, POW, CLA, DIR, SHARDS, MIX, GROUPS"),
    "no least shard": (("--data.split", "DIR", "--data.split.least", 0), "--data.split.least to be at least 1, but"),
    "a least shard above the mean": (
        ("--data.split", "DIR", "--data.split.least", 101),
        "--data.split.least to be at most the 100 examples that a participant holds on average, but got 101; lower it.",
    ),
    "a least shard of another split": (("--data.split.least", 3), "but got --data.split.least; see `rffl fit --data"),
    "a least shard that nobody draws": (
        ("--federation.participants", 12, "--data.split", "DIR", "--data.split.alpha", 1e-9, "--data.split.least", 3),
        "one of 1000 draws of split DIR to give each of 12 participants 3 examples, but the best gives somebody 0;",
    ),
    "no pieces": (("--data.split", "SHARDS", "--data.split.shards", 0), "--data.split.shards to be at least 1, but"),
    "more pieces than examples": (
        ("--data.split", "SHARDS", "--data.split.shards", 101),
        "--data.split.shards to be at most the 100 examples that a participant holds, but got 101; lower it.",
    ),
    "more alike than all": (("--data.split", "MIX", "--data.split.alike", 2), "--data.split.alike to lie in [0, 1]"),
    "a factor that is none": (
        ("--adversaries", "[Rescale]", "--adversaries.factor", "x"),
        "--adversaries.factor to be a number, but got x",
    ),
    "a backdoor of no length": (
        ("--adversaries", "[Backdoor]", "--adversaries.scale", 0),
        "Backdoor's scale to be positive and finite, but got 0.0; 1 leaves it.",
    ),
    "another z": (
        ("--adversaries", "[ALIE]", "--adversaries.z", "papers"),
        "--adversaries.z to be one of paper or a number, but got papers; did you mean paper?",
    ),
    "other classes": (
        ("--adversaries", "[LabelFlip]", "--adversaries.classes", "all"),
        "--adversaries.classes to be one of one, mirrored, but got all.",
    ),
    "one data set is nobody's": (("--data.split", "OWN"), "its own part for --data.split OWN, but got one data set"),
    "local epochs": (("--model.local_epochs", 0), "--model.local_epochs to be at least 1, but got 0"),
    "local epochs without end": (("--model.local_epochs", HUGE), "--model.local_epochs to be at most 100000, but got"),
    "no local steps": (("--model.local_steps", 0), "--model.local_steps to be at least 1, but got 0"),
    "local steps without end": (("--model.local_steps", HUGE), "--model.local_steps to be at most 1000000, but got"),
    "a term that pushes away": (("--model.proximal", -1), "--model.proximal to be 0 or more and finite, but got -1.0"),
    "decay that grows": (("--model.lr_decay", 1e300), "--model.lr_decay to lie in (0, 1], but got 1e+300"),
    "no hidden": (("--model.network.hidden", 0), "--model.network.hidden to be at least 1, but got 0."),
    "negative hidden": (("--model.network.hidden", -1), "--model.network.hidden to be at least 1, but got -1."),
    "hidden null": (("--model.network.hidden", "null"), "--model.network.hidden to have a value, but got null"),
    "a layer beyond memory": (
        ("--model.network.inputs", HUGE, "--model.network.hidden", HUGE),
        "Perceptron to fit into memory",
    ),
    "no inputs": (("--model.network.inputs", 0), "--model.network.inputs to be at least 1, but got 0."),
    "negative classes": (("--model.network.classes", -1), "--model.network.classes to be at least 1, but got -1."),
    "no vocabulary": (
        ("--model.network", "TextCNN", "--model.network.vocabulary", 0),
        "--model.network.vocabulary to be at least 1, but got 0.",
    ),
    "an embedding beyond memory": (
        ("--model.network", "TextCNN", "--model.network.vocabulary", HUGE, "--model.network.width", HUGE),
        "TextCNN to fit into memory",
    ),
    "negative size of a layer": (
        ("--model.network", "torch.nn.Linear", "--model.network.in_features", -1, "--model.network.out_features", 9),
        "RuntimeError: Trying to create tensor with negative dimension -1: [9, -1]; mend its options, or the class.",
    ),
    "mode of a callback": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "a", "--trainer.callbacks.mode", "up"),
        "`mode` can be min, max, got up",
    ),
    "no such option of a callback": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "a", "--trainer.callbacks.patienc", 3),
        "EarlyStopping to have every option that is given, but got --trainer.callbacks.patienc; did you mean --trainer",
    ),
    "an option of no callback": (
        ("--trainer.callbacks.monitor", "a"),
        "to be a class, but got --trainer.callbacks.monitor alone; give --trainer.callbacks+=EarlyStopping before it",
    ),
    "an option of no measure": (
        ("--model.measures.num_classes", 10),
        "Expected --model.measures to be a class that can be made, but none is named; name a class first",
    ),
    "no such option of a logger": (
        ("--trainer.logger", "CSVLogger", "--trainer.logger.save_dr", "x"),
        "--trainer.logger CSVLogger to have every option that is given, but got --trainer.logger.save_dr; did you mean",
    ),
    "no such logger": (("--trainer.logger", "CSVLoger"), "but got CSVLoger; did you mean CSVLogger?"),
    "the worst accuracy": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "accuracy/mean"),
        "--trainer.callbacks.mode max for accuracy/mean, which is the better the higher, but EarlyStopping has min",
    ),
    "a callback of one model": (("--trainer.callbacks+=SpikeDetection",), "but got SpikeDetection, which is for"),
    "a callback that tunes": (("--trainer.callbacks+=LearningRateFinder",), "but got LearningRateFinder, which"),
    "no rounds": (("--trainer.max_epochs", 0), "--trainer.max_epochs to be at least 1, but got 0"),
    "rounds beyond": (("--trainer.max_epochs", HUGE), "--trainer.max_epochs to be at most 10000000, but got 1e+09"),
    "no steps": (("--trainer.max_steps", 0), "--trainer.max_steps to be at least 1, but got 0"),
    "never validated": (("--trainer.check_val_every_n_epoch", 0), "--trainer.check_val_every_n_epoch to be at least 1"),
    "no training": (("--trainer.limit_train_batches", 0), "--trainer.limit_train_batches to be left alone, but got 0"),
    "some training": (("--trainer.limit_train_batches", 2), "to be left alone, but got 2: a round is one batch; for"),
    "half the training": (("--trainer.limit_train_batches", 0.5), "--trainer.limit_train_batches to be left alone"),
    "overfitting": (("--trainer.overfit_batches", 1), "--trainer.overfit_batches to be left alone, but got 1"),
    "another root": (("--trainer.default_root_dir", "x"), "--trainer.default_root_dir to be left alone, but got x;"),
    "validated within a round": (("--trainer.val_check_interval", 5), "--trainer.val_check_interval to be left alone"),
    "validated by the clock": (
        ("--trainer.val_check_interval", "00:00:01:00"), "--trainer.val_check_interval to be left alone, but got 00:"
    ),
    "a trial of several rounds": (("--trainer.fast_dev_run", 3), "--trainer.fast_dev_run to be left alone, but got 3"),
    "checkpoints of Lightning's": (("--trainer.plugins", "AsyncCheckpointIO"), "write checkpoints, but got AsyncCheck"),
    "impatient": (("--run.patience", 4), "--run.patience to be at least 5, but got 4.0"),
    "a federation for the data": (
        ("--data.federation.participants", 9),
        "--federation alone to say what data.federation is, but got --data.federation.participants, which nothing goes",
    ),
    "adversaries for the model": (("--model.adversaries", "[Mimic]"), "--adversaries alone to say what model.adver"),
    "a seed for the federation": (("--federation.seed", 4), "--seed_everything alone to say what federation.seed is"),
    "no such time": (("--trainer.max_time", "soon"), "`Timer(duration='soon')` is not a valid duration"),
    "precision": (("--trainer.precision", "64-true"), "--trainer.precision to be 32-true or bf16-mixed, but got 64"),
    "no such accelerator": (("--trainer.accelerator", "tpu"), "--trainer.accelerator to be auto, gpu, cuda or cpu"),
    "devices": (("--trainer.devices", 2), "ranks come from torchrun"),
    "nothing recorded": (("--trainer.barebones", "true"), "--trainer.barebones to be left alone, but got True: a"),
    "clipping": (("--trainer.gradient_clip_val", 1), "--trainer.gradient_clip_val to be left alone, but got 1.0: eve"),
    "larger batches": (("--trainer.accumulate_grad_batches", 4), "got 4: every participant trains with an optimizer"),
    "how it clips": (("--trainer.gradient_clip_algorithm", "value"), "--trainer.gradient_clip_algorithm to be left al"),
    "statistics in common": (("--trainer.sync_batchnorm", "true"), "--trainer.sync_batchnorm to be left alone, but"),
    "a rate of one model": (("--trainer.callbacks+=LearningRateMonitor",), "but got LearningRateMonitor, which is for"),
    "a profiler of torch": (("--trainer.profiler", "pytorch"), "--trainer.profiler to be simple or advanced, but got"),
    "weights alone": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.save_weights_only", "true"),
        "--trainer.callbacks whose checkpoints can be gone on from, but got ModelCheckpoint with save_weights_only",
    ),
    "checkpoints elsewhere": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.dirpath", "there"),
        "--trainer.callbacks.dirpath to be left alone, but got ",
    ),
    "checkpoints in folders by metric": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.filename", "{epoch}-{accuracy/mean:.3f}"),
        "--trainer.callbacks.filename to make names without /, but got {epoch}-{accuracy/mean:.3f}; with --trainer",
    ),
    "checkpoints within a round": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps", 1),
        "save at the end of a round, with its record, but got ModelCheckpoint with every_n_train_steps; give every_n_",
    ),
    "checkpoints before a round's record": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.save_on_train_epoch_end", "false"),
        "but got ModelCheckpoint with save_on_train_epoch_end false; give every_n_epochs",
    ),
    "a cadence of one's own checkpoints": (
        ("--trainer.callbacks+=ModelCheckpoint", "--run.checkpoint_every", 3),
        "--run.checkpoint_every without a ModelCheckpoint of your own and with --trainer.enable_checkpointing, but go",
    ),
    "errors of no checkpoints": (
        ("--trainer.enable_checkpointing", "false", "--run.checkpoint_errors", "warn"),
        "--run.checkpoint_errors without a ModelCheckpoint",
    ),
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
    "nobody's data": (
        ("--config", "mnist.yaml", "--data.data_dir=~nobodys/x"),
        "--data.data_dir or RFFL_DATA_DIR to be a folder, but got ~nobodys/x, which is nobody's home; give its path.",
    ),
    "nobody's references": (
        ("--standalone.enabled", "true", "--standalone.cache_dir=~nobodys/x"),
        "--standalone.cache_dir to be a folder, but got ~nobodys/x, which is nobody's home",
    ),
    "no such checkpoint": (("--ckpt_path", "nowhere.ckpt"), "nowhere.ckpt, but there is no such file"),
    "network does not take the inputs": (("--model.network", "MNISTCNN"), "--model.network MNISTCNN to take inputs"),
    "network has other inputs": (("--model.network.inputs", 63), "inputs of shape [64, 1, 8, 8]"),
    "network has too few outputs": (("--model.network.classes", 7), "logits of shape [64, 10]"),
    "learning rate": (("--model.optimizer.lr", -1), "--model.optimizer to fit, but Invalid learning rate: -1"),
    "learning rate null": (("--model.optimizer.lr", "null"), "--model.optimizer.lr to have a value, but got null"),
    "learning rate beyond": (("--model.optimizer.lr", 1e300), "a first step fails: RuntimeError: value cannot be"),
    "optimizer with closure": (("--model.optimizer", "LBFGS"), "step without a closure, but got LBFGS"),
    "optimizer of sparse gradients": (("--model.optimizer", "SparseAdam"), "SparseAdam to train --model.network"),
    "more participants than examples": (
        ("--federation.participants", 5000, "--data.examples_per_participant", "null"),
        "at least one training example for each of 5001 participants, but there are 1294",
    ),
    "too little data": (("--data.examples_per_participant", 1000), "at least 5000 training examples"),
    "examples beyond": (("--data.examples_per_participant", HUGE), "at least 5000000000 training examples"),
    "nothing left": (
        ("--data.examples_per_participant", 1, "--federation.participants", 9),
        "leaves participant 7 of 9 without any",
    ),
    "CLA with too many": (
        ("--data.split", "CLA", "--data.split.draw", "disjoint", "--federation.participants", 40),
        "examples of class 0 for split CLA",
    ),
    "nothing held out": (("--data.validation", 1e-9), "--data.validation to hold out at least one of 1438 training"),
    "no test": (("--trainer.limit_test_batches", 0), "--trainer.limit_test_batches to leave at least one of 6 test"),
    "a class that there is not": (
        ("--adversaries", "[LabelFlip]", "--adversaries.source", 12),
        "LabelFlip's source and target to lie in 0 .. 9, but got 12",
    ),
    "more Byzantine than participants": (
        ("--server", "MultiKrum", "--server.byzantine", 5),
        "--server.byzantine f with f >= 0 and 2f + 2 < P",
    ),
}  # fmt: skip


IN_TORCHTEXTS = {  # whose learning rates have another type
    "a learning rate of several": "--model.optimizer.lr to be a number, but got [0.1, 0.2]",
    "learning rate null": "Expected --model.optimizer to fit, but ",
}


@pytest.mark.parametrize("mistake", OPTIONS)
def test_an_option_that_cannot_be(rffl: Run, here: Path, mistake: str) -> None:
    """A user would meet a traceback, a wrong sentence, a hang, or a folder of a run that never was."""
    words, expected = OPTIONS[mistake]
    assert_refused(rffl(*FIT, *words), IN_TORCHTEXTS.get(mistake, expected) if TORCHTEXTS else expected)
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
    """The parser takes it, nothing goes by it, and another experiment is run than was written."""
    own = here / "own.yaml"
    own.write_text(text)
    for given in (("--config", own), (f"--config={own}",), (f"-c{own}",), (f"-c={own}",)):
        assert_refused(rffl(*FIT, *given), f"in {own}, which nothing goes by; leave that out.")
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


def test_a_vocabulary_that_is_too_small(rffl: Run, here: Path) -> None:
    """The batch that is tried first has the shortest sentences, and the largest number comes rounds later."""
    rows = "".join(f"{'good' if i % 2 else 'bad'} w{i % 50} {'and' * (i > 60)},{i % 2}\n" for i in range(120))
    (here / "reviews.csv").write_text("text,label\n" + rows)
    (here / "test.csv").write_text("text,label\ngood and good,1\nbad and good,0\n")
    words: tuple[object, ...] = ("--data", "TextFile", "--data.train_file", here / "reviews.csv")
    words += ("--data.test_file", here / "test.csv", "--model.network", "TextCNN")
    words += ("--model.network.classes", 2, "--model.optimizer", "Adam", "--model.optimizer.lr", 0.001)
    ended = rffl("fit", *words, "--model.network.vocabulary", 54, "--federation.participants", 2, *QUICK)
    assert_refused(ended, " to 54, the training set")
    assert "the training set's, but it fails: index out of range" in ended.err
