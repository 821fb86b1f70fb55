import re
import subprocess
import sys
from pathlib import Path

import pytest

import paribus
from paribus.runs import environment as record
from paribus.runs.environment import PACKAGES, code_version, environment, without_secrets

PLANTED = {"HF_TOKEN": "hf_planted4711", "aws_secret_access_key": "planted/Key+of", "MY_PASSWORD": "planted pass word"}
PROXY = "http://somebody:planted@proxy.example:3128"


def test_the_environment_names_every_version_as_text():
    found = environment()
    assert {"paribus", "python", "processor", "cores", "system", "code version", "kernels", *PACKAGES} == found.keys()
    assert all(isinstance(value, str) and value for value in found.values())


def test_the_code_version_is_a_commit_or_says_that_paribus_is_installed():
    assert re.fullmatch(r"installed|[0-9a-f]{12}(\+changes)?", code_version())


def test_reading_the_environment_imports_none_of_the_packages_it_names():
    script = "import sys\nfrom paribus.runs.environment import PACKAGES, environment\nenvironment()\n"
    script += "print(set(PACKAGES) & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_nothing_of_the_processs_variables_is_in_the_environment_record(monkeypatch: pytest.MonkeyPatch):
    for name, value in {**PLANTED, "PLAIN": "planted-plain", "HTTPS_PROXY": PROXY, "USER": "planted-user"}.items():
        monkeypatch.setenv(name, value)
    record._of_process.cache_clear()  # it is made once a process
    assert "planted" not in str(environment())


def test_the_code_version_of_a_checkout_whose_remote_has_a_password_does_not_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "checkout" / "paribus"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    who = ("-c", "user.name=planted", "-c", "user.email=planted@example.org")
    steps = (
        ("init", "-q", "-b", "planted-branch"),
        ("remote", "add", "origin", "https://planted:planted@example.org/planted.git"),
        ("add", "."),
        (*who, "commit", "-q", "-m", "planted"),
    )
    for step in steps:
        subprocess.run(["git", "-C", str(package.parent), *step], check=True, capture_output=True)
    monkeypatch.setattr(paribus, "__file__", str(package / "__init__.py"))
    assert record.paribus is paribus
    assert re.fullmatch("[0-9a-f]{12}", code_version.__wrapped__())


def test_what_an_error_quotes_of_secrets_is_left_out_and_the_rest_stays():
    text = f"401 with {PLANTED['HF_TOKEN']} and {PLANTED['aws_secret_access_key']} and {PLANTED['MY_PASSWORD']}"
    said = without_secrets(f"{text} through {PROXY}", PLANTED)
    assert said == (
        "401 with [HF_TOKEN] and [aws_secret_access_key] and [MY_PASSWORD] through http://[user]@proxy.example:3128"
    )
    assert without_secrets("error at https://example.org/a@b, 3 of 4", PLANTED).endswith("example.org/a@b, 3 of 4")


def test_a_secret_that_begins_with_another_is_left_out_whole_and_a_value_that_is_a_word_is_no_secret():
    known = {"A_TOKEN": "abcdef", "B_TOKEN": "abcdefghi", "USE_AUTH": "true", "PLAIN": "planted"}
    assert without_secrets("abcdefghi abcdef true planted", known) == "[B_TOKEN] [A_TOKEN] true planted"


def test_the_home_folder_is_not_named():
    assert without_secrets("/home/somebody/x.py, /home/somebodyelse", {"HOME": "/home/somebody"}) == (
        "~/x.py, /home/somebodyelse"
    )
    assert without_secrets("/tmp/x.py", {"HOME": "/"}) == "/tmp/x.py"
