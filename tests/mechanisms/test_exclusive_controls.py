from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from paribus.errors import ExperimentFileError
from paribus.kernels.exclude_self import exclude_self
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Geometry, Seam, Values
from paribus.mechanisms.exclusion.laws import map_calls, norm
from paribus.mechanisms.exclusion.prefix import document_mean, earlier_sum, earlier_value, scan_steps
from paribus.mechanisms.exclusive_controls import RandomDirection, Shrink
from paribus.model.lawbench import LawBench
from paribus.roles import Role, declarations, initialise
from paribus.seeds import unit_noise

CONTROLS = ("xsa-random-direction", "xsa-wrong-token", "xsa-common-mode", "xsa-shrink")
HEADS, WIDTH = 3, 8
U32, U64 = 2.0**-24, 2.0**-53
DOCUMENT = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3], [0] * 16])


def noise(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(unit_noise(shape, "tests", "controls", name))


@pytest.fixture(scope="module")
def y() -> Tensor:
    return noise("y", 2, 16, HEADS, 1, WIDTH)


@pytest.fixture(scope="module")
def v() -> Tensor:
    return noise("v", 2, 16, HEADS, 1, WIDTH)


def built(geometry: Geometry, name: str, **fields: Any) -> Any:
    output_map = resolve(Seam.OUTPUT_MAP, {"name": name, **fields}, "here").build(geometry, 0)
    initialise(output_map, "tests", name)
    return output_map


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("strength", [-0.1, 1.1, "learned", True])
def test_a_strength_that_is_no_share_is_refused(name: str, strength: object):
    with pytest.raises(ExperimentFileError, match=r"here\.strength"):
        resolve(Seam.OUTPUT_MAP, {"name": name, "strength": strength}, "here")


@pytest.mark.parametrize("offset", [0, -1, 1.0])
def test_the_wrong_token_is_an_earlier_one(offset: object):
    with pytest.raises(ExperimentFileError, match=r"here\.offset"):
        resolve(Seam.OUTPUT_MAP, {"name": "xsa-wrong-token", "offset": offset}, "here")


def test_an_offset_that_reaches_out_of_every_row_is_refused_with_the_valid_range(geometry: Geometry):
    config = resolve(Seam.OUTPUT_MAP, {"name": "xsa-wrong-token", "offset": 16}, "here")
    assert config.validate_for(geometry) == "offset = 16 reaches out of every row: valid are 1 to 15"
    config = resolve(Seam.OUTPUT_MAP, {"name": "xsa-wrong-token", "offset": 15, "layers": [9]}, "here")
    assert "valid layer indices are 0 to 3" in str(config.validate_for(geometry))


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_results_have_the_dtype_of_attentions_output_and_are_computed_in_float32(
    name: str, dtype: torch.dtype, geometry: Geometry, y: Tensor, v: Tensor
):
    output_map = built(geometry, name, strength=0.7)
    own, value = y.to(dtype), v.to(dtype)
    z = output_map(own, Values(value, value), DOCUMENT)
    assert z.dtype == dtype
    wide = torch.promote_types(dtype, torch.float32)
    expected = output_map(own.to(wide), Values(value.to(wide), value.to(wide)), DOCUMENT).to(dtype)
    assert torch.equal(z, expected)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("of_y", [1e-37, 1e-18, 1.0, 1e18, 1e36])
@pytest.mark.parametrize("of_v", [0.0, 1e-37, 1e-18, 1.0, 1e18, 1e36])
def test_bfloat16_values_and_outputs_of_any_size_give_finite_results(
    name: str, of_y: float, of_v: float, geometry: Geometry, y: Tensor, v: Tensor
):
    own, value = ((size * t).bfloat16().requires_grad_() for size, t in ((of_y, y), (of_v, v)))
    z = built(geometry, name)(own, Values(value, value), DOCUMENT)
    gradients = torch.autograd.grad(z, (own, value), torch.ones_like(z))
    assert all(t.isfinite().all() for t in (z, *gradients))
    if of_v == 0.0:
        assert torch.equal(z, own)
        assert torch.equal(gradients[0], torch.ones_like(z))
        assert not gradients[1].any()


def test_a_random_direction_is_fixed_drawn_by_name_and_normalised_at_use(bench: LawBench):
    arm = {"output_map": {"name": "xsa-random-direction"}}
    model, again = bench.model(arm), bench.model(arm)
    names = [name for name, d in declarations(model).items() if d.role is Role.FIXED]
    assert names == [f"layers.{n}.attention.output_map.direction" for n in range(4)]
    directions = [model.get_parameter(name) for name in names]
    assert all(d.shape == (2, 1, 8) and not d.requires_grad for d in directions)
    assert all(torch.equal(d, again.get_parameter(name)) for d, name in zip(directions, names, strict=True))
    assert not torch.equal(directions[0], directions[1])
    before = bench.logits(model).detach()
    for direction in directions:
        direction.data.mul_(4.0)
    assert torch.equal(bench.logits(model), before)


def test_the_gradient_of_a_random_removal_flows_through_its_size_and_not_through_its_direction(
    geometry: Geometry, y: Tensor, v: Tensor
):
    own, value = y.double().requires_grad_(), v.double().requires_grad_()
    output_map = built(geometry, "xsa-random-direction", strength=0.7).double()
    g = noise("g", *y.shape).double()
    found = torch.autograd.grad(output_map(own, Values(value, value), DOCUMENT), (own, value), g)
    r = output_map.get_parameter("direction")
    r = r / norm(r)
    u = value / value.norm(dim=-1, keepdim=True)
    c = (own * u).sum(-1, keepdim=True)
    sign = (own * r).sum(-1, keepdim=True).sign().detach()
    written_out = own - 0.7 * c.abs() * sign * r
    expected = torch.autograd.grad(written_out, (own, value), g)
    for a, b in zip(found, expected, strict=True):
        # Sums of 8 products a few deep, on numbers up to |g| |y| / |v|.
        assert ((a - b).abs() <= 1e3 * U64 * (norm(g) * (1 + norm(y) / norm(v)))).all()
    assert found[1].any()


def test_the_wrong_token_stands_offset_positions_earlier_in_the_same_document(y: Tensor, v: Tensor, geometry: Geometry):
    for offset in (1, 3, 15):
        z = built(geometry, "xsa-wrong-token", offset=offset, strength=0.7)(y, Values(v, v), DOCUMENT)
        for row in range(2):
            for time in range(16):
                there = time - offset
                here = (slice(row, row + 1), slice(time, time + 1))
                if there < 0 or DOCUMENT[row, there] != DOCUMENT[row, time]:
                    expected = y[here]
                else:
                    expected = exclude_self(y[here], v[row : row + 1, there : there + 1], 0.7)
                assert torch.equal(z[here], expected)


@pytest.mark.parametrize("time", [1, 2, 3, 16])
def test_the_running_mean_is_that_of_the_documents_values_whatever_the_length(v: Tensor, time: int):
    v, document = v[:, :time], DOCUMENT[:, :time]
    means = document_mean(v, document)
    for row in range(2):
        for t in range(time):
            own = [s for s in range(t + 1) if document[row, s] == document[row, t]]
            # log2(16) steps, each of two products by rounded weights and a sum.
            assert ((means[row, t] - v[row, own].double().mean(0)).abs() <= 16 * U32 * v[row, own].abs().amax(0)).all()


def test_a_long_documents_mean_stays_accurate_and_another_documents_values_do_not_enter_it():
    v = 1.0 + noise("long", 1, 3000, 1, 1, 2)
    document = (torch.arange(3000) >= 1000).long()[None]
    means = document_mean(v, document)
    exact = v[:, 1000:].double().cumsum(1) / torch.arange(1, 2001)[None, :, None, None, None]
    # 12 steps, each of two products by rounded weights and a sum of numbers of one sign, mostly.
    assert ((means[:, 1000:] - exact).abs() <= 12 * 4 * U32 * 4).all()
    other = v.clone()
    other[:, :1000] = 1e6
    assert torch.equal(document_mean(other, document)[:, 1000:], means[:, 1000:])
    assert scan_steps(3000) == 12


def test_a_mean_is_no_larger_than_its_values_whatever_their_size_and_number():
    """Sums of 256 values of 3e38 would leave float32."""
    v = torch.full((1, 256, 1, 1, 2), 3e38)
    means = document_mean(v, torch.zeros(1, 256, dtype=torch.long))
    # Eight steps, each of two products by rounded weights and a sum.
    assert ((means / 3e38 - 1).abs() <= 8 * 4 * U32).all()


@pytest.mark.parametrize("time", [1, 2, 7, 300])
def test_the_sum_of_earlier_positions_is_that_of_the_running_sum_without_the_own(time: int):
    t = noise("sums", 2, time, 3).double()
    assert ((earlier_sum(t) - (t.cumsum(1) - t)).abs() <= 2 * time * U64 * t.abs().sum(1, keepdim=True)).all()
    assert not earlier_sum(t)[:, 0].any()


def test_an_earlier_value_carries_its_gradient_to_the_token_that_has_it(v: Tensor):
    value = v.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(earlier_value(value, DOCUMENT, 2)[0, 10].sum(), value)
    assert gradient[0, 8].eq(1.0).all()
    assert gradient.sum() == gradient[0, 8].sum()


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_shrinking_scales_by_the_root_of_one_less_the_squared_cosine(y: Tensor, v: Tensor, strength: float):
    z = Shrink(strength, through_factor=True)(y.double(), Values(v.double(), v.double()), DOCUMENT)
    cosine = (y.double() * v.double()).sum(-1, keepdim=True) / (norm(y) * norm(v))
    factor = (1 - strength * (2 - strength) * cosine.square()).sqrt()
    # The root of a difference of numbers up to 1, at factors of a tenth and more.
    assert ((z - factor * y).abs() <= 1e3 * U64 * norm(y)).all()


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_the_gradient_of_shrinking_is_through_the_factor_or_of_a_constant_as_chosen(
    y: Tensor, v: Tensor, strength: float
):
    own, value = y.double().requires_grad_(), v.double().requires_grad_()
    g = noise("g", *y.shape).double()
    cosine = (own * value).sum(-1, keepdim=True) / (own.norm(dim=-1, keepdim=True) * value.norm(dim=-1, keepdim=True))
    factor = (1 - strength * (2 - strength) * cosine.square()).sqrt()
    through = Shrink(strength, through_factor=True)(own, Values(value, value), DOCUMENT)
    found = torch.autograd.grad(through, (own, value), g)
    expected = torch.autograd.grad(own * factor, (own, value), g, retain_graph=True)
    for a, b in zip(found, expected, strict=True):
        # Derivatives of a root at factors of a tenth and more.
        assert ((a - b).abs() <= 1e5 * U64 * (norm(g) * (1 + norm(y) / norm(v)))).all()
    constant = Shrink(strength, through_factor=False)(own, Values(value, value), DOCUMENT)
    of_y, of_v = torch.autograd.grad(constant, (own, value), g, allow_unused=True)
    assert ((of_y - factor.detach() * g).abs() <= 1e3 * U64 * norm(g)).all()
    assert of_v is None or not of_v.any()


def test_where_nothing_would_be_left_shrinking_gives_zero_and_no_gradient_of_noise(v: Tensor):
    """A document's first token: y = v. The remainder's direction is rounding noise and must not become a gradient."""
    own, value = v.clone().requires_grad_(), v.clone().requires_grad_()
    z = Shrink(1.0, through_factor=True)(own, Values(value, value), DOCUMENT)
    assert (z.abs() <= 2 * (2 * WIDTH + 4) * U32 * norm(v)).all()
    of_y, of_v = torch.autograd.grad(z, (own, value), torch.ones_like(z))
    assert (of_y.abs() <= 2 * (2 * WIDTH + 4) * U32).all()
    assert not of_v.any()


def test_shrinking_passes_rows_without_a_value_as_exclusion_does_also_where_there_is_no_output(v: Tensor):
    own, value = torch.zeros_like(v).requires_grad_(), v.clone()
    value[:, 3:7] = 0.0
    value.requires_grad_()
    g = noise("g", *v.shape)
    found = torch.autograd.grad(
        Shrink(1.0, through_factor=True)(own, Values(value, value), DOCUMENT), (own, value), g, allow_unused=True
    )
    expected = torch.autograd.grad(exclude_self(own, value, 1.0), (own, value), g)
    assert torch.equal(found[0][:, 3:7], g[:, 3:7])
    assert torch.equal(found[0][:, 3:7], expected[0][:, 3:7])
    assert not found[1].any()
    assert found[0].isfinite().all()


@pytest.mark.parametrize(("of_y", "of_v"), [(1e37, 1e37), (1e37, 1e33), (1e-37, 1e-37), (1.0, 1e37)])
def test_shrinking_and_its_gradient_do_not_depend_on_sizes(of_y: float, of_v: float, y: Tensor, v: Tensor):
    """Rows of 64 features of one sign, at sizes whose squares and sums leave float32: the same factor, the gradient of
    y as at size 1, that of v by the ratio of both sizes."""

    def of(size_y: float, size_v: float) -> tuple[Tensor, Tensor, Tensor]:
        own, value = ((size * t.abs().repeat(1, 1, 1, 1, 8)).requires_grad_() for size, t in ((size_y, y), (size_v, v)))
        z = Shrink(0.7, through_factor=True)(own, Values(value, value), DOCUMENT)
        by_y, by_v = torch.autograd.grad(z, (own, value), torch.ones_like(z))
        return z.detach(), by_y, by_v

    z, by_y, by_v = of(of_y, of_v)
    z_at_one, by_y_at_one, by_v_at_one = of(1.0, 1.0)
    # Float32 sums of 64 products a few deep, on numbers up to 64 times those compared; values of decimal sizes.
    for a, b in ((z / of_y, z_at_one), (by_y, by_y_at_one), (by_v / (of_y / of_v), by_v_at_one)):
        assert ((a - b).abs() <= 1e-4 * b.abs().amax()).all()


def test_a_random_direction_often_makes_the_output_longer_and_never_moves_it_farther_than_exclusion(noise_64: Any):
    y, v, output_map = noise_64
    z = output_map(y, Values(v, v), torch.zeros(y.shape[:2], dtype=torch.long))
    moved, by_exclusion = norm(y - z), norm(y - exclude_self(y, v, 1.0))
    assert ((moved - by_exclusion).abs() <= 64 * U32 * norm(y)).all()
    # cos(y, v) of about 0.38: a standard normal is below 1.52 for 87 % of tokens; 3,000 of them, sd 0.6 %.
    assert float((norm(z) > norm(y)).double().mean()) == pytest.approx(0.87, abs=0.03)
    sentence = " ".join(str(RandomDirection.__doc__).split())
    assert "usually goes past zero" in sentence


@pytest.fixture
def noise_64(geometry: Geometry) -> tuple[Tensor, Tensor, Any]:
    """Outputs of 64 features with a cosine of 0.38 to their values, and a random direction."""
    v = noise("v64", 1, 1000, 3, 1, 64)
    across = noise("across64", *v.shape)
    u = v / v.norm(dim=-1, keepdim=True)
    across = across - (across * u).sum(-1, keepdim=True) * u
    across = across / across.norm(dim=-1, keepdim=True)
    wide = replace(geometry, head_width=64, width=192)
    return 0.38 * u + (1 - 0.38**2) ** 0.5 * across, v, built(wide, "xsa-random-direction")


def test_the_norm_removed_by_a_control_is_known_from_the_diagnostic_that_reads_every_arm(bench: LawBench):
    """Random direction: XSA's share exactly. The projections on another direction: another share."""
    shares = {}
    for name in ("xsa", *CONTROLS):
        (first, *_) = map_calls(bench, bench.model({"output_map": {"name": name}}))
        shares[name] = float(((norm(first.y - first.z) / norm(first.y)).square())[:, 1:].mean())
    # Layer 0 has the same y in every arm; shares are means of float32 quotients.
    assert shares["xsa-random-direction"] == pytest.approx(shares["xsa"], rel=64 * U32)
    assert abs(shares["xsa-wrong-token"] - shares["xsa"]) > 0.01
    assert abs(shares["xsa-common-mode"] - shares["xsa"]) > 0.01
