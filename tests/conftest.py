"""What all tests share. Tensors in tests are tiny and workers share the cores: a second thread only waits."""

import sys
from collections.abc import Callable, Iterator

import pytest
import torch

from paribus.cli import main
from tests.shared import process_as_it_was

torch.set_num_threads(1)

BASE = {
    "context_length": "32",
    "batch_tokens": "512",
    "corpus": '{ path = "corpus" }',
    "model": "{ head_width = 16 }",
}
SCALE = {"layers": "1", "width": "32", "mlp_width": "48", "budget_tokens": "10_000"}
RULE = {"primary": "true", "smallest_effect": "0.01", "design_effect": "0.03"}


@pytest.fixture(autouse=True)
def _this_process_as_it_was() -> Iterator[None]:
    with process_as_it_was():
        yield


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the entry point inside this process: (exit code, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["paribus", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), out, err

    return run


@pytest.fixture(scope="session")
def study_text() -> Callable[..., str]:
    """The text of an experiment file that is as small as one can be: one scale, an arm beside the baseline, their
    contrast, three seeds.

    `base`, `scale` and `contrast` say what their tables hold besides, or otherwise, in TOML; `arm` is the treatment's
    name, `table` what is in it, and `more` what follows at the end.
    """

    def text(
        arm: str = "xsa",
        table: str = 'output_map = { name = "xsa" }',
        *,
        base: dict[str, str] | None = None,
        scale: dict[str, str] | None = None,
        contrast: dict[str, str] | None = None,
        more: str = "",
    ) -> str:
        arms = {"treatment": f'"{arm}"', "baseline": '"standard"'}
        tables = {
            "[base]": BASE | (base or {}),
            "[scales.tiny]": SCALE | (scale or {}),
            "[arms.standard]": {},
            f"[arms.{arm}]\n{table}": {},
            f"[contrasts.{arm}]": arms | RULE | (contrast or {}),
            "[seeds]": {"count": "3"},
        }
        lines = ['question = "Does it hold?"']
        for head, keys in tables.items():
            lines += [head, *(f"{key} = {value}" for key, value in keys.items())]
        return "\n".join(lines) + f"\n{more}"

    return text
