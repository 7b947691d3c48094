"""What a case contains that faults can be planted into: its layers as they run, its optimizer, its data."""

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.case.averaging import averaging_method
from twinalign.case.calling import named_values
from twinalign.case.definition import Case, stages_of
from twinalign.case.samples import first_samples
from twinalign.patching import replaced
from twinalign.planted_faults.interception import FUNCTIONS, Interception
from twinalign.stages.context import step_inputs

TRANSFORMS = (
    *("resize", "crop", "center_crop", "hflip", "adjust_brightness", "adjust_contrast", "adjust_saturation"),
    *("adjust_hue", "to_grayscale", "gaussian_blur", "solarize"),
)
"""Image operations that are counted: the port's own functions of these names, else those of a library."""


@dataclasses.dataclass
class LayerFacts:
    """One layer of the port and what was seen of it in a forward pass.

    Attributes:
        path, layer: where and what it is.
        trains: whether gradients are wanted there: it, or the nearest layer above that has parameters, has one that
            is trained.
        calls: how often it ran.
        shape, returned: shapes of the first tensor that went in and of the first that came out.
        functions: names, from `interception.FUNCTIONS`, of the functions that its own code called.
    """

    path: str
    layer: Any
    trains: bool
    calls: int = 0
    shape: list[int] = dataclasses.field(default_factory=list)
    returned: list[int] = dataclasses.field(default_factory=list)
    functions: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class CaseContents:
    """What a case has.

    Attributes:
        case, stages: a new instance of the case, and the stages that its methods switch on.
        model: the port, which was run once.
        layers: facts by path, in order of registration; the model itself is `""`.
        outputs: what `Case.forward` returned.
        losses: what `Case.loss` returned, None without it.
        loss_functions: names of the functions that `Case.loss` called.
        optimizer: what `Case.optimizer` returned, None without it.
        samples: first sample of every split.
        transforms: of every split, names of image operations that the dataset called: those of `TRANSFORMS`, and
            Pillow's `convert`.
        metric_case: the case that defines the metric stage.
    """

    paddle: Any
    case: Case
    stages: list[str]
    model: Any
    layers: Mapping[str, LayerFacts]
    outputs: Any = None
    losses: Any = None
    loss_functions: set[str] = dataclasses.field(default_factory=set)
    optimizer: Any = None
    samples: dict[str, dict[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    transforms: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    metric_case: Case | None = None

    @property
    def running(self) -> list[LayerFacts]:
        """Layers that ran and in which gradients are wanted."""
        return [facts for facts in self.layers.values() if facts.calls and facts.trains]

    def averaging_method(self) -> str | None:
        """Name of the model's method that moves a second network after the first, None where there is none."""
        return averaging_method(self.model)


def contents_of(worker: Any, weights: Mapping[str, Any]) -> CaseContents:
    """Build the port of the forward stage, run it once, and look at everything else that the case defines.

    `weights` are those of the part of the forward stage, as `record` takes them.
    """
    paddle = worker.backend.paddle
    case = worker.fresh_case("forward")
    worker.backend.set_seed(case.seed)
    model = worker.build_model(case, "forward", "float32", weights)
    worker.backend.set_training(model, case.train_mode)
    layers = {
        path: LayerFacts(path, layer, _trains(path, layer, model)) for path, layer in worker.backend.named_layers(model)
    }
    found = CaseContents(paddle, case, stages_of(worker.case), model, layers)
    _run(worker, found)
    if "backward" in found.stages:
        parameters = [p for p in worker.backend.named_parameters(model).values() if worker.backend.trainable(p)]
        found.optimizer = case.optimizer(parameters, "paddle")
    if "data" in found.stages:
        _read(worker, found)
    if "metric" in found.stages:
        found.metric_case = worker.fresh_case("metric")
    worker.forget_model()  # its layers are followed from now on
    return found


def _trains(path: str, layer: Any, model: Any) -> bool:
    """Whether the layer, or the nearest one above it that holds parameters, has one that is trained."""
    while True:
        parameters = [p for p in layer.parameters() if not getattr(p, "name", "").endswith(("_mean", "_variance"))]
        if parameters or not path:
            return any(not parameter.stop_gradient for parameter in parameters)
        path = path.rpartition(".")[0]
        layer = dict(model.named_sublayers(include_self=True))[path]


def _run(worker: Any, found: CaseContents) -> None:
    """Run forward and loss once, noting calls, shapes and functions of every layer."""
    backend, case = worker.backend, found.case
    interception = Interception(found.paddle)
    interception.follow((facts, facts.layer) for facts in found.layers.values())
    for facts in found.layers.values():
        interception.around(facts.layer, _noting(facts, backend))

    def note(name: str, original: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        seen = interception.running.functions if interception.running else found.loss_functions
        seen.add(name)
        return original(*arguments, **keywords)

    inputs = {name: backend.to_tensor(array, "float32", worker.device) for name, array in step_inputs(case).items()}
    with backend.no_grad():
        with interception.intercepted(FUNCTIONS, note):
            found.outputs = case.forward(found.model, inputs, "paddle")
        if "loss" in found.stages:
            with interception.intercepted(FUNCTIONS, note, always=True):
                found.losses = case.loss(found.outputs, inputs, "paddle")


def _noting(facts: LayerFacts, backend: Any) -> Callable[..., Any]:
    def call(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        returned = original(*arguments, **keywords)
        facts.calls += 1
        for attribute, value in (("shape", [arguments, keywords]), ("returned", returned)):
            tensors = backend.tensors_in(value)
            if tensors and not getattr(facts, attribute):
                setattr(facts, attribute, list(tensors[0].shape))
        return returned

    return call


def _read(worker: Any, found: CaseContents) -> None:
    """Read what the data stage reads, noting which image functions are called."""
    backend = worker.backend
    for split in found.case.splits:
        called = found.transforms.setdefault(split, set())
        next(
            first_samples(found.case.dataset("paddle", split), 1), None
        )  # imports the modules whose functions are counted
        with counting_transforms(found, called.add):
            samples = first_samples(found.case.dataset("paddle", split), found.case.data_samples)
            for index, sample in enumerate(samples):
                if index == 0:
                    found.samples[split] = {
                        name: backend.to_array(leaf) if backend.is_tensor(leaf) else np.asarray(leaf)
                        for name, leaf in named_values(sample, backend.is_tensor, "")
                    }


def image_functions(contents: CaseContents, name: str) -> list[tuple[Any, str]]:
    """Where an image operation is looked up when it is called: owners and attributes.

    A port that names its packages (`code_packages`) and has functions of its own by this name calls these; whatever
    library they go on to is then left alone, so that a fault acts once.
    """
    own = [(module, name) for module in own_modules(contents.case) if inspect.isfunction(getattr(module, name, None))]
    if own:
        return own
    from PIL import Image, ImageOps

    pillow = {"gaussian_blur": (Image.Image, "filter"), "solarize": (ImageOps, "solarize")}
    owner, attribute = pillow.get(name, (contents.paddle.vision.transforms.functional, name))
    return [(owner, attribute)] if hasattr(owner, attribute) else []


def own_modules(case: Case) -> list[Any]:
    """The modules of the port's own packages that are imported."""
    packages = set(case.code_packages)
    return [module for key, module in list(sys.modules.items()) if key.partition(".")[0] in packages]


@contextlib.contextmanager
def counting_transforms(contents: CaseContents, note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the name of every image operation that is called inside the block."""
    from PIL import Image

    places = [(owner, attribute, name) for name in TRANSFORMS for owner, attribute in image_functions(contents, name)]
    with contextlib.ExitStack() as stack:
        for owner, attribute, name in [*places, (Image.Image, "convert", "convert")]:
            stack.enter_context(replaced(owner, attribute, _noted(name, getattr(owner, attribute), note)))
        yield


def _noted(name: str, original: Callable[..., Any], note: Callable[[str], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        note(name)
        return original(*arguments, **keywords)

    return call
