import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.data.split import SPLITS, split_beside_last_file, split_of, split_of_key


def test_same_document_lands_in_same_split_in_any_order_and_in_another_process():
    texts = [f"document {index}" for index in range(200)]
    forward = {text: split_of(text) for text in texts}
    backward = {text: split_of(text) for text in reversed(texts)}
    program = (
        "from paribus.data.split import split_of\n"
        "import sys\n"
        "sys.stdout.write(' '.join(split_of(f'document {index}') for index in range(200)))"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert forward == backward
    assert elsewhere.stdout.split() == [forward[text] for text in texts]


def test_the_split_of_known_documents_never_changes():
    # Recorded: a change here would move documents between the splits of studies that already ran.
    letters = [split_of(f"document {index}", test_fraction=0.3, validation_fraction=0.3)[0] for index in range(40)]
    assert "".join(letters) == "ttttvvttttttttvtttvtvtttvtvttttttttvtttt"


def test_fractions_hold_within_four_standard_errors():
    count = 20_000
    splits = [split_of(f"text {index}", test_fraction=0.04, validation_fraction=0.02) for index in range(count)]
    for name, fraction in (("test", 0.04), ("validation", 0.02)):
        standard_error = (count * fraction * (1 - fraction)) ** 0.5
        assert abs(splits.count(name) - count * fraction) < 4 * standard_error


@settings(deadline=None)
@given(st.text(), st.floats(0, 0.4), st.floats(0, 0.4), st.floats(0, 0.1))
def test_a_larger_fraction_only_takes_documents_from_the_training_split(text, test, validation, more):
    before = split_of(text, test_fraction=test, validation_fraction=validation)
    more_test = split_of(text, test_fraction=test + more, validation_fraction=validation)
    more_validation = split_of(text, test_fraction=test, validation_fraction=validation + more)
    assert before in SPLITS
    assert more_test in (before, "test") if before == "train" else more_test == before
    assert more_validation in (before, "validation") if before == "train" else more_validation == before


@settings(deadline=None)
@given(st.text())
def test_a_fraction_of_zero_holds_nothing_out(text):
    assert split_of(text, test_fraction=0, validation_fraction=0) == "train"


@settings(deadline=None)
@given(st.text(), st.floats(0, 0.5), st.floats(0, 0.4))
def test_text_and_its_bytes_and_the_text_as_key_share_a_split(text, test, validation):
    fractions = {"test_fraction": test, "validation_fraction": validation}
    utf8 = text.encode()
    assert split_of(text, **fractions) == split_of(utf8, **fractions) == split_of_key(utf8, **fractions)


@settings(deadline=None)
@given(st.binary(min_size=16, max_size=16), st.floats(0, 0.4), st.floats(0, 0.4), st.floats(0, 0.1))
def test_a_larger_fraction_only_takes_keys_from_the_training_split(key, test, validation, more):
    before = split_of_key(key, test_fraction=test, validation_fraction=validation)
    more_test = split_of_key(key, test_fraction=test + more, validation_fraction=validation)
    more_validation = split_of_key(key, test_fraction=test, validation_fraction=validation + more)
    assert more_test in (before, "test") if before == "train" else more_test == before
    assert more_validation in (before, "validation") if before == "train" else more_validation == before


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a.org", "b.org", "c.org", None]), st.text(max_size=3)), min_size=1),
    st.randoms(use_true_random=False),
)
def test_documents_of_a_host_share_a_split_in_any_order_and_those_without_one_go_by_their_text(documents, random):
    def split(host: str | None, text: str) -> str:
        return split_of_key(host.encode() if host else text.encode(), test_fraction=0.3, validation_fraction=0.3)

    shuffled = random.sample(documents, len(documents))
    of_host: dict[str, set[str]] = {}
    for host, text in shuffled:
        if host is None:
            assert split(host, text) == split_of(text, test_fraction=0.3, validation_fraction=0.3)
        else:
            of_host.setdefault(host, set()).add(split(host, text))
    assert all(len(splits) == 1 for splits in of_host.values())
    assert {document: split(*document) for document in documents} == {
        document: split(*document) for document in shuffled
    }


@settings(deadline=None)
@given(st.binary(), st.floats(0, 0.9), st.floats(0, 0.1))
def test_beside_a_last_file_a_text_of_it_is_validation_and_the_others_are_split_as_ever(key, test, more):
    assert split_beside_last_file(key, stands_in_last_file=True, test_fraction=test) == "validation"
    among_others = split_beside_last_file(key, stands_in_last_file=False, test_fraction=test)
    assert among_others == split_of_key(key, test_fraction=test, validation_fraction=0)
    assert among_others in ("train", "test")
    if among_others == "test":
        assert split_beside_last_file(key, stands_in_last_file=False, test_fraction=test + more) == "test"
