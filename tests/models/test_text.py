"""The network for sentences against three separate convolutions, and what padding may not do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d
from torch.nn.utils import prune

from rffl_pl.models import TextCNN


def network(seed: int = 0, **sizes: int) -> TextCNN:
    torch.manual_seed(seed)
    return TextCNN(**{"vocabulary": 50, "classes": 3, "width": 8, "kernels": 5, **sizes}).eval()


def sentence(length: int, seed: int) -> Tensor:
    return torch.randint(1, 50, (length,), generator=torch.Generator().manual_seed(seed))


def naive(net: TextCNN, tokens: Tensor) -> Tensor:
    """The logits of one sentence in float64, from the definition; one or two words are padded to three."""
    words = net.embedding.weight.double()[torch.cat([tokens, tokens.new_zeros(max(0, 3 - len(tokens)))])]
    convolutions = [(c.get_parameter("weight").double(), c.get_parameter("bias").double()) for c in net.convolutions]
    pooled = [conv1d(words.t().unsqueeze(0), weight, bias).relu().amax(2) for weight, bias in convolutions]
    return (torch.cat(pooled, 1) @ net.linear.weight.double().t() + net.linear.bias.double())[0]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 17])
def test_logits_are_those_of_the_definition(length: int) -> None:
    """Embedding, three convolutions, ReLU, maximum over the sentence, linear."""
    for seed in range(5):
        net, tokens = network(seed), sentence(length, seed)
        torch.testing.assert_close(net(tokens.unsqueeze(0))[0].double(), naive(net, tokens), atol=1e-5, rtol=1e-5)


def test_padding_never_changes_a_prediction() -> None:
    """A sentence has the same logits alone, padded, and beside longer ones."""
    net = network()
    with torch.no_grad():
        for convolution in net.convolutions:  # a bias that beats every window would show in the padding
            convolution.get_parameter("bias").fill_(5.0)
    tokens = [sentence(length, length) for length in (1, 2, 3, 5, 9, 30)]
    batch = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    together, longer = net(batch), net(torch.nn.functional.pad(batch, (0, 20)))
    alone = torch.cat([net(one.unsqueeze(0)) for one in tokens])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(longer, alone, atol=1e-5, rtol=1e-5)
    assert together.argmax(1).tolist() == alone.argmax(1).tolist()


def test_the_embedding_of_padding_stays_zero() -> None:
    """Padding has no embedding to learn, and words that do not occur no gradient."""
    net = network().train()
    net(torch.tensor([[3, 4, 0, 0], [5, 6, 7, 8]])).sum().backward()
    gradient = net.embedding.weight.grad
    assert gradient is not None
    assert gradient.abs().sum(1).nonzero().flatten().tolist() == [3, 4, 5, 6, 7, 8]


def test_its_size_is_the_papers() -> None:
    """20,000 embeddings of 300, three convolutions of 128 kernels of width 3, two classes."""
    assert sum(p.numel() for p in TextCNN().parameters()) == 20_000 * 300 + 3 * (128 * 300 * 3 + 128) + 2 * 384 + 2


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_by_words_and_by_windows(kind: torch.dtype) -> None:
    """On the CPU each different word is multiplied once; hooks, `torch.func` and the like take all windows instead."""
    tokens = torch.nn.utils.rnn.pad_sequence([sentence(length, length) for length in (1, 2, 9, 30)], batch_first=True)
    found = []
    for watched in (False, True):
        net = network().train().double()
        net.dropout.p = 0.0
        calls: list[Tensor] = []
        if watched:
            net.embedding.register_forward_hook(lambda _, given, __, calls=calls: calls.append(given[0]))
        with torch.autocast("cpu", enabled=kind == torch.bfloat16):
            logits = net(tokens) if kind == torch.float64 else net.float()(tokens)
        logits.double().square().sum().backward()
        assert [call.shape for call in calls] == ([tokens.shape] if watched else [])
        found.append([logits, *(p.grad for p in net.parameters())])
    bound = 1e-12 if kind == torch.float64 else 0.05
    torch.testing.assert_close(found[0], found[1], atol=bound, rtol=bound)


def test_words_that_count_by_how_often_they_occur() -> None:
    """An embedding that divides a word's gradient by its number of places sees all of them."""
    found = []
    for often in (False, True):
        net = network()
        net.embedding.scale_grad_by_freq = often
        net(torch.tensor([[3, 4, 3, 4, 3]])).sum().backward()
        assert net.embedding.weight.grad is not None
        found.append(net.embedding.weight.grad[[3, 4]])
    torch.testing.assert_close(found[0], found[1] * torch.tensor([[3.0], [2.0]]))


def test_second_derivatives() -> None:
    """As those of any network: the gradient of a gradient's length, by words and by windows."""
    found = []
    for watched in (False, True):
        net = network().double()
        if watched:
            net.embedding.register_forward_hook(lambda *_: None)
        parameters = [net.embedding.weight, *net.convolutions.parameters()]
        length = net(torch.tensor([[3, 4, 5, 6, 7]])).square().sum()
        gradients = torch.autograd.grad(length, parameters, create_graph=True)
        found.append(torch.autograd.grad(torch.cat([g.flatten() for g in gradients]).square().sum(), parameters))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("length", [1, 2, 17])
def test_convolutions_whose_weights_are_made_by_hooks(length: int) -> None:
    """Pruned, they have weights that are made when they are called: those of the first round would stay for ever."""
    net, tokens = network(), sentence(length, 1)
    for convolution in net.convolutions:
        prune.l1_unstructured(convolution, "weight", amount=0.5)
        convolution.get_parameter("weight_orig").data.mul_(-2)
    logits = net(tokens.unsqueeze(0))[0]
    for convolution in net.convolutions:
        prune.remove(convolution, "weight")
    torch.testing.assert_close(logits.double(), naive(net, tokens), atol=1e-5, rtol=1e-5)
