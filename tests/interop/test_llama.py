"""A Llama decoder in the Hugging Face layout becomes a folder of ours that computes what its equations say."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from paribus.data.tokenizer import Tokenizer
from paribus.errors import CorpusError
from paribus.interop import imported
from paribus.interop.errors import ForeignModelError
from paribus.interop.llama import import_llama
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.backbone import geometry_of
from paribus.model.config import PrenormConfig
from paribus.seeds import generator
from paribus.trained import open_model

REAL = Path(__file__).parents[3] / "shared" / "data" / "models" / "stories260K"
Cli = Callable[..., tuple[int, str, str]]
Array = NDArray[np.float64]
CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "vocab_size": 280,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "transformers_version": "4.40.0",
}


def weights() -> dict[str, Tensor]:
    """Every tensor of a model of CONFIG, written down from the layout, with noise for values."""
    width, inner, kv = CONFIG["hidden_size"], CONFIG["intermediate_size"], 8
    shapes = {"model.embed_tokens.weight": (CONFIG["vocab_size"], width), "model.norm.weight": (width,)}
    for n in range(CONFIG["num_hidden_layers"]):
        block = f"model.layers.{n}"
        shapes |= {f"{block}.{name}.weight": (width,) for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{block}.self_attn.{name}_proj.weight": (width, width) for name in ("q", "o")}
        shapes |= {f"{block}.self_attn.{name}_proj.weight": (kv, width) for name in ("k", "v")}
        shapes |= {f"{block}.mlp.{name}_proj.weight": (inner, width) for name in ("gate", "up")}
        shapes |= {f"{block}.mlp.down_proj.weight": (width, inner)}
    draw = generator("tests", "interop", "llama")
    return {name: torch.from_numpy(draw.standard_normal(size, dtype="float32") * 0.4) for name, size in shapes.items()}


def llama(w: Mapping[str, Array], tokens: list[int], config: Mapping[str, Any]) -> Array:
    """Logits [time vocab] in float64, position by position and head by head, from the equations of the paper."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config["hidden_size"] // heads

    def norm(x: Array, gain: Array) -> Array:
        return x / np.sqrt((x**2).mean() + config["rms_norm_eps"]) * gain

    def turned(x: Array, position: int) -> Array:
        phases = position * config["rope_theta"] ** (-2.0 * np.arange(size // 2) / size)
        pairs = (x[: size // 2] + 1j * x[size // 2 :]) * np.exp(1j * phases)
        return np.concatenate([pairs.real, pairs.imag])

    stream = [w["model.embed_tokens.weight"][token].copy() for token in tokens]
    for n in range(config["num_hidden_layers"]):
        layer = {name.removeprefix(f"model.layers.{n}."): t for name, t in w.items() if f"layers.{n}." in name}
        keys: list[Array] = []
        values: list[Array] = []
        for position, x in enumerate(stream):
            h = norm(x, layer["input_layernorm.weight"])
            q, k, v = ((layer[f"self_attn.{part}_proj.weight"] @ h).reshape(-1, size) for part in "qkv")
            keys.append(np.array([turned(head, position) for head in k]))
            values.append(v)
            mixed = []
            for head in range(heads):
                own = head // (heads // kv_heads)
                scores = np.array([turned(q[head], position) @ key[own] for key in keys]) / np.sqrt(size)
                share = np.exp(scores - scores.max())
                mixed.append(sum(s * value[own] for s, value in zip(share / share.sum(), values, strict=True)))
            stream[position] = x + layer["self_attn.o_proj.weight"] @ np.concatenate(mixed)
        for position, x in enumerate(stream):
            h = norm(x, layer["post_attention_layernorm.weight"])
            gate, up = layer["mlp.gate_proj.weight"] @ h, layer["mlp.up_proj.weight"] @ h
            stream[position] = x + layer["mlp.down_proj.weight"] @ (gate / (1.0 + np.exp(-gate)) * up)
    return np.array([w["model.embed_tokens.weight"] @ norm(x, w["model.norm.weight"]) for x in stream])


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a folder `tiny`; a key of `config` that is ... is left out, `state` None leaves the weights out."""

    def folder(state: Mapping[str, Tensor] | None = None, *, tokenizer: Tokenizer | None = None, **config: Any) -> Path:
        path = tmp_path / "tiny"
        path.mkdir(exist_ok=True)
        table = {key: value for key, value in {**CONFIG, **config}.items() if value is not ...}
        (path / "config.json").write_text(json.dumps(table))
        save_file(dict(weights() if state is None else state), path / "model.safetensors")
        if tokenizer is not None:
            tokenizer.save(path / "tokenizer.json")
        return path

    return folder


def logits_of(folder: Path, tokens: list[int]) -> Array:
    model = imported.load(imported.read(folder))
    row = torch.tensor([tokens])
    with torch.no_grad():
        return model(row, torch.zeros_like(row))[0].double().numpy()


def test_an_imported_model_computes_the_equations_of_llama(write: Callable[..., Path], tmp_path: Path):
    tokens = generator("tests", "interop", "llama row").integers(0, 280, size=16).tolist()
    import_llama(write(), to=tmp_path / "model")
    expected = llama({name: t.double().numpy() for name, t in weights().items()}, tokens, CONFIG)
    # Some 400 roundings on the longest chain (2 layers of 24, 16, 24, 24 and 40 products, and a head), as the root of
    # independent errors, relative to the largest logit.
    assert (
        np.abs(logits_of(tmp_path / "model", tokens) - expected).max() <= 400**0.5 * 2.0**-24 * np.abs(expected).max()
    )


@pytest.mark.shared_data
def test_stories260k_has_its_golden_likelihood_logits_and_story(tmp_path: Path):
    if not REAL.exists():
        pytest.skip(f"real data is absent: expected ../shared/data/models/{REAL.name} beside the repository")
    golden = json.loads((REAL / "golden.json").read_text())
    import_llama(REAL, to=tmp_path / "model")
    trained = open_model(tmp_path / "model")
    text, ids = golden["text"], golden["token_ids"]
    # Our tokenizers put no space before a text, as sentencepiece does.
    assert [trained.tokenizer.bos_id, *trained.tokenizer.encode_batch([" " + text])[0].tolist()] == ids
    logits = logits_of(tmp_path / "model", ids)
    nats = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, np.array([*ids[1:], 0])[:, None], -1)[:, 0]
    # 61 logits of about 8 in float32, each with some 30 units of rounding: 1.5e-5 for one, less for their mean.
    assert abs(nats[:-1].mean() - golden["mean_nll_nats"]) < 1e-5
    # The file has four decimals.
    assert np.abs(logits[-1][:8] - golden["last_position_logits_first8"]).max() < 1e-4
    assert np.argsort(-logits[-1])[:5].tolist() == golden["last_position_top5"]
    story = golden["greedy_from_bos_ids"]
    assert logits_of(tmp_path / "model", story)[:-1].argmax(-1).tolist() == story[1:]
    assert trained.tokenizer.decode(story[1:]).strip() == golden["greedy_from_bos_text"]


def test_shards_hold_the_same_model_as_one_file(write: Callable[..., Path], tmp_path: Path):
    source = write()
    import_llama(source, to=tmp_path / "one")
    (source / "model.safetensors").unlink()
    halves = [dict(list(weights().items())[::2]), dict(list(weights().items())[1::2])]
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name, half in zip(names, halves, strict=True):
        save_file(half, source / name)
    index = {name: file for file, half in zip(names, halves, strict=True) for name in half}
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    import_llama(source, to=tmp_path / "two")
    one, two = (dict(imported.load(imported.read(tmp_path / name)).named_parameters()) for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    save_file(halves[0] | {"model.norm.weight": torch.ones(24)}, source / names[0])
    with pytest.raises(ForeignModelError) as caught:
        import_llama(source, to=tmp_path / "three")
    assert "model.norm.weight in another one too" in caught.value.received
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))
    with pytest.raises(ForeignModelError) as caught:
        import_llama(source, to=tmp_path / "three")
    assert "beside the index" in caught.value.expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_without_change(write: Callable[..., Path], tmp_path: Path, dtype: torch.dtype):
    state = {name: tensor.to(dtype) for name, tensor in weights().items()}
    import_llama(write(state), to=tmp_path / "model")
    found = imported.load(imported.read(tmp_path / "model"))
    assert torch.equal(found.get_parameter("layers.1.mlp.down"), state["model.layers.1.mlp.down_proj.weight"].float())


def test_a_head_that_equals_the_embedding_is_tied(write: Callable[..., Path], tmp_path: Path):
    state = weights()
    head = {"lm_head.weight": state["model.embed_tokens.weight"].clone()}
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    import_llama(write(state | head | old, tie_word_embeddings=False), to=tmp_path / "model")
    assert set(imported.load(imported.read(tmp_path / "model")).state_dict()) >= {"embedding", "output_norm.gain"}


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"model_type": "mistral"}, "another model"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "another model"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"sliding_window": 8}, "sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModelForCausalLM": "modeling.Own"}}, "auto_map"),
        ({"head_dim": 16}, "head_dim"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
        ({"rope_scaling": {"factor": 2.0}, "rope_parameters": {"rope_type": "yarn"}}, "rope_parameters"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rms_norm_eps": 1e-3}, "norm_eps"),
        ({"num_attention_heads": 5}, "cannot be used"),
        ({"num_key_value_heads": 2}, "cannot be used"),
        ({"num_attention_heads": 24}, "head_width"),
        ({"vocab_size": "280"}, "cannot be used"),
        ({"intermediate_size": ...}, "cannot be used"),
        ({"rope_theta": None}, "cannot be used"),
        ({"initializer_range": float("nan")}, "cannot be used"),
        ({"vocab_size": 281}, "weights"),
        ({"num_hidden_layers": 3}, "weights"),
        ({"tie_word_embeddings": ...}, "weights"),
    ],
)
def test_what_the_backbone_cannot_hold_is_refused_by_name(
    write: Callable[..., Path], tmp_path: Path, config: dict[str, Any], what: str
):
    with pytest.raises(ForeignModelError, match=what):
        import_llama(write(**config), to=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_keys_that_say_what_is_done_anyway_change_nothing(write: Callable[..., Path], tmp_path: Path):
    import_llama(write(), to=tmp_path / "plain")
    rope = {"rope_type": "default", "rope_theta": 100.0}
    same = {"head_dim": 8, "sliding_window": None, "layer_types": ["full_attention"] * 2, "rope_parameters": rope}
    import_llama(write(**same, rope_theta=..., use_cache=True, pretraining_tp=2), to=tmp_path / "wordy")
    assert imported.read(tmp_path / "plain").config == imported.read(tmp_path / "wordy").config


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop("model.norm.weight"), "without model.norm.weight"),
        (lambda w: w.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(24)}), "beyond it"),
        (lambda w: w.update({"model.norm.weight": torch.ones(25)}), "[25]"),
        (lambda w: w.update({"model.norm.weight": torch.full((24,), torch.nan)}), "NaN"),
        (lambda w: w.update({"model.norm.weight": torch.ones(24, dtype=torch.int32)}), "int32"),
        (lambda w: w.update({"lm_head.weight": torch.ones(280, 24)}), "other values"),
    ],
    ids=["missing", "extra", "shape", "nan", "integers", "untied"],
)
def test_weights_that_are_not_the_models_are_refused(
    write: Callable[..., Path], tmp_path: Path, change: Callable[[dict[str, Tensor]], Any], said: str
):
    state = weights()
    change(state)
    with pytest.raises(ForeignModelError) as caught:
        import_llama(write(state), to=tmp_path / "model")
    assert said in caught.value.received
    assert not (tmp_path / "model").exists()


def test_a_folder_without_files_or_with_pickles_only_says_what_is_needed(write: Callable[..., Path], tmp_path: Path):
    with pytest.raises(ForeignModelError, match="Hugging Face layout") as caught:
        import_llama(tmp_path / "nothing")
    assert "no folder" in caught.value.received
    source = write()
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    with pytest.raises(ForeignModelError) as caught:
        import_llama(source, to=tmp_path / "model")
    assert "safe_serialization" in caught.value.remedy
    (source / "model.safetensors").write_bytes(b"\x08")
    with pytest.raises(ForeignModelError, match="does not hold the weights"):
        import_llama(source, to=tmp_path / "model")
    (source / "config.json").write_text("[]")
    with pytest.raises(ForeignModelError, match="cannot be used"):
        import_llama(source, to=tmp_path / "model")


def test_the_models_own_tokenizer_is_taken_and_another_models_is_refused(
    write: Callable[..., Path], tmp_path: Path, tokenizer: Tokenizer
):
    source = write(tokenizer=tokenizer, bos_token_id=tokenizer.bos_id)
    found = import_llama(source, to=tmp_path / "model")
    assert found.tokenizer is not None
    assert open_model(tmp_path / "model").tokenizer.digest == tokenizer.digest
    with pytest.raises(ForeignModelError, match="begins a document with another token"):
        import_llama(write(bos_token_id=3), to=tmp_path / "b")
    with pytest.raises(ForeignModelError, match="not the tokenizer of this model"):
        import_llama(write(vocab_size=300), to=tmp_path / "b")
    (source / "tokenizer.json").write_text("{}")
    with pytest.raises(CorpusError):
        import_llama(write(), to=tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_the_same_import_changes_nothing_and_a_tokenizer_can_be_added(
    write: Callable[..., Path], tmp_path: Path, tokenizer: Tokenizer
):
    source, to = write(), tmp_path / "model"
    assert import_llama(source, to=to).written.new == ("model.safetensors", "model.json")
    assert import_llama(source, to=to).written.new == ()
    tokenizer.save(tmp_path / "given.json")
    added = import_llama(source, to=to, tokenizer=tmp_path / "given.json")
    assert set(added.written.new) == {"tokenizer.json", "model.json"}
    again = import_llama(source, to=to)
    assert (again.written.new, again.tokenizer is None) == ((), False)
    with pytest.raises(ForeignModelError, match="something else") as caught:
        import_llama(write(rope_theta=50.0), to=to)
    assert caught.value.received == "the model of tiny"


def test_the_command_imports_and_says_what_it_wrote(write: Callable[..., Path], tmp_path: Path, cli: Cli):
    to = tmp_path / "model"
    code, out, _ = cli("import", "llama", str(write()), "--to", str(to))
    assert (code, "2 layers, width 24, 3 heads of 8, 1 key-value heads" in out) == (0, True)
    assert "--tokenizer tokenizer.json" in out
    code, out, _ = cli("import", "llama", str(tmp_path / "tiny"), "--to", str(to), "--json")
    told = json.loads(out)
    assert (code, told["written"], told["configuration"]["normalise_embedding"]) == (0, [], False)
    code, _, err = cli("import", "llama", str(tmp_path / "absent"))
    assert code != 0
    assert "config.json" in err


def test_existing_configurations_keep_their_words_and_depth_routings_their_eps():
    config = PrenormConfig(layers=2, width=32, mlp_width=48, vocabulary_size=100, context_length=16, head_width=16)
    assert "normalise_embedding" not in config.model_dump()
    assert config.model_copy(update={"normalise_embedding": False}).model_dump()["normalise_embedding"] is False
    routing = resolve(Seam.ROUTING, {"name": "block-attnres", "blocks": 2}, "test")
    standard = {seam: resolve(seam, None, str(seam)) for seam in Seam}
    small, large = (geometry_of(config.model_copy(update={"norm_eps": eps}), standard) for eps in (1e-6, 1e-5))
    assert routing.validate_for(small) is None
    assert "norm_eps = 1e-05 exceeds 1e-06" in (routing.validate_for(large) or "")
