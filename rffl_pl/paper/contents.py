"""What the paper shows: its tables and figures by name, and the measurements behind each figure."""

from __future__ import annotations

from rffl_pl.studies.study import Place

TABLES = {
    "accuracy": "Average (maximum) test accuracy in %",
    "fairness": "Fairness in %: Pearson's correlation of standalone and final accuracy",
    "targeted_poisoning": "MNIST, UNI, 10 honest and 2 label-flipping participants, in %",
    "targeted_poisoning_11": "MNIST, UNI, 10 honest and 11 label-flipping participants, in %",
    "untargeted_sign_uniform": "MNIST accuracy in % of every honest one, UNI, 2 sign-randomising adversaries",
    "untargeted_rescaling_uniform": "MNIST accuracy in % of every honest one, UNI, 2 re-scaling adversaries",
    "untargeted_inverting_uniform": "MNIST accuracy in % of every honest one, UNI, 2 value-inverting adversaries",
    "fi_hyperparameters": "Hyperparameters that all frameworks share",
    "mnist_cifar10_p5_accuracy": "Average (maximum) test accuracy in % of 5 participants",
    "mnist_cifar10_p5_fairness": "Fairness in % of 5 participants",
    "untargeted_freerider_uniform": "MNIST accuracy in % of every honest one, UNI, 2 free-riders",
    "targeted_poisoning_powerlaw": "MNIST, POW, 10 honest and 2 label-flipping participants, in %",
    "untargeted_sign_powerlaw": "MNIST accuracy in % of every honest one, POW, 2 sign-randomising adversaries",
    "untargeted_rescaling_powerlaw": "MNIST accuracy in % of every honest one, POW, 2 re-scaling adversaries",
    "untargeted_inverting_powerlaw": "MNIST accuracy in % of every honest one, POW, 2 value-inverting adversaries",
    "untargeted_freerider_powerlaw": "MNIST accuracy in % of every honest one, POW, 2 free-riders",
    "untargeted_sign_uniform_11": "MNIST accuracy in % of every honest one, UNI, 11 sign-randomising adversaries",
    "untargeted_rescale_uniform_11": "MNIST accuracy in % of every honest one, UNI, 11 re-scaling adversaries",
    "untargeted_invert_uniform_11": "MNIST accuracy in % of every honest one, UNI, 11 value-inverting adversaries",
    "untargeted_freerider_uniform_11": "MNIST accuracy in % of every honest one, UNI, 11 free-riders",
}
"""Every table of the paper with a title, in the paper's order."""

SERVERS = ("FedAvg", "q-FFL", "CFFL", "RFFL", "RFFL, Algorithm 1")

FIGURES = {
    "final_accuracies": "Final accuracy of every participant: MNIST and CIFAR-10, three splits",
    "free_riders": "Reputations with two free-riders: MNIST, UNI and POW",
    "poisoners": "Reputations with two sign-randomising, re-scaling and value-inverting adversaries: MNIST, UNI",
    "label_flip_uniform": "Label flipping, UNI: target accuracy, attack success, reputations; 5 honest and 2, 5, 10",
    "label_flip_powerlaw": "Label flipping, POW: target accuracy, attack success, reputations; 5 honest and 2, 5, 10",
}
"""Every figure of the paper with a title, in the paper's order."""

_PLACES: dict[str, tuple[str, list[Place]]] = {
    "free_riders": ("reputations", [{"split": split, "attack": "free_rider"} for split in ("UNI", "POW")]),
    "poisoners": (
        "reputations",
        [{"split": "UNI", "attack": attack} for attack in ("sign_random", "rescale", "value_invert")],
    ),
    "label_flip_uniform": ("label_flip", [{"split": "UNI", "adversaries": count} for count in ("2", "5", "10")]),
    "label_flip_powerlaw": ("label_flip", [{"split": "POW", "adversaries": count} for count in ("2", "5", "10")]),
}


def final_place(split: str, server: str) -> Place:
    """The place of every study of final accuracies that has a split and a server."""
    return {"participants": "10", "split": split, "server": server}


def places_of(name: str) -> list[tuple[str, Place]]:
    """The places of studies that a figure shows."""
    if name == "final_accuracies":
        return [
            (study, final_place(split, server))
            for study in ("mnist", "cifar10")
            for split in ("UNI", "POW", "CLA")
            for server in SERVERS
        ]
    study, places = _PLACES[name]
    return [(study, place) for place in places]
