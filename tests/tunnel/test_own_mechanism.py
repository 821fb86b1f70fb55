"""`--mechanism`: by name, by table, by module; arms, names and refusals."""

import importlib
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from paribus import mechanisms
from paribus.checking import shown_laws
from paribus.errors import ExperimentFileError, MechanismError
from paribus.experiment.calibration import State, baseline_of, calibration_of
from paribus.experiment.plan import resolve_arms
from paribus.experiment.trial import trial
from paribus.mechanisms.contract import Seam
from paribus.tunnel.suites import load_suite, with_mechanism

IDEA = '''
"""A map that changes nothing but the scale of what a head has mixed."""

from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Halve(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, y, values, document):
        return self.share * y


class HalveConfig(MechanismConfig):
    name = "halve"
    seam = Seam.OUTPUT_MAP

    share: float = 0.5
    """what is left"""

    def build(self, geometry, layer):
        return Halve(self.share)
'''
SECOND = """

class QuarterConfig(HalveConfig):
    name = "quarter"
    seam = Seam.OUTPUT_MAP

    share: float = 0.25
"""


@pytest.fixture
def package(micro: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the import path, installed nowhere."""
    (micro / "mypackage").mkdir()
    (micro / "mypackage" / "__init__.py").write_text("", encoding="utf-8")
    (micro / "mypackage" / "idea.py").write_text(IDEA, encoding="utf-8")
    monkeypatch.syspath_prepend(micro)
    importlib.invalidate_caches()
    return micro / "mypackage"


@pytest.mark.parametrize(
    ("text", "arm", "table"),
    [
        ("document", "document", {"mask": {"name": "document"}}),
        ("xsa", "xsa", {"output_map": {"name": "xsa"}}),
        ("mask = { name = 'document' }", "document", {"mask": {"name": "document"}}),
        (
            "output_map = { name = 'xsa', strength = 0.5 }\nmask = { name = 'document' }",
            "xsa-document",
            {"output_map": {"name": "xsa", "strength": 0.5}, "mask": {"name": "document"}},
        ),
        ("mypackage.idea", "halve", {"output_map": {"name": "mypackage.idea:halve"}}),
        ("mypackage.idea:halve", "halve", {"output_map": {"name": "mypackage.idea:halve"}}),
        (
            "output_map = { name = 'mypackage.idea:halve', share = 0.25 }",
            "halve",
            {"output_map": {"name": "mypackage.idea:halve", "share": 0.25}},
        ),
    ],
)
def test_a_mechanism_takes_the_place_of_the_treatments_on_every_task(
    package: Path, text: str, arm: str, table: dict[str, object]
):
    del package
    shipped = load_suite("smoke")
    suite = with_mechanism(shipped, text)
    assert [study.task for study in suite.studies] == [study.task for study in shipped.studies]
    for study, before in zip(suite.studies, shipped.studies, strict=True):
        experiment, contrast = study.experiment, study.experiment.contrasts[arm]
        assert experiment.arms == {"standard": {}, arm: table}
        assert list(experiment.contrasts) == [arm]
        assert (contrast.treatment, contrast.baseline, contrast.primary) == (arm, "standard", True)
        assert contrast.metric == before.experiment.contrasts["xsa"].metric
        assert contrast.expected is None, "nobody declared what a mechanism of one's own does"
        assert experiment.scales == before.experiment.scales
        assert experiment.base == before.experiment.base
        assert set(resolve_arms(experiment)) == {(study.task, "standard"), (study.task, arm)}


@pytest.mark.parametrize("name", ["smoke", "full"])
def test_what_was_calibrated_on_the_plain_base_holds_for_a_mechanism_of_ones_own_and_nothing_else_does(name: str):
    shipped = load_suite(name)
    seen = set()
    for study, before in zip(with_mechanism(shipped, "document").studies, shipped.studies, strict=True):
        own, found = calibration_of(study.experiment), calibration_of(before.experiment)
        plain = not before.experiment.arms[baseline_of(before.experiment)[1]]
        if plain and found.state is not State.STALE:
            assert (own.state, own.shares) == (found.state, found.shares)
            assert "tuning" not in own.sentence, "nothing is searched here"
        else:
            assert own.state is State.MISSING
        seen.add(plain)
    assert seen == {True, False}


def test_a_shipped_calibration_that_went_stale_is_none_of_ones_own():
    suite = load_suite("smoke")
    (twin,) = (study for study in suite.studies if study.task == "twin")
    scales = {"twin": twin.experiment.scales["twin"].model_copy(update={"budget_tokens": 600_000})}
    changed = replace(twin, experiment=twin.experiment.model_copy(update={"scales": scales}))
    (own,) = with_mechanism(replace(suite, studies=(changed,)), "document").studies
    assert calibration_of(changed.experiment).state is State.STALE
    assert calibration_of(own.experiment).state is State.MISSING


def test_another_table_has_other_studies_and_another_folder():
    suite = load_suite("smoke")
    found = [with_mechanism(suite, f"output_map = {{ name = 'xsa', strength = {s} }}") for s in (0.5, 0.25, 0.5)]
    names = [[study.experiment.study for study in own.studies] for own in found]
    assert names[0] == names[2]
    assert not set(names[0]) & set(names[1])
    assert found[0].folder_name == found[2].folder_name != found[1].folder_name
    assert found[0].folder_name.startswith("tunnel-smoke-xsa-")
    assert not set(names[0]) & {study.experiment.study for study in suite.studies}


def test_the_full_set_of_a_mechanism_of_ones_own_keeps_seeds_and_other_rates_and_searches_nothing():
    shipped = load_suite("full")
    for study, before in zip(with_mechanism(shipped, "document").studies, shipped.studies, strict=True):
        assert study.experiment.tuning is None
        assert study.experiment.seeds == before.experiment.seeds
        assert study.experiment.robustness == before.experiment.robustness


def test_a_module_that_a_table_names_joins_the_registry_with_its_bare_name(package: Path):
    del package
    assert "halve" not in mechanisms.mechanisms(Seam.OUTPUT_MAP)
    config = mechanisms.resolve(Seam.OUTPUT_MAP, {"name": "mypackage.idea:halve", "share": 0.25}, "here")
    assert (config.name, config.model_dump()) == ("halve", {"share": 0.25})
    assert mechanisms.mechanisms(Seam.OUTPUT_MAP)["halve"] is type(config)
    assert sum(module.__name__ == "mypackage.idea" for module in mechanisms.modules()) == 1


def test_a_module_with_two_mechanisms_needs_one_of_them_named(package: Path):
    (package / "idea.py").write_text(IDEA + SECOND, encoding="utf-8")
    with pytest.raises(ExperimentFileError) as caught:
        with_mechanism(load_suite("smoke"), "mypackage.idea")
    assert caught.value.what == "--mechanism: 'mypackage.idea' declares 2 mechanisms"
    assert caught.value.expected == "one of them: mypackage.idea:halve, mypackage.idea:quarter"
    assert with_mechanism(load_suite("smoke"), "mypackage.idea:quarter").own.startswith("quarter-")


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("xsaa", "--mechanism: 'xsaa': no such mechanism", "did you mean 'xsa'?"),
        ("serial", "--mechanism: 'serial' changes nothing: it is a seam's identity", ""),
        ("mask = 'document", "--mechanism: not a readable TOML table", "quote the whole table once, for the shell"),
        ("masc = { name = 'document' }", "--mechanism: 'masc' is not a seam", "did you mean 'mask'?"),
        ("mask = { name = 'documents' }", "--mechanism: mask.name: unknown mechanism", "did you mean 'document'?"),
        ("mask = { name = 'document', k = 1 }", "--mechanism: mask.k: ", ""),
        ("nowhere.idea", "--mechanism: the module 'nowhere.idea' is not found", "put its folder on PYTHONPATH"),
        ("mypackage.idea:third", "--mechanism: 'mypackage.idea' declares no mechanism 'third'", ""),
        ("mypackage", "--mechanism: the module 'mypackage' declares no mechanism", ""),
        ("mypackage/idea.py", "--mechanism: 'mypackage/idea.py' is a file", "the module, mypackage.idea, not its file"),
        ("../mypackage/idea.py", "--mechanism: '../mypackage/idea.py' is a file", "the module, mypackage.idea, not"),
        ("my package.idea", "--mechanism: 'my package.idea' is no module's name", "import statement"),
        (".idea", "--mechanism: '.idea' is no module's name", ""),
    ],
)
def test_what_is_no_mechanism_is_refused_with_a_remedy(package: Path, text: str, what: str, remedy: str):
    del package
    with pytest.raises(ExperimentFileError) as caught:
        with_mechanism(load_suite("smoke"), text)
    assert caught.value.what.startswith(what)
    assert remedy in caught.value.remedy


def test_an_unknown_mechanism_is_offered_modules_and_no_option_of_another_command(package: Path):
    del package
    for text, offered in (("xsaa", "mypackage.idea"), ("mask = { name = 'documents' }", "mypackage.idea:mine")):
        with pytest.raises(ExperimentFileError) as caught:
            with_mechanism(load_suite("smoke"), text)
        assert offered in caught.value.expected
        assert "--file" not in str(caught.value)


def test_the_module_of_a_file_begins_where_its_package_does(package: Path, monkeypatch: pytest.MonkeyPatch):
    (package / "deep").mkdir()
    for name in ("__init__.py", "idea.py"):
        (package / "deep" / name).touch()
    (package.parent / "alone.py").touch()
    monkeypatch.chdir(package)
    files = {"deep/idea.py": "mypackage.deep.idea", str(package / "idea.py"): "mypackage.idea", "../alone.py": "alone"}
    for file, module in files.items():
        with pytest.raises(ExperimentFileError) as caught:
            with_mechanism(load_suite("smoke"), file)
        assert f"name the module, {module}, not its file" in caught.value.remedy


@pytest.mark.parametrize("text", ["mypackage.idea", "mypackage.idea:halve"])
def test_laws_take_the_module_that_the_tunnel_takes(package: Path, text: str):
    del package
    subjects = {subject for subject, _ in shown_laws(text, Console(file=io.StringIO()))}
    assert subjects == {"halve"}


def test_laws_of_a_module_that_is_not_there_say_what_the_tunnel_says(package: Path):
    del package
    quiet = Console(file=io.StringIO())
    with pytest.raises(ExperimentFileError, match=r"the module 'nowhere\.idea' is not found"):
        shown_laws("nowhere.idea", quiet)
    with pytest.raises(ExperimentFileError, match=r"'mypackage\.idea' declares no mechanism 'third'"):
        shown_laws("mypackage.idea:third", quiet)
    with pytest.raises(ExperimentFileError, match=r"name the module, mypackage\.idea, not its file"):
        shown_laws("mypackage/idea.py", quiet)


@pytest.mark.parametrize("text", ["mypackage.idea", "mypackage.idea:halve"])
def test_a_trial_takes_the_module_that_the_tunnel_takes(package: Path, text: str):
    del package
    found = trial(text, None, against=None, scale=None, seed=None, steps=1)
    assert found.arm.arm == "halve"
    assert found.arm.mechanisms[Seam.OUTPUT_MAP].name == "halve"


def test_a_package_without_init_file_is_refused_because_its_code_could_not_be_part_of_a_cells_identity(package: Path):
    (package / "__init__.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(ExperimentFileError) as caught:
        with_mechanism(load_suite("smoke"), "mypackage.idea")
    assert caught.value.what.startswith("--mechanism: the folder 'mypackage' is no package")
    assert caught.value.remedy == "add an empty mypackage/__init__.py"


def test_a_module_that_is_broken_is_told_from_one_that_is_not_there(package: Path):
    (package / "idea.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    with pytest.raises(MechanismError) as caught:
        with_mechanism(load_suite("smoke"), "mypackage.idea")
    assert caught.value.what == "the module 'mypackage.idea' cannot be imported"
    assert "nothing_of_this_name" in caught.value.received
