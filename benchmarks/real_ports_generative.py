"""PaddleNLP, PaddleFormers and ppdiffusers against transformers and diffusers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from real_ports_pairs import Pair, constant, images, noise, text, tokens


def pairs() -> Iterator[Pair]:
    """Pairs of language models and of diffusion models."""
    yield from _texts()
    yield from _diffusion()


BERT = (
    "vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, "
    "max_position_embeddings=64"
)
BART = (
    "vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, "
    "decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64"
)


def _texts() -> Iterator[Pair]:
    """PaddleNLP and PaddleFormers against transformers, with two layers of width 32."""
    both = {"input_ids": tokens(), "decoder_input_ids": tokens(9)}
    typed = f"{BERT}, type_vocab_size=2"
    t5 = "vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False"
    bloom = "vocab_size=99, hidden_size=32, n_layer=2, n_head=4"
    fnet = "vocab_size=99, hidden_size=32, num_hidden_layers=2, intermediate_size=64, max_position_embeddings=64"
    gpt2 = "vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64"
    opt = "vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64"
    deberta = f"{BERT}, relative_attention=True, pos_att_type=['p2c', 'c2p'], position_buckets=8"
    # name, config of both, what the reference's has besides, what the port's has besides
    for name, config, reference, port in (
        ("Bert", typed, "", ""),
        ("Roberta", f"{typed}, pad_token_id=1", "", ""),
        ("Ernie", typed, "", ""),
        ("Electra", f"{typed}, embedding_size=16", "", ""),
        ("Albert", f"{typed}, embedding_size=16", "", ""),
        ("ConvBert", f"{typed}, embedding_size=16", "", ""),
        ("RoFormer", f"{typed}, embedding_size=32", "", ""),
        ("MegatronBert", typed, "", ""),
        ("SqueezeBert", f"{typed}, embedding_size=32", "", ""),
        ("MobileBert", f"{typed}, embedding_size=16, intra_bottleneck_size=16", "", "true_hidden_size=16"),
        ("LayoutLM", typed, "", ""),
        ("MPNet", BERT, "", ""),
        ("T5", t5, "", ""),
        ("Bart", BART, "", ""),
        ("MBart", f"{BART}, scale_embedding=True", "", ""),
        ("Bloom", bloom, "", ""),
        ("FNet", fnet, "", ""),
        ("XLNet", "vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=64, use_mems_eval=False", "", ""),
        ("Nystromformer", f"{typed}, segment_means_seq_len=16, num_landmarks=4", "", ""),
        ("CTRL", f"{gpt2}, dff=64", "", ""),
        ("OPT", f"{opt}, word_embed_proj_dim=32", "ffn_dim=64", "intermediate_size=64"),
        (
            "DebertaV2",
            f"{deberta}, norm_rel_ebd='layer_norm', share_att_key=True",
            "output_hidden_states=True",
            "",
        ),
    ):
        inputs = both if name in ("T5", "Bart", "MBart") else text(16 if name == "Nystromformer" else 12)
        texts = (f"{name}Model({name}Config({config}, {own}))" for own in (reference, port))
        first, second = texts
        pair = Pair(name, f"transformers:{first}", f"paddlenlp.transformers:{second}", inputs, "AdamW")
        yield dataclasses.replace(pair, **DIFFERS.get(name, {}))
    for name, reference, port in (
        ("Bert_mlm", f"BertForMaskedLM(BertConfig({typed}))", f"BertForMaskedLM(BertConfig({typed}))"),
        (
            "DistilBert",
            "DistilBertModel(DistilBertConfig(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64, "
            "max_position_embeddings=64))",
            f"DistilBertModel(DistilBertConfig({BERT}))",
        ),
        ("GPT2", f"GPT2Model(GPT2Config({gpt2}, n_inner=64))", f"GPTModel(GPTConfig({BERT}))"),
        ("Llama_nlp", *[f"LlamaModel(LlamaConfig({BERT}, num_key_value_heads=2))"] * 2),
    ):
        yield Pair(name, f"transformers:{reference}", f"paddlenlp.transformers:{port}", text(), "AdamW")
    for name, config in (
        ("Llama", "num_key_value_heads=2"),
        ("Phi3", "num_key_value_heads=2, pad_token_id=0"),
        ("Ernie4_5", "num_key_value_heads=2, head_dim=8"),
        ("Gemma3Text", "num_key_value_heads=2, head_dim=8"),
        ("GptOss", "num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=2"),
    ):
        model = f"{name}Model({name}Config({BERT}, {config}"
        # Its fused norm has no kernel for CPUs.
        port = f"paddleformers.transformers:{model}, fuse_rms_norm=False))"
        pair = Pair(name, f"transformers:{model}))", port, text(), "AdamW")
        yield dataclasses.replace(pair, **DIFFERS.get(name, {}))


DIFFERS: dict[str, Any] = {
    "MPNet": {
        "differs": "layer_norm_eps is 1e-5 by default for 1e-12 (`mpnet/configuration.py`, line 97)",
        "causes": ("norm_epsilon",),
    },
    "FNet": {
        "differs": "the embedding returns zeros at the padding index (`fnet/modeling.py`, line 136)",
        "causes": ("embedding_padding_zeroed",),
    },
    "VQModel": {"differs": "returns the sample alone, the original the loss of its codebook as well"},
    "Ernie4_5": {
        "differs": "rms_norm_eps is 1e-6 by default for 1e-5 (`ernie4_5/configuration.py`, line 41), and more",
        "causes": ("norm_epsilon",),
    },
}
"""What ports compute differently, found by reading both sources."""
BLOCKS = "block_out_channels=(32, 64), layers_per_block=1"


def _diffusion() -> Iterator[Pair]:
    """ppdiffusers against diffusers, with two narrow stages."""
    sample = {"sample": noise(2, 4, 16, 16), "timestep": constant(3, 700)}
    guided = {**sample, "encoder_hidden_states": noise(2, 5, 16)}
    vae = (
        f"{BLOCKS}, down_block_types=('DownEncoderBlock2D',) * 2, up_block_types=('UpDecoderBlock2D',) * 2, "
        "latent_channels=4"
    )
    unet = (
        f"sample_size=16, in_channels=4, out_channels=4, {BLOCKS}, cross_attention_dim=16, attention_head_dim=8, "
        "down_block_types=('CrossAttnDownBlock2D', 'DownBlock2D'), up_block_types=('UpBlock2D', 'CrossAttnUpBlock2D')"
    )
    for name, model, arguments, inputs in (
        (
            "UNet2D",
            "UNet2DModel",
            f"sample_size=16, in_channels=4, out_channels=4, {BLOCKS}, attention_head_dim=8, "
            "down_block_types=('DownBlock2D', 'AttnDownBlock2D'), up_block_types=('AttnUpBlock2D', 'UpBlock2D')",
            sample,
        ),
        ("UNet2DCondition", "UNet2DConditionModel", unet, guided),
        ("UNet2DCondition_linear", "UNet2DConditionModel", f"{unet}, use_linear_projection=True", guided),
        ("AutoencoderKL", "AutoencoderKL", vae, images(32, name="sample")),
        (
            "AsymmetricAutoencoderKL",
            "AsymmetricAutoencoderKL",
            "down_block_types=('DownEncoderBlock2D',) * 2, down_block_out_channels=(32, 64), "
            "up_block_types=('UpDecoderBlock2D',) * 2, up_block_out_channels=(32, 64)",
            images(32, name="sample"),
        ),
        ("VQModel", "VQModel", f"{vae}, num_vq_embeddings=16", images(32, name="sample")),
        (
            "AutoencoderTiny",
            "AutoencoderTiny",
            "encoder_block_out_channels=(16, 16), decoder_block_out_channels=(16, 16), num_encoder_blocks=(1, 1), "
            "num_decoder_blocks=(1, 1)",
            images(32, name="sample"),
        ),
        (
            "ControlNet",
            "ControlNetModel",
            f"{BLOCKS}, cross_attention_dim=16, attention_head_dim=8, "
            "down_block_types=('CrossAttnDownBlock2D', 'DownBlock2D'), conditioning_embedding_out_channels=(16, 32)",
            {**guided, "controlnet_cond": noise(2, 3, 32, 32)},
        ),
        (
            "PriorTransformer",
            "PriorTransformer",
            "num_attention_heads=2, attention_head_dim=8, num_layers=2, embedding_dim=16, num_embeddings=5, "
            "additional_embeddings=4",
            {
                "hidden_states": noise(2, 16),
                "timestep": constant(3, 700),
                "proj_embedding": noise(2, 16),
                "encoder_hidden_states": noise(2, 5, 16),
            },
        ),
        (
            "DiT",
            "Transformer2DModel",
            "num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=8, num_layers=2, "
            "sample_size=16, patch_size=4, norm_type='ada_norm_zero', num_embeds_ada_norm=20, attention_bias=True, "
            "activation_fn='gelu-approximate', norm_elementwise_affine=False",
            {"hidden_states": noise(2, 4, 16, 16), "timestep": constant(3, 7), "class_labels": constant(1, 5)},
        ),
        (
            "UNet3DCondition",
            "UNet3DConditionModel",
            f"sample_size=16, {BLOCKS}, cross_attention_dim=16, attention_head_dim=8, "
            "down_block_types=('CrossAttnDownBlock3D', 'DownBlock3D'), "
            "up_block_types=('UpBlock3D', 'CrossAttnUpBlock3D')",
            {**guided, "sample": noise(2, 4, 3, 16, 16)},
        ),
        (
            "UNetSpatioTemporal",
            "UNetSpatioTemporalConditionModel",
            "sample_size=16, in_channels=8, block_out_channels=(32, 64), num_attention_heads=(2, 4), "
            "layers_per_block=1, cross_attention_dim=16, projection_class_embeddings_input_dim=96, "
            "addition_time_embed_dim=32, "
            "down_block_types=('CrossAttnDownBlockSpatioTemporal', 'DownBlockSpatioTemporal'), "
            "up_block_types=('UpBlockSpatioTemporal', 'CrossAttnUpBlockSpatioTemporal')",
            {
                "sample": noise(2, 3, 8, 16, 16),
                "timestep": constant(3, 700),
                "encoder_hidden_states": noise(2, 1, 16),
                "added_time_ids": noise(2, 3),
            },
        ),
    ):
        pair = Pair(name, f"diffusers:{model}({arguments})", f"ppdiffusers:{model}({arguments})", inputs, "AdamW")
        yield dataclasses.replace(pair, **DIFFERS.get(name, {}))
