"""The paper's networks. Any other `torch.nn.Module` serves as well."""

from rffl_pl.models.text import TextCNN
from rffl_pl.models.vision import CIFAR10CNN, MNISTCNN, Perceptron

__all__ = ["CIFAR10CNN", "MNISTCNN", "Perceptron", "TextCNN"]
