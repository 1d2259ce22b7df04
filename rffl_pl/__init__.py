"""Robust and Fair Federated Learning (Xu & Lyu 2021) with PyTorch Lightning and torch.distributed."""

__version__ = "0.1.0"
