"""Convolutions, poolings and resizings with another geometry, planted where whatever comes after takes any size."""

from collections.abc import Callable
from typing import Any

from twinalign.planted_faults.case_contents import CaseContents, LayerFacts
from twinalign.planted_faults.catalogue import in_forward
from twinalign.planted_faults.fault_sites import ModelSite, set_attributes, through
from twinalign.planted_faults.where_to_plant import Find, layers


def _before_a_pool(kind: str, such: Callable[[LayerFacts], Any] = lambda facts: True) -> Find:
    """Such a layer of a model that is one row of layers, in which pooling to a fixed size comes after it."""

    def find(contents: CaseContents) -> str | None:
        if type(contents.model).__name__ != "Sequential":
            return None
        pools = [int(facts.path) for facts in contents.running if type(facts.layer).__name__ == "AdaptiveAvgPool2D"]
        last = max(pools, default=0)
        return layers(kind, lambda facts: facts.path.isdigit() and int(facts.path) < last and such(facts))(contents)

    return find


_UNGROUPED = _before_a_pool("Conv2D", lambda facts: facts.layer._groups == 1)

in_forward(_UNGROUPED, "window_stride", id="conv_strided").add(
    "A convolution has the stride 2", set_attributes(_stride=[2, 2])
)
in_forward(_UNGROUPED, "window_padding", id="conv_not_padded").add(
    "A convolution does not pad", set_attributes(_updated_padding=[0, 0])
)


@in_forward(_before_a_pool("MaxPool2D"), "pool_kernel")
def pool_window_smaller(site: ModelSite) -> None:
    """A pooling window is one pixel smaller."""
    site.layer.ksize -= 1


in_forward(_before_a_pool("AvgPool2D", lambda f: (f.shape[-1] - 3) % 2), "pool_ceil_mode", id="pool_rounds_up").add(
    "A pooling rounds its output's size up", set_attributes(ceil_mode=True)
)
in_forward(layers("AvgPool2D"), "pool_divisor", id="average_pool_sums").add(
    "Average pooling does not divide", set_attributes(divisor=1)
)
in_forward(
    _before_a_pool("Conv2DTranspose", lambda f: f.layer.output_padding),
    "output_padding",
    id="transposed_conv_one_smaller",
).add("A transposed convolution has no output padding", set_attributes(output_padding=0))


def _has_groups(facts: LayerFacts) -> bool:
    return 1 < facts.layer._groups < facts.shape[1]


@in_forward(layers("Conv2D", _has_groups), "convolution_groups")
def conv_groups_dealt_out(site: ModelSite) -> None:
    """Every n-th channel makes a group of a convolution, not every n-th part of the channels."""
    groups = site.layer._groups

    def dealt(x: Any) -> Any:
        parts = [x[:, start::groups] for start in range(groups)]
        return site.paddle.concat(parts, axis=1)

    site.input(dealt)


@in_forward(layers("PixelShuffle"), "pixel_shuffle_order")
@through(ModelSite.input)
def pixel_shuffle_blocks_first(site: ModelSite, x: Any) -> Any:
    """Pixel shuffle takes the block's place for the slower index of the channels."""
    channels = x.shape[1] // site.layer._upscale_factor**2
    return site.paddle.concat([x[:, start::channels] for start in range(channels)], axis=1)


def _is_bilinear(facts: LayerFacts) -> bool:
    return facts.layer.mode == "bilinear" and not facts.layer.align_corners


in_forward(layers("Upsample", _is_bilinear), "interpolate_align_mode", id="interpolation_without_half_pixels").add(
    "Interpolation takes its points without half pixels, as paddle's align_mode 1 does", set_attributes(align_mode=1)
)


@in_forward(layers("LocalResponseNorm"), "local_response_alpha")
def local_response_not_divided(site: ModelSite) -> None:
    """Local response normalisation does not divide alpha by the window's size."""
    site.layer.alpha *= site.layer.size
