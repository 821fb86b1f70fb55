"""Arms that take tensors from another arm: what is refused before training, in which order cells are laid out."""

from collections.abc import Callable

import pytest
import torch

from paribus.errors import ExperimentFileError, GateError
from paribus.experiment.donors import adopt, donors_first
from paribus.experiment.plan import ArmAtScale, Cell, cells
from paribus.experiment.spec import Experiment
from paribus.mechanisms.contract import Seam
from paribus.model.build import build_model

GRAFT = '''
"""An output map with a factor per feature: learned, or kept as another arm has learned it."""

from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.roles import ONES, DeclaredModule, Role


class Graft(DeclaredModule):
    def __init__(self, width, role):
        super().__init__()
        self.declare("factor", (width,), role, ONES)

    def forward(self, y, values, document):
        return y * self.get_parameter("factor")


class GraftConfig(MechanismConfig):
    name = "graft"
    seam = Seam.OUTPUT_MAP

    source: str | None = None
    trained: bool = False

    def build(self, geometry, layer):
        return Graft(geometry.head_width, Role.GAIN if self.source is None or self.trained else Role.FIXED)

    def donor(self):
        return self.source

    def adopt(self, module, tensors):
        module.get_parameter("factor").copy_(tensors["factor"])
'''
Resolved = tuple[Experiment, dict[tuple[str, str], ArmAtScale]]
Resolve = Callable[[str], Resolved]


def laid_out_of(resolved: Resolved) -> list[Cell]:
    return cells(*resolved, "corpus")


@pytest.fixture
def graft(register, tiny: str) -> Callable[..., str]:
    """The small experiment with arms of grafts: "name" takes from "source"."""
    register("graft_for_plans", GRAFT)

    def text(**sources: str) -> str:
        arms = ""
        for name, source in sources.items():
            takes = f', source = "{source}"' if source else ""
            arms += f'[arms.{name}]\noutput_map = {{ name = "graft"{takes} }}\n'
        return tiny.replace("[arms.standard]", f"{arms}[arms.standard]", 1)

    return text


@pytest.fixture
def refused(resolve: Resolve) -> Callable[[str], ExperimentFileError]:
    def by(text: str) -> ExperimentFileError:
        with pytest.raises(ExperimentFileError) as caught:
            resolve(text)
        return caught.value

    return by


def test_an_unknown_donor_is_refused_with_the_nearest_arm(refused, graft):
    error = refused(graft(learned="", kept="leaned"))
    assert error.what == "arms.kept.output_map: its donor is no arm of this file"
    assert error.received == "'leaned'"
    assert error.remedy == "did you mean 'learned'?"


def test_an_arm_cannot_be_its_own_donor(refused, graft):
    assert "its donor is the arm itself" in refused(graft(learned="", kept="kept")).what


def test_donors_that_form_a_circle_are_refused_naming_it(refused, graft):
    error = refused(graft(a="b", b="c", c="b"))
    assert "donors form a circle" in error.what
    assert error.received == "b takes from c takes from b"


def test_a_donor_without_the_tensors_is_refused_before_training(refused, graft):
    error = refused(graft(kept="xsa"))
    assert error.what == "arms.kept.output_map: its donor 'xsa' does not have the tensors that 'graft' takes"
    assert error.received == "nothing at 'layers.0.attention.output_map'"


def test_a_mechanisms_own_words_about_a_donor_name_the_arm(refused, tiny: str):
    text = tiny.replace("blocks = 2 }\n\n[contrasts", 'blocks = 2, frozen_v_from = "standard" }\n\n[contrasts', 1)
    assert text != tiny
    error = refused(text)
    assert error.what.startswith("arms.rd.routing: ")
    assert "'standard'" in error.what


def test_cells_are_laid_out_donors_first_and_otherwise_in_the_files_order(resolve: Resolve, graft):
    experiment, arms = resolve(graft(last="kept", kept="learned", learned=""))
    found = [cell.name for cell in cells(experiment, arms, "corpus") if cell.seed == 1]
    assert found == [f"tiny/{arm}/1" for arm in ("learned", "kept", "last", "standard", "xsa", "block", "rd")]


