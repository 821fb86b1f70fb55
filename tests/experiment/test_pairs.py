from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.errors import PairCheckError
from paribus.experiment import loading
from paribus.experiment.pairs import check_pair, check_pairs
from paribus.experiment.plan import resolve_arms
from paribus.study import open_study

KNOB = '''
"""A mechanism that changes nothing, with a parameter whose every declared property can be chosen."""

from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.roles import DeclaredModule, Init, Role


class Knob(DeclaredModule):
    def __init__(self, config):
        super().__init__()
        for name in config.names:
            self.declare(name, config.shape, Role(config.role), Init(config.constant, config.std))

    def forward(self, y, values, document):
        return y


class KnobConfig(MechanismConfig):
    name = "knob"
    seam = Seam.OUTPUT_MAP

    names: tuple[str, ...] = ("a",)
    shape: tuple[int, ...] = (4, 4)
    role: str = "gain"
    constant: float = 0.0
    std: float = 0.0
    model_config = MechanismConfig.model_config | {"strict": False}

    def build(self, geometry, layer):
        return Knob(self)
'''


@pytest.fixture
def found(resolve, tiny: str) -> Callable[..., str]:
    """What the pair check of a contrast says about the small experiment with each first occurrence replaced."""

    def check(contrast: str, *changes: tuple[str, str]) -> str:
        text = tiny
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        experiment, arms = resolve(text)
        declared = experiment.contrasts[contrast]
        try:
            check_pair(experiment, contrast, arms["tiny", declared.treatment], arms["tiny", declared.baseline])
        except PairCheckError as error:
            return str(error)
        return ""

    return check


OTHER_RATE = ('output_map = { name = "xsa"', 'optimiser = { matrix_learning_rate = 0.03 }\noutput_map = { name = "xsa"')
DECLARED = ("[contrasts.xsa]", '[contrasts.xsa]\nalso_differs = ["optimiser.matrix_learning_rate"]')


def test_arms_that_differ_in_mechanisms_only_pass(found):
    assert [found(contrast) for contrast in ("block", "xsa", "rd")] == ["", "", ""]


def test_another_learning_rate_is_refused_by_name(found):
    message = found("xsa", OTHER_RATE)
    assert "contrast 'xsa': 'xsa' and 'standard' differ in more than they declare" in message
    assert "optimiser.matrix_learning_rate: 0.03 in the treatment, 0.02 in the baseline" in message
    assert "contrasts.xsa.also_differs" in message


def test_a_declared_difference_passes(found):
    assert found("xsa", OTHER_RATE, DECLARED) == ""
    assert found("xsa", OTHER_RATE, (DECLARED[0], DECLARED[1].replace(".matrix_learning_rate", ""))) == ""


@pytest.mark.parametrize("declared", ["optimiser.matrix_learning", "optimiser.matrix_momentum", "optim"])
def test_a_declaration_covers_its_own_field_and_those_below_it_only(found, declared: str):
    other = (DECLARED[0], DECLARED[1].replace("optimiser.matrix_learning_rate", declared))
    assert "optimiser.matrix_learning_rate" in found("xsa", OTHER_RATE, other)


@pytest.mark.parametrize(
    ("own", "field"),
    [
        ("schedule = { decay = 0.1 }", "schedule.decay"),
        ("batch_tokens = 1024", "batch_tokens"),
        ("context_length = 64", "context_length"),
        ("evaluation = { test_tokens = 9 }", "evaluation.test_tokens"),
        ("model = { qk_norm = false }", "model.qk_norm"),
        ("model = { query_heads_per_kv_head = 2 }", "model.query_heads_per_kv_head"),
        ("optimiser = { adam_eps = 1e-9 }", "optimiser.adam_eps"),
    ],
)
def test_any_field_outside_the_mechanisms_is_refused_by_name(found, own: str, field: str):
    assert f"{field}: " in found("xsa", ('output_map = { name = "xsa"', f'{own}\noutput_map = {{ name = "xsa"'))


def test_the_knob_of_a_role_that_one_arm_has_is_its_own(found):
    routing = 'name = "block-attnres", blocks = 2 }'
    own = (routing, f"{routing}\noptimiser = {{ depth_read_learning_rate = 0.1 }}")
    assert found("block", own) == "", "the plain residual has no depth read to tune"
    assert "optimiser.depth_read_learning_rate" in found("rd", own), "here both arms have"


