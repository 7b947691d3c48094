"""PaddleClas, PaddleSeg, PaddleDetection and paddle.vision against timm, torchvision and transformers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from real_ports_pairs import Pair, images

DIFFERS = {
    "MobileViT_XXS": "epsilon 1e-6 for 1e-5 in the last norm of each block (`model_zoo/mobilevit.py`, line 239)",
    "DPN68": "epsilon 1e-5 for 1e-3 in every batch norm (`model_zoo/dpn.py`, lines 71 and 98)",
    "SwinTransformer": "windows are shifted where one covers the whole map (`legendary_models/swin_transformer.py`, "
    "line 421)",
    "LeViT_128S": "one head, where the original takes the mean of two (`model_zoo/levit.py`, line 439)",
    "MobileNetV3_small_x1_0": "another first block, with an expanding convolution",
    "ResNet18": "a projection in the first shortcut, which the original has not",
    "SqueezeNet1_1": "padding 1 in the first convolution (`model_zoo/squeezenet.py`, line 114), pools without "
    "ceil_mode, dropout scales in evaluation (line 129)",
    "PPLCNet_x0_5": "dropout scales in evaluation (`legendary_models/pp_lcnet.py`, line 332), the last convolution has "
    "no bias, norms have no weight decay (line 126)",
    "EfficientNetB0": "epsilon 1e-3 for 1e-5 (`model_zoo/efficientnet.py`, line 112), convolutions are padded more "
    "and cropped",
    "PVT_V2_linear": "epsilon 1e-5 for 1e-6 in norms of reduction and patch embedding (`model_zoo/pvt_v2.py`, lines "
    "118 and 240)",
}
"""What ports compute differently, found by reading both sources."""
CAUSES = {
    "MobileViT_XXS": ("norm_epsilon",),
    "PVT_V2_linear": ("norm_epsilon",),
    "SwinTransformer": ("window_shift_kept",),
    "LeViT_128S": ("residual_source",),
    "SqueezeNet1_1": ("window_padding", "dropout_mode"),
    "PPLCNet_x0_5": ("bias_missing", "decay_missing_on_norm", "output_scaled"),
    "EfficientNetB0": ("norm_epsilon", "window_padding"),
}


def pairs() -> Iterator[Pair]:
    """Pairs of models of images."""
    for pair in (*_convolutional(), *_vision_transformers(), *_dense()):
        yield dataclasses.replace(pair, differs=DIFFERS.get(pair.name, ""), causes=CAUSES.get(pair.name, ()))


def _convolutional() -> Iterator[Pair]:
    """PaddleClas against timm and torchvision: convolutional networks with 10 classes."""
    for port, reference, size in (
        ("ResNet18", "timm resnet18", 64),
        ("ResNet18_vd", "timm resnet18d", 64),
        ("ResNet50", "torchvision resnet50", 64),
        ("ResNeXt50_32x4d", "timm resnext50_32x4d", 64),
        ("SE_ResNeXt50_32x4d", "timm legacy_seresnext50_32x4d", 64),
        ("Res2Net50_14w_8s", "timm res2net50_14w_8s", 64),
        ("ResNeSt50_fast_1s1x64d", "timm resnest50d_1s4x24d", 64),
        ("ReXNet_1_0", "timm rexnet_100", 64),
        ("DPN68", "timm dpn68", 64),
        ("DenseNet121", "timm densenet121", 64),
        ("HRNet_W18_C", "timm hrnet_w18", 64),
        ("MobileNetV1", "timm mobilenetv1_100", 64),
        ("MobileNetV2", "torchvision mobilenet_v2", 64),
        ("MobileNetV3_small_x1_0", "torchvision mobilenet_v3_small", 64),
        ("MobileNetV3_large_x1_0", "timm mobilenetv3_large_100", 64),
        ("MobileNetV4_conv_small", "timm mobilenetv4_conv_small", 64),
        ("EfficientNetB0", "timm efficientnet_b0", 64),
        ("EfficientNetV2_S", "timm tf_efficientnetv2_s", 64),
        ("TinyNet_E", "timm tinynet_e", 64),
        ("MixNet_S", "timm mixnet_s", 224),
        ("GhostNet_x1_0", "timm ghostnet_100", 64),
        ("ShuffleNetV2_x0_5", "torchvision shufflenet_v2_x0_5", 64),
        ("SqueezeNet1_1", "torchvision squeezenet1_1", 64),
        ("RegNetX_400MF", "timm regnetx_004", 64),
        ("RepVGG_A0", "timm repvgg_a0", 64),
        ("DLA34", "timm dla34", 64),
        ("DLA46x_c", "timm dla46x_c", 64),
        ("CSPDarkNet53", "timm cspdarknet53", 64),
        ("DarkNet53", "timm darknet53", 64),
        ("Xception41_deeplab", "timm xception41", 64),
        ("Xception41", "timm xception41", 64),
        ("InceptionV3", "timm inception_v3", 107),
        ("InceptionV4", "timm inception_v4", 107),
        ("StarNet_S1", "timm starnet_s1", 64),
        ("FasterNet_T0", "timm fasternet_t0", 64),
        ("PPLCNet_x0_5", "timm lcnet_050", 64),
        ("PPHGNet_tiny", "timm hgnet_tiny", 64),
        ("PPHGNetV2_B0", "timm hgnetv2_b0", 64),
        ("MobileViT_XXS", "timm mobilevit_xxs", 64),
        ("MobileViTV2_x0_5", "timm mobilevitv2_050", 64),
    ):
        library, _, name = reference.partition(" ")
        built = f"timm:create_model('{name}', num_classes=10)"
        if library == "torchvision":
            built = f"torchvision.models:{name}(num_classes=10)"
        yield Pair(port, built, f"paddleclas:{port}(class_num=10)", images(size))


def _vision_transformers() -> Iterator[Pair]:
    """PaddleClas against timm, most of them with few and narrow layers."""
    zoo = "paddleclas.ppcls.arch.backbone.model_zoo"
    legendary = "paddleclas.ppcls.arch.backbone.legendary_models"
    narrow = "embed_dim=32, depth=2, num_heads=4"
    widths = "depths=[1, 1, 2, 1], dims=[16, 24, 32, 48]"
    for name, reference, port, size in (
        (
            "ViT",
            f"timm.models.vision_transformer:VisionTransformer(32, 8, num_classes=10, {narrow})",
            f"{zoo}.vision_transformer:VisionTransformer(32, 8, class_num=10, {narrow}, qkv_bias=True, epsilon=1e-6)",
            32,
        ),
        (
            "DeiT_distilled",
            f"timm.models.deit:VisionTransformerDistilled(img_size=32, patch_size=8, num_classes=10, {narrow})",
            f"{zoo}.distilled_vision_transformer:DistilledVisionTransformer(32, 8, class_num=10, {narrow}, "
            "qkv_bias=True, epsilon=1e-6)",
            32,
        ),
        (
            "SwinTransformer",
            "timm.models.swin_transformer:SwinTransformer(56, num_classes=10, embed_dim=24, depths=(2, 2), "
            "num_heads=(2, 4))",
            f"{legendary}.swin_transformer:SwinTransformer(56, class_num=10, embed_dim=24, depths=[2, 2], "
            "num_heads=[2, 4])",
            56,
        ),
        ("PVT_V2_B0", "timm:create_model('pvt_v2_b0', num_classes=10)", "paddleclas:PVT_V2_B0(class_num=10)", 224),
        (
            "PVT_V2_linear",
            "timm.models.pvt_v2:PyramidVisionTransformerV2(num_classes=10, depths=(1, 1, 1, 1), "
            "embed_dims=(16, 32, 40, 64), num_heads=(1, 2, 5, 8), linear=True)",
            f"{zoo}.pvt_v2:PyramidVisionTransformerV2(64, class_num=10, depths=[1, 1, 1, 1], "
            "embed_dims=[16, 32, 40, 64], num_heads=[1, 2, 5, 8], mlp_ratios=[8, 8, 4, 4], qkv_bias=True, linear=True)",
            64,
        ),
        (
            "ConvNeXt",
            f"timm.models.convnext:ConvNeXt(num_classes=10, {widths})",
            f"{zoo}.convnext:ConvNeXt(class_num=10, {widths})",
            64,
        ),
        ("LeViT_128S", "timm:create_model('levit_128s', num_classes=10)", "paddleclas:LeViT_128S(class_num=10)", 224),
        (
            "TNT",
            "timm.models.tnt:TNT(img_size=32, num_classes=10, embed_dim=256, inner_dim=16, depth=2, num_heads_inner=4, "
            "num_heads_outer=4)",
            f"{zoo}.tnt:TNT(img_size=32, class_num=10, embed_dim=256, in_dim=16, depth=2, in_num_head=4, num_heads=4)",
            32,
        ),
        (
            "Twins_PCPVT",
            "timm:create_model('twins_pcpvt_small', num_classes=10)",
            "paddleclas:pcpvt_small(class_num=10)",
            224,
        ),
        (
            "Twins_SVT",
            "timm:create_model('twins_svt_small', num_classes=10)",
            "paddleclas:alt_gvt_small(class_num=10)",
            224,
        ),
        (
            "NextViT_small",
            "timm:create_model('nextvit_small', num_classes=10)",
            "paddleclas:NextViT_small_224(class_num=10)",
            64,
        ),
        (
            "CvT_13",
            "transformers:CvtForImageClassification(CvtConfig(num_labels=10))",
            "paddleclas:CvT_13_224(class_num=10)",
            64,
        ),
    ):
        named = "pixel_values" if reference.startswith("transformers") else "x"
        yield Pair(name, reference, port, images(size, name=named), "AdamW")


def _in_dictionary(model: Any, inputs: Mapping[str, Any], framework: str) -> Any:
    """PaddleDetection's models take a dictionary."""
    return model(inputs["x"]) if framework == "torch" else model({"image": inputs["x"]})


