import weakref
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from paribus.kernels.exclude_self import exclude_self
from paribus.mechanisms.contract import Diagnostic
from paribus.mechanisms.exclusion import attention_mass as attention_mass_module
from paribus.mechanisms.exclusion.attention_mass import attention_masses, by_head
from paribus.mechanisms.exclusion.diagnostics import mean_value, pair_sums
from paribus.mechanisms.exclusive import DIAGNOSTICS
from paribus.model.lawbench import LawBench
from paribus.seeds import unit_noise

BY_NAME = {diagnostic.name: diagnostic for diagnostic in DIAGNOSTICS}
U32, U64 = 2.0**-24, 2.0**-53
BATCH, TIME, KV_HEADS, GROUP, WIDTH = 2, 7, 2, 3, 6


def noise(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(unit_noise(shape, "tests", "diagnostics", name))


@pytest.fixture(scope="module")
def tapped() -> dict[str, Tensor]:
    """Two sites of one layer: six query heads on two values, values with something in common."""
    y, v = noise("y", BATCH, TIME, KV_HEADS, GROUP, WIDTH), noise("v", BATCH, TIME, KV_HEADS, 1, WIDTH) + 0.7
    return {
        "attention output/y": y,
        "attention output/v": v,
        "attention output/z": 0.5 * y,
        "attention/q": 2 * noise("q", BATCH, TIME, KV_HEADS * GROUP, WIDTH),
        "attention/k": noise("k", BATCH, TIME, KV_HEADS, WIDTH),
    }


@pytest.fixture(scope="module")
def weight() -> Tensor:
    """Row 0 counts all but its first position; row 1 ends in padding."""
    return torch.tensor([[0.0] + [1.0] * 6, [0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]])


def observed(name: str, tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    own = {k: t for k, t in tapped.items() if k.rpartition("/")[0] in BY_NAME[name].sites}
    return BY_NAME[name].observe(own, weight)


def means(diagnostic: Diagnostic, values: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
    """What the caller of a diagnostic does: mean over counted positions, then `derive`."""
    return diagnostic.derive({g: float((t.double() * weight).sum() / weight.sum()) for g, t in values.items()})


def cos(a: Tensor, b: Tensor) -> float:
    return float(a.double() @ b.double() / (a.double().norm() * b.double().norm()))


def assert_per_head(
    found: Mapping[str, Tensor], expected: Callable[[int, int, int, int], float], tolerance: float
) -> None:
    """`expected(row, time, kv_head, member)` for every query head, and their mean."""
    heads = [(kv, member) for kv in range(KV_HEADS) for member in range(GROUP)]
    assert set(found) == {"mean over heads", *(f"head:{n}" for n in range(len(heads)))}
    for row in range(BATCH):
        for time in range(TIME):
            numbers = [expected(row, time, kv, member) for kv, member in heads]
            for n, number in enumerate(numbers):
                assert abs(float(found[f"head:{n}"][row, time]) - number) <= tolerance
            assert abs(float(found["mean over heads"][row, time]) - sum(numbers) / len(numbers)) <= tolerance


def test_alignment_is_the_cosine_of_each_query_head_with_its_groups_value(tapped: dict[str, Tensor], weight: Tensor):
    y, v = tapped["attention output/y"], tapped["attention output/v"]
    found = observed("cos_y_v", tapped, weight)
    assert_per_head(found, lambda b, t, kv, m: cos(y[b, t, kv, m], v[b, t, kv, 0]), 32 * U64)


def test_the_own_share_is_what_a_full_removal_takes_away_and_is_read_where_nothing_is_removed(
    tapped: dict[str, Tensor], weight: Tensor
):
    y, v = tapped["attention output/y"], tapped["attention output/v"]
    untouched = {**tapped, "attention output/z": y}
    assert observed("share_removed", untouched, weight) == {}
    found = observed("own_share", untouched, weight)
    assert_per_head(found, lambda b, t, kv, m: cos(y[b, t, kv, m], v[b, t, kv, 0]) ** 2, 64 * U64)
    removed = observed("share_removed", {**tapped, "attention output/z": exclude_self(y, v, 1.0)}, weight)
    # z is rounded to float32 at the size of y, of which at least the perpendicular part is left.
    assert all(torch.allclose(found[head], removed[head], rtol=0.0, atol=64 * U32) for head in found)


def test_centred_alignment_takes_the_mean_of_counted_values_from_both(tapped: dict[str, Tensor], weight: Tensor):
    y, v = tapped["attention output/y"].double(), tapped["attention output/v"].double()

    def mean(row: int, kv: int) -> Tensor:
        counted = [t for t in range(TIME) if weight[row, t] > 0]
        return sum((v[row, t, kv, 0] for t in counted), torch.zeros(WIDTH)) / len(counted)

    found = observed("cos_y_v_centred", tapped, weight)
    # Vectors of size one, less a mean with some ten roundings, over what is left of them: a tenth at least.
    assert_per_head(
        found, lambda b, t, kv, m: cos(y[b, t, kv, m] - mean(b, kv), v[b, t, kv, 0] - mean(b, kv)), 1e4 * U64
    )


def test_centring_removes_an_alignment_that_is_common_to_all_tokens():
    """Attention that mixes the others evenly: aligned through what values share, not through the own value."""
    v = 0.1 * noise("values", 1, 64, 1, 1, 16) + 1.0
    y = v.mean(1, keepdim=True).expand_as(v) + 0.1 * noise("others", 1, 64, 1, 1, 16)
    weight = torch.ones(1, 64)
    site = {"attention output/y": y, "attention output/v": v, "attention output/z": y}
    raw, centred = (means(BY_NAME[n], observed(n, site, weight), weight) for n in ("cos_y_v", "cos_y_v_centred"))
    assert raw["mean over heads"] > 0.98
    assert abs(centred["mean over heads"]) < 0.1  # two independent directions in 16 features, 64 times: sd 1/32


def test_a_row_without_counted_positions_has_a_mean_of_zero_and_no_nan(tapped: dict[str, Tensor]):
    none = torch.zeros(BATCH, TIME)
    assert not mean_value(tapped["attention output/v"], none).any()
    assert all(bool(t.isfinite().all()) for t in observed("cos_y_v_centred", tapped, none).values())
    assert means(BY_NAME["cos_v_v"], {"pairs": torch.zeros(1, 2)}, torch.ones(1, 2)) == {}


def naive_weights(q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
    """[batch kv_head group query key] by loops, in float64."""
    weights = torch.zeros(BATCH, KV_HEADS, GROUP, TIME, TIME, dtype=torch.float64)
    for row in range(BATCH):
        for head in range(KV_HEADS * GROUP):
            for i in range(TIME):
                keys = [j for j in range(i + 1) if allowed is None or allowed[row, i, j]]
                scores = torch.stack([q[row, i, head].double() @ k[row, j, head // GROUP].double() for j in keys])
                weights[row, head // GROUP, head % GROUP, i, keys] = torch.softmax(scores / WIDTH**0.5, 0)
    return weights


DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0] * 7])
SAME_DOCUMENT = (DOCUMENTS[:, :, None] == DOCUMENTS[:, None]) & torch.ones(TIME, TIME, dtype=torch.bool).tril()


@pytest.mark.parametrize("allowed", [None, SAME_DOCUMENT], ids=["causal", "within documents"])
@pytest.mark.parametrize("name", ["diagonal_mass", "first_token_share"])
@pytest.mark.parametrize("block", [1, 3, 7, 128])
def test_attention_mass_is_that_of_the_loop_over_pairs_however_queries_are_blocked(
    tapped: dict[str, Tensor],
    weight: Tensor,
    name: str,
    allowed: Tensor | None,
    block: int,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(attention_mass_module, "BLOCK", block)
    weights = naive_weights(tapped["attention/q"], tapped["attention/k"], allowed)
    starts = torch.zeros_like(DOCUMENTS) if allowed is None else torch.tensor([[0, 0, 0, 3, 3, 3, 3], [0] * 7])
    site = {k: t.clone() for k, t in tapped.items()}  # tensors that no other block size has been asked about
    site = site if allowed is None else {**site, "attention/allowed": allowed}

    def expected(row: int, time: int, kv: int, member: int) -> float:
        key = time if name == "diagonal_mass" else int(starts[row, time])
        return float(weights[row, kv, member, time, key])

    # exp of a difference of scores up to 20, each with some 2 * head_width float32 roundings.
    assert_per_head(observed(name, site, weight), expected, 20 * (2 * WIDTH + 8) * U32)


def test_attention_mass_is_that_of_the_attention_that_ran(bench: LawBench):
    """Rebuild y from the recomputed weights of a two-token row: y_1 = a_11 v_1 + a_10 v_0."""
    seen: dict[str, Tensor] = {}

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        if layer == 2:
            seen.update({f"{site}/{name}": tensor for name, tensor in tensors.items()})

    with torch.no_grad():
        bench.logits(bench.model({}), tap=tap)
    own, first = (mass[..., None] for mass in attention_masses(seen["attention/q"], seen["attention/k"], None))
    y, v = seen["attention output/y"], seen["attention output/v"]
    rebuilt = own[:, 1] * v[:, 1] + first[:, 1] * v[:, 0]
    # Weights recomputed in float32 from scores up to a few.
    assert ((rebuilt - y[:, 1]).abs() <= 64 * U32 * v.abs().amax()).all()
    assert torch.equal(own[:, 0], torch.ones_like(own[:, 0]))


def test_both_masses_of_a_layer_form_its_weights_once_and_other_tensors_form_them_anew(
    tapped: dict[str, Tensor], weight: Tensor, monkeypatch: pytest.MonkeyPatch
):
    formed: list[Tensor] = []

    def counting(q: Tensor, k: Tensor, allowed: Tensor | None) -> object:
        formed.append(q)
        return attention_masses(q, k, allowed)

    monkeypatch.setattr(attention_mass_module, "attention_masses", counting)
    masses = ("diagonal_mass", "first_token_share")
    site = {k: t.clone() for k, t in tapped.items()}
    alone = [observed(name, {k: t.clone() for k, t in site.items()}, weight)["head:0"] for name in masses]
    formed.clear()
    together = [observed(name, site, weight)["head:0"] for name in masses]
    assert len(formed) == 1
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    for change in ({"attention/q": site["attention/q"] + 1}, {"attention/k": -site["attention/k"]}):
        changed = observed("diagonal_mass", {**site, **change}, weight)["head:0"]
        q, k = ({**site, **change}[f"attention/{name}"] for name in "qk")
        expected = attention_masses(q, k, None).itself[..., 0, 0]
        assert torch.equal(changed, expected)
    within = observed("first_token_share", {**site, "attention/allowed": SAME_DOCUMENT}, weight)["head:0"]
    assert not torch.equal(within, together[1])
    assert torch.equal(observed("first_token_share", site, weight)["head:0"], together[1])


def test_the_masses_formed_last_keep_no_tapped_tensor_alive(tapped: dict[str, Tensor], weight: Tensor):
    site = {k: t.clone() for k, t in tapped.items()}
    observed("diagonal_mass", site, weight)
    seen = weakref.ref(site["attention/q"])
    del site
    assert seen() is None


def test_sentences_say_which_positions_and_which_value_they_are_about():
    assert "first position of every row" in BY_NAME["cos_y_v"].sentence
    assert "first token of each document" not in BY_NAME["cos_y_v"].sentence
    assert "aggregated" in BY_NAME["own_component_removed"].sentence


def test_the_own_component_removed_is_no_strength_where_another_value_is_excluded(
    tapped: dict[str, Tensor], weight: Tensor
):
    y, v = tapped["attention output/y"].double(), tapped["attention output/v"].double()
    z = exclude_self(y, noise("projected", *v.shape).double(), 1.0)
    removing = {"attention output/y": y, "attention output/v": v, "attention output/z": z}
    found = means(BY_NAME["own_component_removed"], observed("own_component_removed", removing, weight), weight)
    assert abs(found["mean over heads"] - 1.0) > 0.1


def test_mean_pairwise_cosine_is_that_of_the_loop_over_pairs_of_counted_tokens(
    tapped: dict[str, Tensor], weight: Tensor
):
    v = tapped["attention output/v"]
    found = means(BY_NAME["cos_v_v"], observed("cos_v_v", tapped, weight), weight)
    by_kv_head = []
    for kv in range(KV_HEADS):
        pairs = [
            cos(v[row, i, kv, 0], v[row, j, kv, 0])
            for row in range(BATCH)
            for i in range(TIME)
            for j in range(i)
            if weight[row, i] > 0 and weight[row, j] > 0
        ]
        by_kv_head.append(sum(pairs) / len(pairs))
        assert found[f"kv head:{kv}"] == pytest.approx(by_kv_head[-1], abs=1e3 * U64)
    assert found["mean over heads"] == pytest.approx(sum(by_kv_head) / KV_HEADS, abs=1e3 * U64)
    assert set(found) == {"mean over heads", "kv head:0", "kv head:1"}


def test_a_zero_value_is_a_pair_of_cosine_zero(weight: Tensor):
    v = noise("v", BATCH, TIME, KV_HEADS, 1, WIDTH)
    v[:, 2] = 0.0
    sums, _ = pair_sums(v, weight)
    assert not sums[:, 2].any()
    assert sums.isfinite().all()


@pytest.mark.parametrize("name", ["share_removed", "norm_kept", "own_component_removed", "cos_z_v"])
def test_an_arm_whose_map_changes_nothing_makes_no_claim_about_z(tapped: dict[str, Tensor], weight: Tensor, name: str):
    unchanged = {**tapped, "attention output/z": tapped["attention output/y"]}
    assert observed(name, unchanged, weight) == {}
    assert observed(name, tapped, weight) != {}


def test_the_share_removed_is_of_squares_and_the_norm_kept_is_not(tapped: dict[str, Tensor], weight: Tensor):
    """z is half of y: a quarter of the squared norm is removed, half of the norm is kept."""
    for name, expected in (("share_removed", 0.25), ("norm_kept", 0.5)):
        assert_per_head(observed(name, tapped, weight), lambda *_, e=expected: e, 16 * U64)
        nothing = {k: 0 * t for k, t in tapped.items()}
        assert all(bool(t.isfinite().all()) for t in observed(name, nothing, weight).values())


def test_the_own_component_removed_is_the_strength_of_each_head(tapped: dict[str, Tensor], weight: Tensor):
    y, v = tapped["attention output/y"].double(), tapped["attention output/v"].double()
    strengths = torch.tensor([[-0.2, 0.0, 0.3], [0.5, 1.0, 0.9]], dtype=torch.float64)[..., None]
    z = exclude_self(y, v, strengths)
    removing = {"attention output/y": y, "attention output/v": v, "attention output/z": z}
    found = means(BY_NAME["own_component_removed"], observed("own_component_removed", removing, weight), weight)
    for head, strength in enumerate(strengths.flatten().tolist()):
        assert found[f"head:{head}"] == pytest.approx(strength, abs=1e3 * U64)
    own = (y * v / v.norm(dim=-1, keepdim=True)).sum(-1)[weight > 0]  # the mean weighs heads by what there is to remove
    expected = (strengths.squeeze(-1) * own.square()).sum() / own.square().sum()
    assert found["mean over heads"] == pytest.approx(float(expected), abs=1e3 * U64)
    nothing = {**removing, "attention output/y": 0 * y}
    assert means(BY_NAME["own_component_removed"], observed("own_component_removed", nothing, weight), weight) == {}


def test_the_residual_alignment_is_an_absolute_cosine(tapped: dict[str, Tensor], weight: Tensor):
    z, v = tapped["attention output/z"], tapped["attention output/v"]
    found = observed("cos_z_v", tapped, weight)
    assert_per_head(found, lambda b, t, kv, m: abs(cos(z[b, t, kv, m], v[b, t, kv, 0])), 32 * U64)


def test_only_the_residual_alignment_is_marked_a_tautology():
    assert {d.name for d in DIAGNOSTICS if d.correctness_only} == {"cos_z_v"}


def test_heads_are_numbered_as_the_query_projection_lays_them_out():
    per_head = torch.arange(6.0).reshape(1, 1, 2, 3)
    found = by_head(per_head)
    assert [float(found[f"head:{n}"]) for n in range(6)] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert float(found["mean over heads"]) == 2.5