@pytest.mark.parametrize(
    ("baseline", "treatment", "expected"),
    [
        ("shape = [4, 4]", "shape = [4, 5]", "shape is (4, 5) in the treatment, (4, 4) in the baseline"),
        ("std = 0.1", "std = 0.2", "role and initial law"),
        ("constant = 1.0", "constant = 0.0", "role and initial law"),
        ('role = "gain"', 'role = "depth read"', "role and initial law"),
        ('role = "gain"', 'role = "matrix"', "optimiser is Muon in the treatment, AdamW in the baseline"),
        ('role = "gain"', 'role = "matrix"', "orthogonalisation unit"),
        ('names = ["a", "b"]', 'names = ["a"]', "tensor layers.0.attention.output_map.b: missing in the treatment"),
    ],
)
def test_a_tensor_of_the_baseline_that_is_another_one_in_the_treatment_is_named(
    found, register, baseline: str, treatment: str, expected: str
):
    register("knob_for_pairs", KNOB)
    message = found(
        "xsa",
        ("[arms.standard]", f'[arms.plain]\noutput_map = {{ name = "knob", {baseline} }}\n[arms.standard]'),
        ('name = "xsa", strength = 1.0', f'name = "knob", {treatment}'),
        ('treatment = "xsa"\nbaseline = "standard"', 'treatment = "xsa"\nbaseline = "plain"'),
    )
    assert "tensor layers.0.attention.output_map." in message
    assert expected in message


def test_a_declared_tensor_may_differ(found, register):
    register("knob_for_pairs", KNOB)
    names = ", ".join(f'"tensor:layers.{layer}.attention.output_map.a"' for layer in (0, 1))
    changes = (
        ("[arms.standard]", '[arms.plain]\noutput_map = { name = "knob", std = 0.1 }\n[arms.standard]'),
        ('name = "xsa", strength = 1.0', 'name = "knob", std = 0.2'),
        ('treatment = "xsa"\nbaseline = "standard"', 'treatment = "xsa"\nbaseline = "plain"'),
    )
    assert found("xsa", *changes, ("[contrasts.xsa]", f"[contrasts.xsa]\nalso_differs = [{names}]")) == ""


def test_a_declared_pattern_of_tensors_covers_those_of_all_layers_and_no_others(found, register):
    register("knob_for_pairs", KNOB)
    changes = (
        ("[arms.standard]", '[arms.plain]\noutput_map = { name = "knob", names = ["a", "b"] }\n[arms.standard]'),
        ('treatment = "xsa"\nbaseline = "standard"', 'treatment = "xsa"\nbaseline = "plain"'),
    )
    for declared, complaint in (
        ("tensor:layers.*.output_map.*", ""),
        ("tensor:layers.*.output_map.a", "output_map.b: missing in the treatment"),
        ("tensor:layers.0.*", "layers.1.attention.output_map.a: missing in the treatment"),
        ("layers.*", "output_map.a: missing in the treatment"),
    ):
        message = found("xsa", *changes, ("[contrasts.xsa]", f'[contrasts.xsa]\nalso_differs = ["{declared}"]'))
        assert complaint in message
        assert bool(message) == bool(complaint)


def test_a_treatment_may_add_tensors(found, register):
    register("knob_for_pairs", KNOB)
    assert found("xsa", ('name = "xsa", strength = 1.0', 'name = "knob"')) == ""


def test_an_undeclared_difference_stops_the_study_before_anything_is_written(tmp_path: Path, tiny: str):
    path = tmp_path / "study.toml"
    path.write_text(tiny.replace(*OTHER_RATE, 1), encoding="utf-8")
    experiment = loading.load(path)
    with pytest.raises(PairCheckError, match="matrix_learning_rate"):
        check_pairs(experiment, resolve_arms(experiment))
    with pytest.raises(PairCheckError, match="matrix_learning_rate"):
        open_study(experiment, tmp_path, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("declared", ["optimiser.matrix_*", "optimiser.*", "*"])
def test_a_star_stands_for_any_text_in_a_fields_name(found: Callable[..., str], declared: str) -> None:
    star = DECLARED[1].replace("optimiser.matrix_learning_rate", declared)
    assert found("xsa", OTHER_RATE, (DECLARED[0], star)) == ""
    other = DECLARED[1].replace("optimiser.matrix_learning_rate", "optimiser.gain*")
    assert "optimiser.matrix_learning_rate" in found("xsa", OTHER_RATE, (DECLARED[0], other))
