"""A checkpoint of nanochat becomes a folder of ours: whole, once, or not at all."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from paribus.errors import StorageError
from paribus.interop import imported
from paribus.interop.errors import ForeignModelError
from paribus.interop.nanochat import import_checkpoint
from paribus.interop.nanochat_names import expected_tensors, theirs
from paribus.model.config import NanochatConfig

from .conftest import SHAPE, Write, state_of

SHARED = Path(__file__).parents[3] / "shared" / "data" / "nanochat_golden"
Cli = Callable[..., tuple[int, str, str]]


def imported_from(folder: Path, to: Path, **options: Any) -> imported.Imported:
    import_checkpoint(folder, to=to, **options)
    return imported.read(to)


@pytest.mark.shared_data
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("prefix", ["", "_orig_mod."], ids=["plain", "compiled"])
def test_a_checkpoint_of_the_originals_weights_gives_the_originals_logits(
    write: Write, tmp_path: Path, kv_heads: int, prefix: str
):
    path = SHARED / f"2026-07-kv{kv_heads}.safetensors"
    if not path.exists():
        pytest.skip(f"real data is absent: expected ../shared/data/nanochat_golden/{path.name} beside the repository")
    found = load_file(path)
    shape = json.loads((SHARED / "2026-07.json").read_text())["config"] | {"n_kv_head": kv_heads}
    state = {prefix + name.removeprefix("param."): v for name, v in found.items() if name.startswith("param.")}
    model = imported.load(imported_from(write(state, model_config=shape), tmp_path / "model"))
    inputs = found["tokens"][0][:, :-1]
    with torch.no_grad():
        logits = model(inputs, torch.zeros_like(inputs))
    # The root of the 3300 roundings on the longest chain (4 layers of 64, 16, 200 and 256 products, and a head), as
    # independent errors add; relative to the largest logit. Measured: 3e-7 of it.
    assert (logits - found["logits"]).abs().max() <= 3300**0.5 * 2.0**-24 * found["logits"].abs().max()


def test_every_tensor_arrives_under_our_name_bit_for_bit(write: Write, tmp_path: Path):
    state = state_of()
    found = imported_from(write(state), tmp_path / "model")
    assert isinstance(found.config, NanochatConfig)
    assert found.config.model_dump(include={"layers", "width", "head_width", "query_heads_per_kv_head"}) == {
        "layers": 2,
        "width": 32,
        "head_width": 16,
        "query_heads_per_kv_head": 2,
    }
    assert (found.config.window_pattern, found.config.context_length, found.config.mlp_width) == ("SL", 32, 128)
    parameters = dict(imported.load(found).named_parameters())
    assert {theirs(name) for name in parameters} == set(state)
    for name, parameter in parameters.items():
        assert torch.equal(parameter, state[theirs(name)]), name


def test_the_names_are_one_to_one():
    expected = expected_tensors(
        NanochatConfig(layers=4, width=64, mlp_width=256, vocabulary_size=300, context_length=32, head_width=16)
    )
    assert len({tensor.ours for tensor in expected.values()}) == len(expected) == 7 + 4 * 6 + 2 * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_without_change(write: Write, tmp_path: Path, dtype: torch.dtype):
    state = {name: tensor.to(dtype) for name, tensor in state_of().items()}
    model = imported.load(imported_from(write(state), tmp_path / "model"))
    for name, parameter in model.named_parameters():
        assert parameter.dtype is torch.float32
        assert torch.equal(parameter, state[theirs(name)].float())


def test_the_last_step_is_taken_and_another_can_be_named(write: Write, tmp_path: Path):
    for step in (7, 20, 100):
        folder = write({name: tensor + step for name, tensor in state_of().items()}, step=step)
    (folder / "model_000200_backup.pt").write_bytes(b"not one of them")
    (folder / "optim_000300_rank0.pt").write_bytes(b"nor this")
    assert imported_from(folder, tmp_path / "last").origin["step"] == 100
    second = imported_from(folder, tmp_path / "second", step=20)
    assert second.origin["step"] == 20
    assert torch.equal(imported.load(second).get_parameter("smear_scale"), state_of()["smear_lambda"] + 20)
    with pytest.raises(ForeignModelError, match="no checkpoint of step 21") as caught:
        import_checkpoint(folder, step=21, to=tmp_path / "none")
    assert "7, 20, 100" in caught.value.expected


def test_what_the_meta_file_says_goes_on_record(write: Write, tmp_path: Path):
    folder = write(meta={"user_config": {"depth": 2, "matrix_lr": float("nan"), "nested": {"a": 1}}})
    found = imported_from(folder, tmp_path / "model").origin
    assert (found["program"], found["tag"], found["step"], found["validation_bits_per_byte"]) == (
        "nanochat",
        "d2",
        7,
        1.25,
    )
    assert set(found["files"]) == {"model_000007.pt", "meta_000007.json"}
    assert found["model_config"] == dict(SHAPE)
    assert found["training_arguments"] == {"depth": 2}


def test_a_validation_that_was_not_made_is_none(write: Write, tmp_path: Path):
    assert imported_from(write(meta={"val_bpb": None}), tmp_path / "a").origin["validation_bits_per_byte"] is None
    assert (
        imported_from(write(meta={"val_bpb": float("nan")}), tmp_path / "b").origin["validation_bits_per_byte"] is None
    )


def without(*names: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state_of().items() if name not in names}


@pytest.mark.parametrize(
    ("state", "match"),
    [
        (without("transformer.h.1.mlp.c_fc.weight"), r"missing are transformer\.h\.1\.mlp\.c_fc\.weight"),
        (state_of() | {"transformer.h.0.attn.scale": torch.ones(1)}, r"beyond it are transformer\.h\.0\.attn\.scale"),
        (state_of() | {"lm_head.weight": torch.ones(280, 32)}, r"lm_head\.weight has the wrong shape"),
        (state_of() | {"x0_lambdas": torch.ones(3)}, "x0_lambdas has the wrong shape"),
        (state_of() | {"transformer.h.1.attn.ve_gate.weight": torch.ones(1, 32)}, "ve_gate.weight has the wrong shape"),
        (state_of() | {"resid_lambdas": torch.tensor([1.0, float("nan")])}, "no checkpoint that can be used"),
        (state_of() | {"smear_lambda": torch.ones(1, dtype=torch.int64)}, "no checkpoint that can be used"),
        (state_of() | {"step": 7}, "no checkpoint that can be used"),
        ({f"_orig_mod.{n}": t for n, t in state_of().items()} | state_of(), "no checkpoint that can be used"),
        ([torch.ones(1)], "no checkpoint that can be used"),
        (without("smear_gate.weight", "smear_lambda", "backout_lambda"), "is of another nanochat: it lacks smear_gate"),
    ],
    ids=[
        "missing",
        "extra",
        "an unpadded head",
        "a number of layers",
        "an older gate",
        "NaN",
        "integers",
        "a number",
        "both names",
        "a list",
        "an older model",
    ],
)
def test_weights_that_are_not_the_models_are_refused_and_nothing_is_written(
    write: Write, tmp_path: Path, state: Any, match: str
):
    folder = write(state)
    with pytest.raises(ForeignModelError, match=match):
        import_checkpoint(folder, to=tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert not list(tmp_path.glob(".*"))


def test_an_older_model_is_told_which_era_is_supported(write: Write, tmp_path: Path):
    with pytest.raises(ForeignModelError) as caught:
        import_checkpoint(write(without("smear_gate.weight", "smear_lambda", "backout_lambda")), to=tmp_path / "model")
    assert "April to July 2026" in caught.value.expected
    assert "smear_lambda" in caught.value.what


@pytest.mark.parametrize(
    ("model_config", "match"),
    [
        ({k: v for k, v in SHAPE.items() if k != "window_pattern"}, "lacks window_pattern"),
        (dict(SHAPE) | {"xsa_layers": "all"}, "has xsa_layers, which nanochat's own model does not know"),
        (dict(SHAPE) | {"n_layer": 3}, "3 layers"),
        (dict(SHAPE) | {"n_layer": "2"}, "cannot be used"),
        (dict(SHAPE) | {"n_head": 3}, "cannot be used"),
        (dict(SHAPE) | {"n_kv_head": 3}, "cannot be used"),
        (dict(SHAPE) | {"window_pattern": "SXL"}, "window_pattern"),
        (dict(SHAPE) | {"window_pattern": 4}, "window_pattern"),
        (None, "cannot be used"),
    ],
)
def test_a_shape_that_cannot_be_ours_is_refused(write: Write, tmp_path: Path, model_config: Any, match: str):
    with pytest.raises(ForeignModelError, match=match) as caught:
        import_checkpoint(write(model_config=model_config), to=tmp_path / "model")
    assert "meta_000007.json" in caught.value.what


class _Code:
    """What a pickle does when it is opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch opened",)


