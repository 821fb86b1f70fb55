"""A task that cannot be read as the file says, or whose own code fails, is one error before anything is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.data.tasks.cross import Cross
from paribus.data.tasks.tally import Tally
from paribus.errors import CorpusError, ExperimentFileError
from paribus.experiment import loading
from paribus.experiment.spec import Experiment

Load = Callable[..., Experiment]
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def load(study_text: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """A study of a task, small.toml in the working folder, with one text replaced."""
    monkeypatch.chdir(tmp_path)
    text = study_text(
        base={"context_length": "16", "corpus": '{ task = "tally", symbols = 2, classes = 4 }'},
        scale={"budget_tokens": "4_500"},
        contrast={"metric": '"train.area"'},
        more='[execution]\ndevice = "cpu"\n',
    )

    def of(old: str = "", new: str = "") -> Experiment:
        assert not old or text.count(old) == 1, old
        Path("small.toml").write_text(text.replace(old, new) if old else text, encoding="utf-8")
        return loading.load(Path("small.toml"))

    return of


@pytest.mark.parametrize("knobs", ["3", "[3]", '"m"', "true"])
def test_knobs_that_are_no_table_are_refused(load: Load, knobs: str) -> None:
    with pytest.raises(ExperimentFileError, match=r"base\.corpus\.knobs: not a valid value") as caught:
        load('task = "tally", symbols = 2, classes = 4', f'task = "tally", knobs = {knobs}')
    assert caught.value.expected == "a table"


def test_rows_too_short_for_the_task_name_the_file_and_the_length_that_would_do(load: Load, cli: Cli) -> None:
    least = Cross(m=1).least_row_length
    short = least - 1
    declared = 'context_length = 16\nbatch_tokens = 512\ncorpus = { task = "tally", symbols = 2, classes = 4 }'
    too_short = f'context_length = {short}\nbatch_tokens = {32 * short}\ncorpus = {{ task = "cross", m = 1 }}'
    with pytest.raises(ExperimentFileError, match="rows too short for the task 'cross'") as caught:
        load(declared, too_short)
    assert caught.value.what.startswith("small.toml: base.context_length: ")
    assert (caught.value.expected, caught.value.received) == (f"at least {least} tokens", str(short))
    code, out, err = cli("plan", "small.toml")
    assert (code, out) == (2, "")
    assert "base.context_length" in err


@pytest.mark.parametrize("error", [IndexError("out of bounds"), KeyError("many"), ZeroDivisionError("division")])
@pytest.mark.parametrize("method", ["levels", "rows"])
def test_a_task_whose_own_code_raises_is_named_and_so_is_the_exception(
    load: Load, cli: Cli, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception
) -> None:
    load()

    def breaks(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Tally, method, breaks)
    code, out, err = cli("plan", "small.toml")
    assert code == CorpusError("").exit_code
    assert f"the task 'tally': its own code raises {type(error).__name__} in `breaks`" in err
    assert str(error) in err
    assert not out


@pytest.mark.parametrize("arm", ["batch_tokens = 1024", "context_length = 32"])
def test_arms_of_a_task_that_read_other_batches_are_refused_and_those_of_a_text_are_not(load: Load, arm: str) -> None:
    with pytest.raises(ExperimentFileError, match="arms of a study that reads a task read the same batches") as caught:
        load("[arms.xsa]", f"[arms.xsa]\n{arm}")
    field = arm.partition(" ")[0]
    assert caught.value.what.startswith(f"small.toml: arms.xsa.{field}: ")
    assert f"[base] {field} = " in caught.value.expected
    same = {"batch_tokens": "batch_tokens = 512", "context_length": "context_length = 16"}[field]
    assert load("[arms.xsa]", f"[arms.xsa]\n{same}").arm("xsa").batch_tokens == 512
