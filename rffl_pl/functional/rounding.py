r"""When an update is nothing but the rounding of the weights it was added to.

A step below half a unit in the last place of a weight is lost, another is rounded to whole units. As the learning rate
sinks, an update in single precision so turns away from what the same training gives in double precision, all the more
the more steps it is made of. Measured on a network for the digits, same start and mini-batches
(``benchmarks/rounding.py``): the cosine between the two by the update's length, a multiple of `rounding_level`, read
between the neighbouring rates.

==============  ====  ====  ====  ====  ====  ====
local steps       30    18    12   8.4   3.8   2.1
==============  ====  ====  ====  ====  ====  ====
SGD, 3          1.00  1.00  1.00  1.00  0.98  0.95
SGD, 21         1.00  1.00  0.99  0.99  0.96  0.90
SGD, 75         0.99  0.98  0.97  0.93  0.80  0.67
SGD, 500        0.87  0.76  0.67  0.58  0.44  0.37
Adam, 3         1.00  1.00  1.00  1.00  0.97  0.89
Adam, 21        0.99  0.98  0.95  0.91  0.77  0.64
Adam, 75        0.97  0.90  0.81  0.70  0.52  0.40
==============  ====  ====  ====  ====  ====  ====

At `MULTIPLE` the cosine is about 0.9 or more for up to 75 steps of SGD and 21 of Adam; the released schedules take
about 57 (MNIST) and 48 (CIFAR-10), of SGD. Fewer steps could be told apart a little longer; what is lost is about a
millionth of the weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.functional.blocks import squared_norm

MULTIPLE = 16.0
"""An update that is no longer than so many times `rounding_level` tells nothing."""


def rounding_level(model: Tensor) -> Tensor:
    r"""Length of the vector of the units in the last place of weights ``[D]``: :math:`\|\mathrm{ulp}(w)\|_2`, float64.

    :math:`\mathrm{ulp}(w_k) = 2^{\lfloor \log_2 |w_k| \rfloor - 23}` in single precision, 0 for a weight of 0.
    """
    powers = (model.view(torch.int32) & 0x7F800000).view(torch.float32)  # the exponent's bits: 2 ** floor(log2 |w|)
    return squared_norm(powers).sqrt() * 2.0**-23


def tells_nothing(update: Tensor, model: Tensor) -> bool:
    r"""Whether an update u ``[D]`` is lost in the rounding of weights w ``[D]``.

    .. math:: \|u\|_2 \le 16 \, \|\mathrm{ulp}(w)\|_2
    """
    return bool(squared_norm(update).sqrt() <= MULTIPLE * rounding_level(model))