def _dense() -> Iterator[Pair]:
    """PaddleSeg and PaddleDetection: segmentation networks and backbones that return several maps."""
    seg = "paddleseg.models"
    features = "features_only=True"
    for name, reference, port, size in (
        (
            "SegFormer",
            "transformers:SegformerForSemanticSegmentation(SegformerConfig(num_labels=4, depths=[1, 1, 1, 1], "
            "hidden_sizes=[16, 32, 40, 64], num_attention_heads=[1, 2, 5, 8], decoder_hidden_size=32))",
            f"{seg}:SegFormer(4, backbones.mix_transformer.MixVisionTransformer(img_size=64, "
            "embed_dims=[16, 32, 40, 64], num_heads=[1, 2, 5, 8], mlp_ratios=[4, 4, 4, 4], "
            "qkv_bias=True, depths=[1, 1, 1, 1]), 32)",
            64,
        ),
        (
            "seg_MiT_B0",
            "transformers:SegformerModel(SegformerConfig(depths=[1, 1, 1, 1], output_hidden_states=True))",
            f"{seg}.backbones:MixVisionTransformer(depths=[1, 1, 1, 1], mlp_ratios=[4, 4, 4, 4], qkv_bias=True)",
            64,
        ),
        (
            "seg_DeepLabV3",
            "torchvision.models.segmentation:deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=4)",
            f"{seg}:DeepLabV3(4, backbones.ResNet50_vd(output_stride=8), aspp_ratios=(1, 12, 24, 36))",
            64,
        ),
        (
            "seg_ResNet18_vd",
            f"timm:create_model('resnet18d', {features}, output_stride=8, out_indices=(1, 2, 3, 4))",
            f"{seg}.backbones:ResNet18_vd(output_stride=8)",
            64,
        ),
        (
            "seg_HRNet_W18_small",
            "timm:create_model('hrnet_w18_small', num_classes=10)",
            f"{seg}.backbones:HRNet_W18_Small_V1()",
            64,
        ),
        (
            "seg_Swin",
            "timm.models.swin_transformer:SwinTransformer(56, num_classes=0, embed_dim=24, depths=(2, 2), "
            "num_heads=(2, 4))",
            f"{seg}.backbones:SwinTransformer(56, embed_dim=24, depths=[2, 2], num_heads=[2, 4], out_indices=(0, 1))",
            56,
        ),
        ("seg_GhostNet", f"timm:create_model('ghostnet_100', {features})", f"{seg}.backbones:GhostNet_x1_0()", 64),
        (
            "seg_MobileNetV2",
            f"timm:create_model('mobilenetv2_100', {features}, out_indices=(1, 2, 3, 4))",
            f"{seg}.backbones:MobileNetV2_x1_0()",
            64,
        ),
        (
            "det_ResNet18",
            f"timm:create_model('resnet18', {features}, out_indices=(1, 2, 3, 4))",
            "ppdet.modeling.backbones.resnet:ResNet(18, return_idx=[0, 1, 2, 3], freeze_norm=False, freeze_at=-1)",
            64,
        ),
        (
            "det_ResNet50_vd",
            f"timm:create_model('resnet50d', {features}, out_indices=(1, 2, 3, 4))",
            "ppdet.modeling.backbones.resnet:ResNet(50, variant='d', return_idx=[0, 1, 2, 3], freeze_norm=False, "
            "freeze_at=-1)",
            64,
        ),
        (
            "det_DarkNet53",
            f"timm:create_model('darknet53', {features}, out_indices=(3, 4, 5))",
            "ppdet.modeling.backbones.darknet:DarkNet()",
            64,
        ),
        ("det_DLA34", f"timm:create_model('dla34', {features})", "ppdet.modeling.backbones.dla:DLA(34)", 64),
        (
            "det_ConvNeXt",
            f"timm:create_model('convnext_tiny', {features}, out_indices=(3,))",
            "ppdet.modeling.backbones.convnext:ConvNeXt('tiny', return_idx=[3])",
            64,
        ),
        (
            "det_HRNet_W18",
            f"timm:create_model('hrnet_w18', {features}, out_indices=(1, 2, 3, 4))",
            "ppdet.modeling.backbones.hrnet:HRNet(18, freeze_at=-1, freeze_norm=False)",
            64,
        ),
    ):
        lines = {"forward": _in_dictionary} if port.startswith("ppdet") else {}
        named = "pixel_values" if reference.startswith("transformers") else "x"
        yield Pair(name, reference, port, images(size, name=named), lines=lines)
    for name in ("mobilenet_v3_small", "googlenet", "inception_v3", "shufflenet_v2_x1_0", "densenet121"):
        arguments = "num_classes=10" + (", aux_logits=True" if name == "googlenet" else "")
        yield Pair(
            f"vision_{name}",
            f"torchvision.models:{name}({arguments})",
            f"paddle.vision.models:{name}(num_classes=10)",
            images(299 if name == "inception_v3" else 224 if name == "googlenet" else 64),
        )
