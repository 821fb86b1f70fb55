"""`paribus compare STUDY STUDY ...`: studies side by side, as each was reported, and what differs between them.

Nothing is pooled and no word is said across studies: each was planned, decided and paid for by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paribus.comparing.reported import ABSENT, Reported, ReportedStudy, read_reported, run_folder
from paribus.errors import ParibusError
from paribus.stats.rule import Word

BITS_PER_BYTE = "bits per byte"
_ROLES = ("treatment", "baseline", "minus_treatment", "minus_baseline")
_SAME_TEXT = (
    "corpus.declared.kind",
    "corpus.counts.test.documents",
    "corpus.counts.test.bytes",
    "corpus.counts.train.documents",
    "corpus.counts.train.bytes",
)
"""equal in two corpora that hold the same text in other tokens"""


@dataclass(frozen=True)
class Group:
    """The same contrast in several studies: equal arms and metric, or equal name and metric."""

    title: str
    rows: tuple[Reported, ...]
    comparable: bool
    """whether the numbers are of one quantity"""
    why: str
    differing: Mapping[str, tuple[str, ...]]
    """fields of the arms that differ, by role and path: one value a row"""


@dataclass(frozen=True)
class SideBySide:
    """Studies beside each other."""

    studies: tuple[ReportedStudy, ...]
    groups: tuple[Group, ...]
    """contrasts that at least two of them have"""
    alone: tuple[Reported, ...]
    """contrasts that one of them has"""
    differing: Mapping[str, tuple[str, ...]]
    """corpus, environment and code where they differ, by path: one value a study"""
    independent: bool
    """whether no two studies share random streams"""
    sentences: tuple[str, ...]
    """what may and may not be read from the tables"""


def compare(studies: Sequence[Path], runs: Path) -> SideBySide:
    """Read each study and lay them side by side.

    A study is named by its run folder, its name below `runs`, or its experiment file. StudyFolderError where one was
    not reported yet or its report cannot be read; ParibusError below two different studies.
    """
    folders = [run_folder(study, runs) for study in studies]
    if len(folders) < 2 or len({folder.resolve() for folder in folders}) < len(folders):
        raise ParibusError(
            "a comparison needs at least two different studies",
            expected="two run folders or experiment files",
            received=", ".join(map(str, folders)) or "none",
        )
    found = tuple(read_reported(folder, place) for place, folder in enumerate(folders))
    groups, alone = _groups(found)
    independent = len({study.name for study in found}) == len(found) and all(study.arms for study in found)
    facts = _differing([{**study.facts, "code version": " and ".join(study.code) or ABSENT} for study in found])
    return SideBySide(found, groups, alone, facts, independent, _sentences(found, groups, independent))


def _groups(studies: Sequence[ReportedStudy]) -> tuple[tuple[Group, ...], tuple[Reported, ...]]:
    """Contrasts that meet, by their arms first and by their name else, and those that stand alone."""
    keys: tuple[Callable[[Reported], object], ...] = (
        lambda row: (row.arms, row.metric),
        lambda row: (row.name, row.metric),
    )
    left = [row for study in studies for row in study.contrasts]
    groups: list[Group] = []
    for key in keys:
        by_key: dict[object, list[Reported]] = {}
        for row in left:
            by_key.setdefault(key(row), []).append(row)
        for rows in by_key.values():
            if len({row.place for row in rows}) > 1:
                groups.append(_group(rows, studies))
                left = [row for row in left if row not in rows]
    return tuple(groups), tuple(left)


def _group(rows: Sequence[Reported], studies: Sequence[ReportedStudy]) -> Group:
    names = " / ".join(dict.fromkeys(row.name for row in rows))
    facts = []
    for row in rows:
        arms = studies[row.place].arms
        of_role = {role: arms.get((row.scale, arm), {}) for role, arm in zip(_ROLES, row.arms, strict=False)}
        facts.append({f"{role}.{path}": value for role, found in of_role.items() for path, value in found.items()})
    comparable, why = _comparable(rows, studies)
    return Group(f"{names}, {rows[0].metric}", tuple(rows), comparable, why, _once_for_every_arm(_differing(facts)))


def _once_for_every_arm(differing: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """A field in which treatment and baseline move together is one line, not two."""
    found: dict[str, tuple[str, ...]] = {}
    for path, values in differing.items():
        role, _, field = path.partition(".")
        roles = [r for r in _ROLES if f"{r}.{field}" in differing]
        alike = len(roles) > 1 and all(differing[f"{r}.{field}"] == values for r in roles)
        if not alike:
            found[path] = values
        elif role == roles[0]:
            found[f"every arm.{field}"] = values
    return found


def _differing(facts: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    paths = sorted({path for found in facts for path in found})
    values = {path: tuple(found.get(path, ABSENT) for found in facts) for path in paths}
    return {path: found for path, found in values.items() if len(set(found)) > 1}


def _comparable(rows: Sequence[Reported], studies: Sequence[ReportedStudy]) -> tuple[bool, str]:
    """Whether the differences are of one quantity, and why."""
    facts = [studies[row.place].facts for row in rows]
    scored = {
        studies[row.place].arms.get((row.scale, row.arms[0]), {}).get("base.evaluation.test_tokens", ABSENT)
        for row in rows
    }
    if len(scored) > 1:
        return False, "Not one quantity: different amounts of held-out text were scored."
    digests = {found.get("corpus.digest") for found in facts}
    if None in digests:
        return False, "Not comparable as numbers: a plan does not say which corpus was scored."
    if len(digests) == 1:
        return True, f"One quantity: the same corpus and tokenizer, {rows[0].metric} in {rows[0].unit}."
    text = {path: {found.get(path) for found in facts} for path in _SAME_TEXT}
    if rows[0].unit == BITS_PER_BYTE and all(len(found) == 1 and None not in found for found in text.values()):
        return True, "One quantity: other tokens of as many documents and bytes, counted in bits per byte."
    return False, (
        f"Not comparable as numbers: {rows[0].unit} of different corpora or tokenizers are different quantities. "
        "Only the words stand beside each other."
    )


def _sentences(studies: Sequence[ReportedStudy], groups: Sequence[Group], independent: bool) -> tuple[str, ...]:
    found = [
        "Nothing is pooled and no word is said across studies: each row is the verdict of its own study, by its own "
        "rule and its own family.",
    ]
    if independent:
        found.append(
            "Random streams are keyed by the study's name, so the seeds of these studies are independent draws, also "
            "where they have the same numbers. Studies on one corpus still share its documents."
        )
    elif not all(study.arms for study in studies):
        found.append("A folder without a plan does not say where its seeds come from: independence is not known.")
    else:
        shared = sorted({s.name for s in studies if sum(s.name == other.name for other in studies) > 1})
        found.append(
            f"Not independent: folders of one study's name ({', '.join(shared)}) share random streams seed by seed, so "
            "their agreement is no second piece of evidence."
        )
    if not groups:
        found.append("No contrast of one study has the arms and metric, or the name and metric, of another's.")
    if any(row.word == Word.WAITING.value for study in studies for row in study.contrasts):
        found.append("A study that waits for its planned seeds shows no number here either.")
    return tuple(found)
