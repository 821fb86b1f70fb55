"""The mixture file, its data in tokens, and the order of its conversations."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.progress import Advance
from paribus.downstream.chat.dataset import ChatData, read_chat_data
from paribus.downstream.chat.format import ChatFormat
from paribus.downstream.chat.mixture import Mixture, load_mixture
from paribus.downstream.chat.order import mixed_order
from paribus.downstream.chat.presets import PRESETS
from paribus.errors import ExperimentFileError, ParibusError

EXAMPLES = Path(__file__).parents[3] / "experiments" / "finetune"
DATA = Path(__file__).parents[4] / "shared" / "data"


def key(**changes: Any) -> dict[str, Any]:
    return {"study": "s", "scale": "x", "seed": 0} | changes


def talk(question: str, answer: str = "yes") -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def write(folder: Path, text: str, **files: list[Any]) -> Mixture:
    for name, records in files.items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "mix.toml").write_text(text, encoding="utf-8")
    return load_mixture(folder / "mix.toml")


TWO_PARTS = """
[[parts]]
source = "conversations"
path = "a.jsonl"
[[parts]]
source = "conversations"
path = "b.jsonl"
epochs = 3
"""


@pytest.fixture
def two(tmp_path: Path) -> Mixture:
    a, b = [talk(f"cat {i}") for i in range(40)], [talk(f"mat {i}") for i in range(15)]
    return write(tmp_path, TWO_PARTS, a=a, b=b)


def read(mixture: Mixture, folder: Path, chat: ChatFormat, **settings: Any) -> ChatData:
    changed: dict[str, Any] = {"max_tokens": 64} | settings
    return read_chat_data(mixture.parts, folder, chat, **changed)


def test_a_file_takes_its_name_and_the_defaults_of_nanochats_updates(two: Mixture):
    assert two.name == "mix"
    training = two.training
    assert (training.rate_factor, training.warmup, training.decay, training.final) == (0.8, 0.0, 0.5, 0.0)
    assert (training.momentum_initial, training.momentum, training.momentum_warmup_updates) == (0.85, 0.95, 300)
    assert (training.matrix_weight_decay, training.warm_start, two.buffer) == (0.0, True, 100)
    assert two.held_out_fraction == 0.02


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TWO_PARTS + "epoch = 2\n", "did you mean 'epochs'"),
        (TWO_PARTS.replace('"conversations"', '"conversation"', 1), "did you mean 'conversations'"),
        ('validation_fraction = 0.1\n[[validation]]\nsource = "mmlu"\npath = "x"\n' + TWO_PARTS, "not both"),
        ('[[parts]]\nsource = "spelling-bee"\npath = "words.txt"\n', "say how many"),
        ('[[parts]]\nsource = "spelling-bee"\npath = "w"\nrows = 3\nsplit = "dev"\n', "train or test"),
        ("[training]\nupdates = 3\n", "parts"),
        ("[training]\nwarmup = 1.5\n" + TWO_PARTS, "at most 1"),
        ('preset = "nanochat-2026-03"\n', "did you mean 'nanochat-2026-0"),
        ('name = "../x"\n' + TWO_PARTS, "letters, digits"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_what_would_be_right(tmp_path: Path, text: str, said: str):
    with pytest.raises(ExperimentFileError) as error:
        write(tmp_path, text)
    assert said in str(error.value)


def test_a_file_that_is_not_there_is_told_of_the_presets(tmp_path: Path):
    with pytest.raises(ExperimentFileError, match="nanochat-2026-04"):
        load_mixture(tmp_path / "no.toml")


def test_presets_hold_the_parts_of_both_dates_in_the_originals_order():
    april, july = (load_mixture(Path(name)) for name in PRESETS)
    assert [(p.source, p.epochs, p.rows) for p in april.parts] == [
        ("conversations", 1, None),
        ("conversations", 2, None),
        ("mmlu", 3, None),
        ("gsm8k", 4, None),
        ("simple-spelling", 1, 200_000),
        ("spelling-bee", 1, 80_000),
    ]
    assert [(p.source, p.epochs) for p in july.parts] == [("conversations", 1), ("mmlu", 3), ("gsm8k", 4)]
    assert [(p.source, p.rows) for p in july.validation] == [("conversations", None), ("mmlu", 5200), ("gsm8k", 420)]
    assert april.validation == july.validation
    assert (april.order, april.held_out_fraction) == ("nanochat", 0.0)
    assert april.digest != july.digest


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_every_example_is_a_mixture_of_its_own_name(file: Path):
    found = load_mixture(file)
    assert found.name == file.stem
    if file.stem in PRESETS:
        assert found == load_mixture(Path(file.stem))


def test_a_file_overrides_a_preset_key_by_key_and_its_parts_as_a_whole(tmp_path: Path, two: Mixture):
    del two
    text = 'preset = "nanochat-2026-07"\n' + TWO_PARTS + "[training]\ndecay = 0.25\n"
    found = write(tmp_path, text)
    assert [part.path.name for part in found.parts] == ["a.jsonl", "b.jsonl"]
    assert found.validation == ()
    assert (found.training.decay, found.training.rates_at_batch_tokens) == (0.25, 2**19)
    assert found.held_out_fraction == 0.02


def test_what_a_mixture_is_leaves_out_places_and_how_often_it_is_saved(tmp_path: Path, two: Mixture):
    moved = two.model_copy(update={"checkpoint_updates": 3})
    parts = tuple(part.model_copy(update={"path": Path("elsewhere") / part.path}) for part in two.parts)
    assert moved.model_copy(update={"parts": parts}).digest == two.digest
    assert two.model_copy(update={"buffer": 99}).digest != two.digest
    assert str(tmp_path) not in json.dumps(two.as_json())


def test_each_conversation_is_kept_once_with_its_tokens_and_mask(tmp_path: Path, two: Mixture, chat: ChatFormat):
    seen: list[Advance] = []
    data = read(two, tmp_path, chat, progress=seen.append)
    assert len(data) == 55
    for number in (0, 39, 40, 54):
        ids, mask = data.conversation(number)
        words = f"cat {number}" if number < 40 else f"mat {number - 40}"
        expected = chat.render(talk(words))
        np.testing.assert_array_equal(ids, expected.ids)
        np.testing.assert_array_equal(mask, expected.mask)
    assert data.part.tolist() == [0] * 40 + [1] * 15
    assert (seen[-1].done, seen[-1].total, seen[-1].tokens) == (55, 55, len(data.tokens))


def test_rows_that_cannot_be_learnt_from_are_left_out_and_counted(tmp_path: Path, chat: ChatFormat):
    rows = [talk("a"), talk("b" * 200), [{"role": "user", "content": "alone"}], [{"role": "wizard", "content": "x"}]]
    rows += [talk("c", "d" * 100)]
    mixture = write(tmp_path, '[[parts]]\nsource = "conversations"\npath = "a.jsonl"\nbad_rows = "skip"\n', a=rows)
    data = read(mixture, tmp_path, chat)
    (facts,) = data.facts
    assert (facts.rows, facts.malformed, facts.without_targets, facts.truncated) == (5, 1, 2, 1)
    assert len(data) == 2
    assert facts.truncated_tokens == len(chat.render(rows[4]).ids) - 64
    assert data.lengths.tolist() == [len(chat.render(rows[0]).ids), 64]
    dropped = read(mixture, tmp_path, chat, drop_too_long=True)
    assert (dropped.facts[0].dropped, dropped.facts[0].truncated, len(dropped)) == (2, 0, 1)
    strict = mixture.model_copy(update={"parts": (mixture.parts[0].model_copy(update={"bad_rows": "refuse"}),)})
    with pytest.raises(ParibusError, match=r"row 3 of conversations/a\.jsonl is no conversation"):
        read(strict, tmp_path, chat)


def test_data_that_is_not_all_there_is_refused_with_both_numbers(tmp_path: Path, two: Mixture, chat: ChatFormat):
    short = two.model_copy(update={"parts": (two.parts[0].model_copy(update={"rows_expected": 7473}),)})
    with pytest.raises(ParibusError, match="7,473 rows") as error:
        read(short, tmp_path, chat)
    assert "40 rows" in str(error.value)
    more = two.model_copy(update={"parts": (two.parts[0].model_copy(update={"rows": 41}),)})
    with pytest.raises(ParibusError, match="fewer rows than the mixture takes"):
        read(more, tmp_path, chat)


def test_the_same_conversation_is_held_out_in_every_part_that_has_it(tmp_path: Path, chat: ChatFormat):
    rows = [talk(f"dog {i}") for i in range(400)]
    mixture = write(tmp_path, TWO_PARTS, a=rows, b=rows[::-1])
    data = read(mixture, tmp_path, chat, held_out_fraction=0.2)
    held = {tuple(data.conversation(i)[0].tolist()) for i in np.flatnonzero(data.held_out)}
    kept = {tuple(data.conversation(i)[0].tolist()) for i in np.flatnonzero(~data.held_out)}
    assert not held & kept
    # Binomial of 400 at 0.2 has standard deviation 8; five of them.
    assert abs(len(held) - 80) < 40
    assert data.facts[0].held_out == data.facts[1].held_out == len(held)


def test_an_order_has_each_conversation_as_often_as_its_part_says(tmp_path: Path, two: Mixture, chat: ChatFormat):
    data = read(two, tmp_path, chat)
    order = mixed_order(data, two, **key())
    assert np.bincount(order).tolist() == [1] * 40 + [3] * 15
    assert (order == mixed_order(data, two, **key())).all()
    for other in (key(study="other"), key(scale="other"), key(seed=7)):
        assert (order != mixed_order(data, two, **other)).any()
    rates = two.training.model_copy(update={"rate_factor": 0.5})
    other = two.model_copy(update={"training": rates, "name": "other"})
    assert (order == mixed_order(data, other, **key())).all(), "two ways to fine-tune are paired"
    skipping = tuple(part.model_copy(update={"bad_rows": "skip"}) for part in two.parts)
    assert (order != mixed_order(data, two.model_copy(update={"parts": skipping}), **key())).any()


def test_what_is_held_out_is_never_trained_on_and_moves_nothing_else(tmp_path: Path, two: Mixture, chat: ChatFormat):
    whole = mixed_order(read(two, tmp_path, chat), two, **key())
    data = read(two, tmp_path, chat, held_out_fraction=0.3)
    order = mixed_order(data, two, **key())
    assert data.held_out.any()
    assert order.tolist() == [number for number in whole.tolist() if not data.held_out[number]]


def test_nanochats_order_is_its_two_shuffles_by_seed_42(tmp_path: Path, chat: ChatFormat):
    """Written down from its task classes: Parquet sets are shuffled as `datasets` does, files of lines are not; then
    pairs of (task, row) are shuffled."""
    pq.write_table(pa.table({"messages": [talk(f"sat {i}") for i in range(9)]}), tmp_path / "p.parquet")
    text = 'order = "nanochat"\n[[parts]]\nsource = "conversations"\npath = "p.parquet"\nrows = 7\n' + TWO_PARTS
    lines = {"a": [talk(f"cat {i}") for i in range(5)], "b": [talk(f"mat {i}") for i in range(4)]}
    mixture = write(tmp_path, text, **lines)
    tables = [[f"sat {i}" for i in np.random.default_rng(42).permutation(9)][:7], [f"cat {i}" for i in range(5)]]
    tables += [[f"mat {i}" for i in range(4)]] * 3
    pairs = [(table, row) for table, rows in enumerate(tables) for row in range(len(rows))]
    random.Random(42).shuffle(pairs)
    expected = [chat.render(talk(tables[table][row])).ids.tolist() for table, row in pairs]
    data = read(mixture, tmp_path, chat, by_nanochat=True)
    order = mixed_order(data, mixture, **key())
    assert [data.conversation(number)[0].tolist() for number in order] == expected
    assert (order == mixed_order(data, mixture, **key(seed=5))).all(), "whatever the seed"


def test_a_sample_is_the_same_whatever_the_seed(tmp_path: Path, two: Mixture, chat: ChatFormat):
    part = two.parts[0].model_copy(update={"rows": 10})
    mixture = two.model_copy(update={"parts": (part,)})
    data = read(mixture, tmp_path, chat)
    assert len(data) == 10
    assert sorted(mixed_order(data, mixture, **key())) == list(range(10))
    first = [tuple(data.conversation(i)[0].tolist()) for i in range(10)]
    again = read(mixture, tmp_path, chat)
    assert first == [tuple(again.conversation(i)[0].tolist()) for i in range(10)]


@pytest.mark.shared_data
def test_an_example_mixture_reads_the_real_sets(chat: ChatFormat):
    if not (DATA / "chat_sft").exists():
        pytest.skip("real data is absent: expected ../shared/data/chat_sft beside the repository")
    mixture = load_mixture(EXAMPLES / "small-talk.toml")
    parts = tuple(part.model_copy(update={"rows": 50}) for part in mixture.parts)
    data = read(mixture.model_copy(update={"parts": parts}), DATA, chat, max_tokens=4096)
    assert [facts.rows for facts in data.facts] == [1000, 1000, 7473, 285]
    left_out = [(f.chosen, f.malformed, f.without_targets) for f in data.facts]
    assert left_out == [(50, 0, 0)] * 4
    assert np.bincount(data.part).tolist() == [50] * 4