def test_a_donor_is_the_cell_of_the_same_scale_and_seed(resolve: Resolve, graft):
    experiment, arms = resolve(graft(kept="learned", learned=""))
    laid_out = {cell.name: cell for cell in cells(experiment, arms, "corpus")}
    for seed in range(3):
        kept, learned = laid_out[f"tiny/kept/{seed}"], laid_out[f"tiny/learned/{seed}"]
        assert {seam: donor.name for seam, donor in kept.donors.items()} == {Seam.OUTPUT_MAP: learned.name}
        assert kept.resolved["donors"] == {"output_map": learned.digest}
        assert learned.donors == {}
        assert "donors" not in learned.resolved


def test_a_repeat_of_a_cell_takes_from_the_same_donor(resolve: Resolve, graft):
    text = graft(kept="learned", learned="").replace('baseline = "standard"', 'baseline = "kept"', 1)
    experiment, arms = resolve(text.replace('treatment = "block"', 'treatment = "learned"', 1))
    laid_out = {cell.name: cell for cell in cells(experiment, arms, "corpus")}
    repeat, original = laid_out["tiny/kept/0 (repeat)"], laid_out["tiny/kept/0"]
    assert repeat.digest == original.digest
    assert repeat.donors == original.donors


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("matrix_learning_rate = 0.02", "matrix_learning_rate = 0.03", {"learned", "kept", "last", "standard"}),
        # What changes the donor alone changes whoever takes from it, and who takes from that one.
        ("[arms.learned]", "[arms.learned]\noptimiser = { adam_eps = 1e-9 }", {"learned", "kept", "last"}),
        ("[arms.kept]", "[arms.kept]\noptimiser = { adam_eps = 1e-9 }", {"kept", "last"}),
    ],
)
def test_the_digest_of_a_taker_contains_its_donors(resolve: Resolve, graft, old: str, new: str, changed: set[str]):
    text = graft(learned="", kept="learned", last="kept")

    def digests(text: str) -> dict[str, str]:
        found: list[Cell] = laid_out_of(resolve(text))
        return {cell.arm: cell.digest for cell in found if cell.seed == 0}

    before, after = digests(text), digests(text.replace(old, new))
    assert {arm for arm in ("learned", "kept", "last", "standard") if before[arm] != after[arm]} == changed


def test_the_same_donor_at_another_seed_is_another_digest(resolve: Resolve, graft):
    found = laid_out_of(resolve(graft(learned="", kept="learned")))
    assert len({cell.resolved["donors"]["output_map"] for cell in found if cell.arm == "kept"}) == 3


def test_what_is_taken_arrives_layer_by_layer_and_touches_nothing_else(resolve: Resolve, graft):
    _, arms = resolve(graft(learned="", kept="learned"))
    kept, learned = (
        build_model(arms["tiny", arm].model, arms["tiny", arm].seam_configs, ("tests", arm, 0))
        for arm in ("kept", "learned")
    )
    before = {name: p.detach().clone() for name, p in kept.named_parameters()}
    given = {name: torch.full_like(p, 2.0 + i) for i, (name, p) in enumerate(learned.named_parameters())}
    adopt(kept, arms["tiny", "kept"].mechanisms, {Seam.OUTPUT_MAP: given})
    for name, parameter in kept.named_parameters():
        expected = given[name] if name.endswith("output_map.factor") else before[name]
        assert torch.equal(parameter, expected), name


def test_a_donor_that_would_change_what_is_trained_is_refused(resolve: Resolve, graft):
    text = graft(learned="", kept="learned").replace('source = "learned"', 'source = "learned", trained = true')
    _, arms = resolve(text)
    arm = arms["tiny", "kept"]
    model = build_model(arm.model, arm.seam_configs, ("tests", 0))
    given = {name: p.detach() + 1 for name, p in model.named_parameters()}
    with pytest.raises(GateError, match=r"changed 'layers\.0\.attention\.output_map\.factor', which is trained"):
        adopt(model, arm.mechanisms, {Seam.OUTPUT_MAP: given})


def test_arms_without_donors_keep_their_order():
    assert donors_first({"b": {}, "a": {}, "c": {}}) == ["b", "a", "c"]