def test_a_file_that_holds_objects_is_not_opened(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ForeignModelError, match="cannot be read as weights alone"):
        import_checkpoint(write(state_of() | {"hidden": _Code()}), to=tmp_path / "model")
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"nonsense"])
def test_a_damaged_file_is_one_error(write: Write, tmp_path: Path, content: bytes):
    folder = write()
    (folder / "model_000007.pt").write_bytes(content)
    with pytest.raises(ForeignModelError, match=r"model_000007\.pt cannot be read"):
        import_checkpoint(folder, to=tmp_path / "model")


def test_a_file_cut_short_is_one_error(write: Write, tmp_path: Path):
    path = write() / "model_000007.pt"
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ForeignModelError, match=r"model_000007\.pt"):
        import_checkpoint(path.parent, to=tmp_path / "model")


@pytest.mark.parametrize("content", ["{", "[]", '{"step": 8}', '{"step": 7}'])
def test_a_meta_file_that_cannot_be_used_is_named(write: Write, tmp_path: Path, content: str):
    folder = write()
    (folder / "meta_000007.json").write_text(content)
    with pytest.raises(ForeignModelError, match=r"meta_000007\.json"):
        import_checkpoint(folder, to=tmp_path / "model")
    (folder / "meta_000007.json").unlink()
    with pytest.raises(ForeignModelError, match=r"meta_000007\.json is missing"):
        import_checkpoint(folder, to=tmp_path / "model")


