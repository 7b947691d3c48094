"""Small models of transformers and diffusers, with random weights, for `port_models.py`: `build("bert")`."""

from __future__ import annotations

from typing import Any

VOCABULARY = 99
_SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_DECODER = {**_SMALL, "num_key_value_heads": 2, "use_cache": False}
_GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}
_STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}
_PICTURES = {"image_size": 32, "patch_size": 8, "num_channels": 3}
_VISION = {**{key: _SMALL[key] for key in list(_SMALL)[1:5]}, **_PICTURES}
TEXT = {
    "bert": ("Bert", _SMALL),
    "albert": ("Albert", {**_SMALL, "embedding_size": 16}),
    "bloom": ("Bloom", {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
    "deberta_v2": ("DebertaV2", _SMALL),
    "distilbert": ("DistilBert", {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37}),
    "electra": ("Electra", {**_SMALL, "embedding_size": 16}),
    "ernie": ("Ernie", _SMALL),
    "falcon": ("Falcon", {**_SMALL, "use_cache": False, "ffn_hidden_size": 64}),
    "gemma": ("Gemma", {**_DECODER, "head_dim": 8}),
    "gemma2": ("Gemma2", {**_DECODER, "head_dim": 8}),
    "gpt2": ("GPT2", _GPT),
    "gptj": ("GPTJ", {**_GPT, "rotary_dim": 4}),
    "gpt_neox": ("GPTNeoX", {**_SMALL, "use_cache": False}),
    "granite": ("Granite", _DECODER),
    "layoutlm": ("LayoutLM", _SMALL),
    "llama": ("Llama", _DECODER),
    "megatron_bert": ("MegatronBert", _SMALL),
    "mistral": ("Mistral", _DECODER),
    "mpnet": ("MPNet", _SMALL),
    "nystromformer": ("Nystromformer", {**_SMALL, "segment_means_seq_len": 16, "num_landmarks": 8}),
    "opt": ("OPT", {**_SMALL, "ffn_dim": 37, "word_embed_proj_dim": 32, "use_cache": False}),
    "phi": ("Phi", _DECODER),
    "qwen2": ("Qwen2", _DECODER),
    "qwen3": ("Qwen3", {**_DECODER, "head_dim": 8}),
    "roberta": ("Roberta", _SMALL),
    "roformer": ("RoFormer", _SMALL),
    "squeezebert": ("SqueezeBert", {**_SMALL, "embedding_size": 32, "intermediate_size": 64}),
    "stablelm": ("StableLm", _DECODER),
    "starcoder2": ("Starcoder2", _DECODER),
    "xlm_roberta": ("XLMRoberta", _SMALL),
}
IMAGES = {
    "beit": ("Beit", _VISION),
    "convnext": ("ConvNext", _STAGES),
    "convnextv2": ("ConvNextV2", _STAGES),
    "deit": ("DeiT", _VISION),
    "dinov2": ("Dinov2", {**_VISION, "mlp_ratio": 2}),
    "mobilenet_v2": ("MobileNetV2", {"depth_multiplier": 0.25}),
    "poolformer": ("PoolFormer", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "pvt": ("Pvt", {"image_size": 64, "hidden_sizes": [8, 16, 20, 32], "depths": [1, 1, 1, 1]}),
    "regnet": ("RegNet", {**_STAGES, "embedding_size": 8, "groups_width": 8}),
    "resnet": ("ResNet", {**_STAGES, "embedding_size": 8}),
    "segformer": ("Segformer", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "swin": ("Swin", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 2]}),
    "swinv2": (
        "Swinv2",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [1, 2],
            "num_heads": [2, 2],
            "window_size": 4,
        },
    ),
    "vit": ("ViT", _VISION),
    "vit_msn": ("ViTMSN", _VISION),
}
UNET = {
    "sample_size": 16,
    "in_channels": 3,
    "out_channels": 3,
    "layers_per_block": 1,
    "block_out_channels": (32, 64),
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
}
AUTOENCODER = {
    "block_out_channels": (32, 64),
    "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
    "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
    "latent_channels": 4,
    "norm_num_groups": 8,
}


def references() -> dict[str, tuple[str, list[str]]]:
    """Name → what builds the model, and its inputs as the command line takes them."""
    place = str(__file__)
    text = {f"transformers/{name}": (name, [f"input_ids:2,16:int64:{VOCABULARY}"]) for name in TEXT}
    images = {f"transformers/{name}": (name, ["pixel_values:2,3,32,32:float32"]) for name in IMAGES}
    images["transformers/pvt"] = ("pvt", ["pixel_values:2,3,64,64:float32"])
    images["transformers/segformer"] = ("segformer", ["pixel_values:2,3,64,64:float32"])
    others = {
        "diffusers/unet2d": ("unet2d", ["sample:2,3,16,16:float32", "timestep:2:int64:1000"]),
        "diffusers/autoencoder_kl": ("autoencoder_kl", ["sample:2,3,32,32:float32"]),
    }
    return {
        name: (f'{place}:build("{short}")', inputs) for name, (short, inputs) in {**text, **images, **others}.items()
    }


def build(name: str) -> Any:
    """The torch model."""
    if name in ("unet2d", "autoencoder_kl"):
        import diffusers

        return diffusers.UNet2DModel(**UNET) if name == "unet2d" else diffusers.AutoencoderKL(**AUTOENCODER)
    import transformers

    family, settings = {**TEXT, **IMAGES}[name]
    return getattr(transformers, f"{family}Model")(getattr(transformers, f"{family}Config")(**settings))
