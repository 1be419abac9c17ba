"""The trainings of an image run: a seed is an artefact that can be interrupted at any moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tasklm.device.machine import Machine
from tasklm.errors import RecipeError
from tasklm.images.batches import Drawing
from tasklm.images.consistency import Losses, Studies, Studying
from tasklm.images.data_set import ImageData, Pictures
from tasklm.images.network import ImageNet, NetShape
from tasklm.images.stage import ImageStage, OnDevice
from tasklm.images.whitening import ZCA, fitted
from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Finetune, Moments
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import CURVE, SUMMARY, Seed
from tasklm.storage.files import write_json
from tasklm.tracking import Tracker
from tasklm.train.checkpoints import Checkpoints
from tasklm.train.learning_curves import Curve
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.averages import WeightAverage
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.stage_runs import followed
from tasklm.train.steps import step_seed
from tasklm.train.timing import seconds_per_step

BEST = "best.safetensors"  # the weights that are best on dev, or the last ones
# peak of the learning rate at the width of the VAT code, with Adam; narrower networks learn faster
RATE, HIGHEST_RATE = 1e-3, 1e-2
BATCH, TIMES = 32, 4  # labelled images of a step; so many times as many without labels
WIDTH_ON_GPU, WIDTH = 128, 32
STEPS_ON_GPU, STEPS = 50_000, 1_000
SEED_OF_DRAWS = 1000  # as those of stage 2 of text
AT_ONCE = 500  # images that are predicted together
BETA2, EPSILON = 0.999, 1e-8  # of Adam, where the recipe has the values for text
MEASURED_SECONDS = 2.0
# noise by the norm of images: the VAT code has 10, and 8 with shifts; whitened images have √3072
NOISE_SHARE, SHARE_WITH_SHIFTS = 10.0 / 55.4, 8.0 / 55.4
MOST_NORMS = 1000  # images whose norms are taken

Scaling = tuple[torch.Tensor, torch.Tensor]  # the mean and the scale of the pixels


@dataclass(frozen=True)
class ImagePlan:
    """What is decided once for a run: sizes and steps."""

    width: int
    steps: int
    batch: int
    unlabelled_batch: int
    noise_norm: float
    seconds: float | None = None  # for each seed; None: as long as it takes


@dataclass(frozen=True)
class Course:
    """What all seeds of a run have in common."""

    data: ImageData
    recipe: Recipe
    plan: ImagePlan
    machine: Machine
    scaling: Scaling
    score: Callable[[NDArray[np.int64]], float] | None  # of numbers of classes on dev

    @property
    def shape(self) -> NetShape:
        """The shape of the network."""
        zca = self.recipe.image.whiten == ZCA
        return NetShape(self.data.size, self.plan.width, len(self.data.classes), zca)

    @property
    def studies(self) -> Studies:
        """What learns from images without labels."""
        studies = Studies.of(self.recipe.finetune.unlabelled, self.recipe.image)
        return dataclasses.replace(studies, norm=self.plan.noise_norm)


def first_plan(recipe: Recipe, data: ImageData, machine: Machine, scaling: Scaling) -> ImagePlan:
    """The sizes and steps of a recipe, before any measurement."""
    gpu, image = machine.device.type == "cuda", recipe.image
    if image.shifts >= data.size:
        problem = f"images have {data.size} pixels"
        raise RecipeError([f"image.shifts = {image.shifts}: {problem}; choose fewer"])
    batch = recipe.finetune.batch or min(BATCH, max(2, len(data.labelled)))
    others = 0
    if Studies.of(recipe.finetune.unlabelled, image).students:
        others = image.unlabelled_batch or TIMES * batch
    steps = image.steps or (STEPS_ON_GPU if gpu else STEPS)
    width = image.width or (WIDTH_ON_GPU if gpu else WIDTH)
    norm = image.noise_norm
    if norm is None:
        share = SHARE_WITH_SHIFTS if image.shifts or image.flips else NOISE_SHARE
        norm = round(share * _usual_norm(recipe, data, scaling), 2)
    return ImagePlan(width, steps, batch, others, norm)


def _usual_norm(recipe: Recipe, data: ImageData, scaling: Scaling) -> float:
    """The mean norm of some images as the network reads them."""
    some = data.studied[:: -(-len(data.studied) // MOST_NORMS)]
    shape = NetShape(data.size, 1, len(data.classes), recipe.image.whiten == ZCA)
    scaler = ImageNet(shape)
    scaler.mean.copy_(scaling[0])
    scaler.scale.copy_(scaling[1])
    pixels = torch.from_numpy(np.ascontiguousarray(data.pool.pixels[some]))
    return float(scaler.scaled(pixels).flatten(1).norm(dim=1).mean())


def scaling_of(recipe: Recipe, data: ImageData, machine: Machine) -> Scaling:
    """The mean and the scale of the pixels that training reads, hidden labels or not."""
    return fitted(data.pool.pixels[data.studied], recipe.image.whiten, machine.device)


def new_stage(course: Course, seed: int, best: Path | None) -> ImageStage:
    """A training with random weights."""
    recipe, plan, data, machine = course.recipe, course.plan, course.data, course.machine
    torch.manual_seed(step_seed(seed, 0))
    model = ImageNet(course.shape, recipe.image.dropout)
    model.mean.copy_(course.scaling[0])
    model.scale.copy_(course.scaling[1])
    module = Studying(model, course.studies).to(machine.device)
    pixels = torch.from_numpy(np.ascontiguousarray(data.pool.pixels)).to(machine.device)
    labels = torch.from_numpy(data.visible_labels()).to(machine.device)
    drawing = Drawing(
        data.labelled,
        data.studied,
        plan.batch,
        plan.unlabelled_batch,
        recipe.image.shifts,
        recipe.image.flips,
        seed,
    )
    losses = Losses(module, course.studies, machine)
    return ImageStage(losses, OnDevice(pixels, labels), drawing, machine, _judge(course), best)


def _judge(course: Course) -> Callable[[ImageNet], float] | None:
    """What scores a network on dev; None where there is no dev set."""
    dev, score = course.data.dev, course.score
    if dev is None or score is None:
        return None
    return lambda model: score(logits_of(model, dev, course.machine).argmax(1))


def logits_of(model: ImageNet, pictures: Pictures, machine: Machine) -> NDArray[np.float64]:
    """The logits of images (images, classes), without noise, dropout or augmentation."""
    parts = []
    device = next(model.parameters()).device
    with torch.no_grad(), machine.arithmetic():
        for start in range(0, len(pictures), AT_ONCE):
            block = np.ascontiguousarray(pictures.pixels[start : start + AT_ONCE])
            parts.append(model(torch.from_numpy(block).to(device)).float())
    if not parts:
        return np.zeros((0, model.shape.classes))
    logits: NDArray[np.float64] = torch.cat(parts).double().cpu().numpy()
    return logits


def rule_of(settings: Finetune, width: int) -> Rule:
    """Adam as the VAT code has it, where the recipe does not say otherwise."""
    usual = Moments()
    epsilon = settings.epsilon if settings.epsilon != usual.epsilon else EPSILON
    moments = Moments(settings.beta1, settings.beta2 or BETA2, epsilon)
    if settings.optimiser != "adamw":
        moments = settings
    rate = settings.learning_rate or min(HIGHEST_RATE, RATE * WIDTH_ON_GPU / width)
    return Rule(settings.optimiser, rate, settings.weight_decay, moments=moments)


def measured_plan(course: Course, seconds: float) -> ImagePlan:
    """The plan whose seeds take so many seconds each, by the measured speed of a step."""
    stage = new_stage(course, SEED_OF_DRAWS, None)
    stage.evaluate = None
    rule, machine = rule_of(course.recipe.finetune, course.plan.width), course.machine
    pace = seconds_per_step(stage, rule, machine, min(MEASURED_SECONDS, seconds / 10))
    steps = max(1, int(seconds / pace))
    return dataclasses.replace(course.plan, steps=steps, seconds=seconds)


def train_seed(folder: Path, course: Course, seed: Seed, tracker: Tracker) -> None:
    """Trains with one seed; leaves best.safetensors, curve.json and summary.json."""
    recipe, plan = course.recipe, course.plan
    draws = SEED_OF_DRAWS * recipe.train.seed + seed.stage2
    stage = new_stage(course, draws, folder / BEST)
    rule = rule_of(recipe.finetune, plan.width)
    average = None
    if recipe.finetune.average:
        average = WeightAverage(stage.module, recipe.finetune.average)
    checkpoints = Checkpoints(folder, recipe.train.keep, beside=(BEST,))
    if dropped := checkpoints.drop_damaged():
        tracker.say(f"{folder}: {', '.join(dropped)} is damaged; training goes on before it")
    loop = Loop(
        stage=stage,
        optimiser=make_optimiser(stage.module, rule),
        schedule=Schedule("constant", plan.steps, 0.0, recipe.image.decay),
        settings=Settings(
            clip=recipe.finetune.clip,
            seed=draws,
            checkpoint_seconds=recipe.train.checkpoint_seconds,
            non_finite=recipe.train.non_finite,
            seconds_allowed=plan.seconds,
            longer=1.0,
        ),
        checkpoints=checkpoints,
        machine=course.machine,
        average=average,
    )
    title, curve = f"training, seed {seed.stage2}", Curve(folder / CURVE, rule.rate)
    record = followed(title, loop, curve, tracker)
    summary = {
        "steps": record.step,
        "images": record.tokens,
        "flops": record.flops,
        "seconds": round(record.seconds, 3),
        "skipped_steps": loop.at.skipped,
    }
    dev = None if stage.evaluate is None else stage.best_score
    best = {"dev": dev, "best_step": stage.best_step, "learning_rate": rule.rate}
    write_json(folder / SUMMARY, {**summary, **best, "plan": dataclasses.asdict(plan)})
    checkpoints.clear()


def model_of(course: Course, weights: Path) -> ImageNet:
    """The network of a finished seed, on the device."""
    module = Studying(ImageNet(course.shape), course.studies)
    module.load_state_dict(load_weights(weights))
    return module.model.to(course.machine.device)
