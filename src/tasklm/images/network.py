"""The convolutional network of the thesis: nine convolutions, two poolings, and a mean over cells
(Clark 2021, section 4.4, after Miyato et al., arXiv 1704.03976, appendix D).

The last feature map has 6 × 6 cells for images of 32 × 32 pixels. A cell sees 21 × 21 pixels in a
corner and 29 × 29 in the centre: it is a view of the image.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SLOPE = 0.1  # of leaky ReLU below 0
MOMENTUM = 0.01  # of the running statistics (the VAT code's decay of 0.99)
EPSILON = 1e-6  # added to variances
POOLED = 4  # pixels that a cell is apart from the next one
BORDER = 2  # cells that the convolution without padding takes away

# How a pass treats batch statistics and dropout:
LEARN = "learn"  # a labelled batch: its own statistics, which are kept, and dropout
STUDY = "study"  # images without labels: their own statistics, not kept, and dropout
TEACH = "teach"  # the same without dropout
ANSWER = "answer"  # the kept statistics, no dropout


@dataclass(frozen=True)
class NetShape:
    """The sizes of a network."""

    size: int  # side of its images
    width: int  # feature maps of the first layers
    classes: int
    zca: bool = False  # whether whitening mixes pixels

    @property
    def side(self) -> int:
        """Cells of the last feature map in each direction."""
        return self.size // POOLED - BORDER

    @property
    def cells(self) -> int:
        """Cells of the last feature map."""
        return self.side**2

    @property
    def channels(self) -> tuple[int, ...]:
        """Feature maps of the nine layers: 3 × 128, 3 × 256, 512, 256, 128."""
        one, two, four = self.width, 2 * self.width, 4 * self.width
        return (one, one, one, two, two, two, four, two, one)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NetShape:
        """The shape that `to_dict` wrote; raises ValueError for impossible sizes."""
        shape = cls(**values)
        whole = (shape.size, shape.width, shape.classes)
        if any(type(one) is not int or not 1 <= one <= 65_536 for one in whole):
            raise ValueError(f"the shape of the network is impossible: {values}")
        if shape.side < 1:
            raise ValueError(f"images of {shape.size} pixels are too small for the network")
        return shape

    def flops(self) -> float:
        """The FLOPs of a forward pass on one image."""
        sizes = [self.size] * 3 + [self.size // 2] * 3 + [self.side] * 3
        kernels = [9] * 7 + [1, 1]
        into = (3, *self.channels[:-1])
        products = 0
        for side, kernel, source, target in zip(sizes, kernels, into, self.channels, strict=True):
            products += side * side * kernel * source * target
        return 2.0 * (products + self.channels[-1] * self.classes)


class Statistics(nn.Module):
    """Batch normalisation whose running statistics have no start to forget: they begin at 0 and
    are divided by the share of them that has been seen.
    """

    running_mean: Tensor
    running_var: Tensor
    seen: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.zeros(width))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, maps: Tensor, mode: str) -> Tensor:
        """The maps with mean `bias` and spread `weight`."""
        scale = (self.weight, self.bias)
        if mode == LEARN:
            own = (self.running_mean, self.running_var)
            out = functional.batch_norm(maps, *own, *scale, True, MOMENTUM, EPSILON)
            self.seen.lerp_(torch.ones_like(self.seen), MOMENTUM)
            return out
        if mode in (STUDY, TEACH):
            return functional.batch_norm(maps, None, None, *scale, True, 0.0, EPSILON)
        seen = self.seen.clamp(min=1e-12)
        mean, variance = self.running_mean / seen, self.running_var / seen
        variance = torch.where(self.seen > 0, variance, torch.ones_like(variance))
        return functional.batch_norm(maps, mean, variance, *scale, False, 0.0, EPSILON)


class Layer(nn.Module):
    """A convolution without bias, batch normalisation and leaky ReLU."""

    def __init__(self, source: int, target: int, kernel: int, padding: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(source, target, kernel, padding=padding, bias=False)
        nn.init.kaiming_normal_(self.convolution.weight, a=SLOPE)
        self.norm = Statistics(target)

    def forward(self, maps: Tensor, mode: str) -> Tensor:
        """The feature maps of the layer."""
        return functional.leaky_relu(self.norm(self.convolution(maps), mode), SLOPE)


class ImageNet(nn.Module):
    """Scaled pixels (images, 3, size, size) → feature map → logits; with its own scaling."""

    mean: Tensor
    scale: Tensor

    def __init__(self, shape: NetShape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape, self.dropout = shape, dropout
        into = (3, *shape.channels[:-1])
        kernels, paddings = (3,) * 7 + (1, 1), (1,) * 6 + (0, 0, 0)
        sizes = zip(into, shape.channels, kernels, paddings, strict=True)
        self.layers = nn.ModuleList(Layer(*numbers) for numbers in sizes)
        self.head = nn.Linear(shape.channels[-1], shape.classes)
        entries = 3 * shape.size**2 if shape.zca else 3
        self.register_buffer("mean", torch.zeros(entries))
        self.register_buffer("scale", torch.eye(entries) if shape.zca else torch.ones(entries))

    def scaled(self, pixels: Tensor) -> Tensor:
        """Bytes (images, size, size, 3) as the network reads them, in fp32."""
        with torch.autocast(pixels.device.type, enabled=False):
            values = pixels.float() / 255.0
            if not self.shape.zca:
                return ((values - self.mean) * self.scale).permute(0, 3, 1, 2)
            flat = (values.reshape(len(values), -1) - self.mean) @ self.scale
            return flat.view_as(values).permute(0, 3, 1, 2)

    def features(self, images: Tensor, mode: str = ANSWER) -> Tensor:
        """The last feature map (images, width, side, side) of scaled images."""
        maps = images
        for number, layer in enumerate(self.layers):
            maps = layer(maps, mode)
            if number in (2, 5):
                maps = functional.max_pool2d(maps, 2)
                if mode in (LEARN, STUDY):
                    maps = functional.dropout(maps, self.dropout, True)
        return maps

    def logits(self, features: Tensor) -> Tensor:
        """What the primary module says of feature maps (images, classes), in fp32."""
        with torch.autocast(features.device.type, enabled=False):
            return self.primary(features.float().mean((2, 3)))

    def primary(self, vectors: Tensor) -> Tensor:
        """The head on mean feature vectors."""
        out: Tensor = self.head(vectors)
        return out

    def cell_logits(self, features: Tensor) -> Tensor:
        """What the primary module says of each cell (images, side, side, classes): its logits are
        their mean.
        """
        with torch.autocast(features.device.type, enabled=False):
            return self.primary(features.float().permute(0, 2, 3, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """The logits of bytes (images, size, size, 3), without noise or dropout."""
        return self.logits(self.features(self.scaled(pixels)))

    @property
    def parameters_in_all(self) -> int:
        """How many weights are trained."""
        return sum(weight.numel() for weight in self.parameters())


class CellModules(nn.Module):
    """The auxiliary modules of cross-view training: a softmax layer of its own for each cell."""

    def __init__(self, shape: NetShape) -> None:
        super().__init__()
        width = shape.channels[-1]
        self.weight = nn.Parameter(torch.empty(shape.cells, shape.classes, width))
        self.bias = nn.Parameter(torch.zeros(shape.cells, shape.classes))
        nn.init.uniform_(self.weight, -(width**-0.5), width**-0.5)

    def forward(self, features: Tensor) -> Tensor:
        """The logits of each cell (images, cells, classes), row by row, in fp32."""
        with torch.autocast(features.device.type, enabled=False):
            cells = features.float().flatten(2)
            return torch.einsum("nwc,cow->nco", cells, self.weight) + self.bias
