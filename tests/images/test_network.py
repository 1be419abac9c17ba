"""The network: layers as in the thesis, cells that see a part of the image, and answers
without noise.
"""

from __future__ import annotations

import pytest
import torch

from tasklm.images.network import ANSWER, LEARN, STUDY, TEACH, CellModules, ImageNet, NetShape

THESIS = NetShape(32, 128, 10)


def test_layers_and_parameters_are_those_of_the_thesis() -> None:
    model = ImageNet(THESIS)
    shapes = [tuple(layer.convolution.weight.shape) for layer in model.layers]
    assert shapes == [
        *((128, 3, 3, 3), (128, 128, 3, 3), (128, 128, 3, 3)),
        *((256, 128, 3, 3), (256, 256, 3, 3), (256, 256, 3, 3)),
        *((512, 256, 3, 3), (256, 512, 1, 1), (128, 256, 1, 1)),
    ]
    convolutions = sum(layer.convolution.weight.numel() for layer in model.layers)
    norms = 2 * (3 * 128 + 3 * 256 + 512 + 256 + 128)
    assert model.parameters_in_all == convolutions + norms + 128 * 10 + 10 == 3_121_802
    features = model.features(torch.randn(2, 3, 32, 32))
    assert features.shape == (2, 128, 6, 6)
    assert CellModules(THESIS)(features).shape == (2, 36, 10)


def test_a_cell_sees_21_pixels_in_a_corner_and_29_in_the_centre() -> None:
    model = ImageNet(NetShape(32, 4, 3)).double()
    torch.manual_seed(0)
    images = torch.randn(4, 3, 32, 32, dtype=torch.float64, requires_grad=True)
    features = model.features(images)
    for row, column, top, left, tall, wide in (
        (0, 0, 0, 0, 21, 21),
        (0, 5, 0, 11, 21, 21),
        (5, 5, 11, 11, 21, 21),
        (2, 2, 0, 0, 29, 29),
        (3, 3, 3, 3, 29, 29),
        (1, 4, 0, 7, 25, 25),
    ):
        (gradient,) = torch.autograd.grad(
            features[:, :, row, column].abs().sum(), images, retain_graph=True
        )
        seen = gradient.abs().amax((0, 1)) > 0
        inside = torch.zeros_like(seen)
        inside[top : top + tall, left : left + wide] = True
        assert not seen[~inside].any()
        rows, columns = seen.any(1).nonzero().ravel(), seen.any(0).nonzero().ravel()
        assert (int(rows.min()), int(columns.min())) == (top, left)
        assert (len(rows), len(columns)) == (tall, wide)


def test_answers_have_no_noise_and_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(1)
    model = ImageNet(NetShape(16, 4, 3), dropout=0.5)
    model.features(torch.randn(8, 3, 16, 16), LEARN)
    pixels = torch.randint(256, (6, 16, 16, 3), dtype=torch.uint8)
    together = model.train()(pixels)
    assert torch.equal(together, model(pixels))
    alone = torch.cat([model(one[None]) for one in pixels])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_only_labelled_batches_move_the_statistics() -> None:
    model = ImageNet(NetShape(16, 4, 3), dropout=0.5)
    images = torch.randn(8, 3, 16, 16)
    model.features(images, LEARN)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for mode in (STUDY, TEACH, ANSWER):
        model.features(images, mode)
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, before[name])
    model.features(images, LEARN)
    assert not torch.equal(model.layers[0].norm.running_mean, before["layers.0.norm.running_mean"])


def test_statistics_of_one_batch_are_those_of_that_batch() -> None:
    model = ImageNet(NetShape(16, 4, 3))
    images = torch.randn(64, 3, 16, 16)
    first = model.layers[0]
    with torch.no_grad():
        first(images, LEARN)
        torch.testing.assert_close(
            first(images, ANSWER), first(images, TEACH), rtol=1e-3, atol=1e-3
        )


def test_the_logits_are_the_mean_of_those_of_the_cells() -> None:
    model = ImageNet(NetShape(20, 4, 5))
    features = torch.randn(3, 4, 3, 3)
    cells = model.cell_logits(features)
    assert cells.shape == (3, 3, 3, 5)
    torch.testing.assert_close(cells.mean((1, 2)), model.logits(features))


@pytest.mark.parametrize("values", [{"size": 8}, {"width": 0}, {"classes": "ten"}])
def test_impossible_shapes_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"impossible|too small"):
        NetShape.from_dict({**THESIS.to_dict(), **values})