def test_a_folder_without_checkpoints_says_where_they_are(write: Write, tmp_path: Path):
    folder = write()
    with pytest.raises(ForeignModelError, match="holds no checkpoint") as caught:
        import_checkpoint(folder.parent)
    assert str(folder) in caught.value.remedy
    with pytest.raises(ForeignModelError, match="no checkpoint folder"):
        import_checkpoint(tmp_path / "nowhere")


def contents(folder: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_second_import_changes_nothing(write: Write, tmp_path: Path):
    folder, to = write(), tmp_path / "model"
    import_checkpoint(folder, to=to)
    before, times = contents(to), {path.name: path.stat().st_mtime_ns for path in to.iterdir()}
    again = import_checkpoint(folder, to=to)
    assert again.written == imported.Written((), ())
    assert contents(to) == before
    assert {path.name: path.stat().st_mtime_ns for path in to.iterdir()} == times
    assert set(before) == {"model.json", "model.safetensors", "recipe.toml"}


def test_a_changed_recipe_is_kept_and_damaged_weights_are_restored(write: Write, tmp_path: Path):
    folder, to = write(), tmp_path / "model"
    import_checkpoint(folder, to=to)
    before = contents(to)
    (to / "recipe.toml").write_text("# mine\n")
    whole = before["model.safetensors"]
    for damaged in (whole[:-3], whole[:-1] + bytes([whole[-1] ^ 1])):
        (to / "model.safetensors").write_bytes(damaged)
        with pytest.raises(ForeignModelError, match="is not what was written"):
            imported.load(imported.read(to))
    again = import_checkpoint(folder, to=to)
    assert again.written.kept == ("recipe.toml",)
    assert "model.safetensors" in again.written.new
    assert contents(to) == {**before, "recipe.toml": b"# mine\n"}
    assert import_checkpoint(folder, to=to).written == imported.Written((), ("recipe.toml",))


def test_another_checkpoint_is_not_written_over_a_model(write: Write, tmp_path: Path):
    to = tmp_path / "model"
    import_checkpoint(write(), to=to)
    before = contents(to)
    other = write({name: tensor + 1 for name, tensor in state_of().items()}, step=9)
    with pytest.raises(ForeignModelError, match="holds something else") as caught:
        import_checkpoint(other, to=to)
    assert "step 7" in caught.value.received
    assert contents(to) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ForeignModelError, match="holds something else"):
        import_checkpoint(other, to=tmp_path / "mine")
    assert contents(tmp_path / "mine") == {"notes.txt": b"mine"}


def test_a_write_that_fails_leaves_nothing(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(path: Path, content: bytes) -> None:
        assert content
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(imported, "write_flushed", full)
    with pytest.raises(StorageError, match="could not write"):
        import_checkpoint(write(), to=tmp_path / "models" / "d2")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "configuration": {}}'])
def test_a_model_json_that_cannot_be_used_is_named(tmp_path: Path, content: str):
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(ForeignModelError, match=r"model\.json is not what was written"):
        imported.read(tmp_path)


def test_the_command_says_what_it_did_and_where_to_go_on(cli: Cli, write: Write, tmp_path: Path):
    folder, to = write(), tmp_path / "model"
    code, out, err = cli("import", "nanochat", str(folder), "--to", str(to))
    assert (code, err) == (0, "")
    assert "d2, step 7: " in out
    assert "1.2500 validation bits per byte" in out
    assert f"paribus plan {to / 'recipe.toml'}" in out
    assert "mergeable_ranks_hex" in out  # how to convert the tokenizer, which no text can be read without
    code, out, _ = cli("import", "nanochat", str(folder), "--to", str(to), "--json")
    assert (code, json.loads(out)["written"]) == (0, [])


def test_the_default_folder_is_named_by_tag_and_step(
    cli: Cli, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = write()
    monkeypatch.chdir(tmp_path)
    assert cli("import", "nanochat", str(folder), "--json")[0] == 0
    assert (tmp_path / "imported" / "d2-000007" / "model.json").exists()


def test_a_refusal_is_one_message_and_an_exit_code(cli: Cli, write: Write, tmp_path: Path):
    code, out, err = cli("import", "nanochat", str(write(without("backout_lambda"))), "--to", str(tmp_path / "model"))
    assert (code, out) == (1, "")
    assert err.startswith("error: model_000007.pt is of another nanochat: it lacks backout_lambda\n")
