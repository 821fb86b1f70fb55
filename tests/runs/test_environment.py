import re
import subprocess
import sys

from paribus.runs.environment import PACKAGES, code_version, environment


def test_the_environment_names_every_version_as_text():
    found = environment()
    assert {"paribus", "python", "processor", "cores", "system", "code version", *PACKAGES} == found.keys()
    assert all(isinstance(value, str) and value for value in found.values())


def test_the_code_version_is_a_commit_or_says_that_paribus_is_installed():
    assert re.fullmatch(r"installed|[0-9a-f]{12}(\+changes)?", code_version())


def test_reading_the_environment_imports_none_of_the_packages_it_names():
    script = "import sys\nfrom paribus.runs.environment import PACKAGES, environment\nenvironment()\n"
    script += "print(set(PACKAGES) & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
