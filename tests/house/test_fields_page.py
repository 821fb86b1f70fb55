"""docs/experiment-file.md is what the schema says, and every table of the schema is on it."""

from pathlib import Path

from pydantic import BaseModel

from paribus.experiment import reference

PAGE = Path(__file__).parents[2] / "docs" / "experiment-file.md"


def test_the_page_of_fields_is_that_of_the_schema() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.as_markdown(), (
        "paribus fields --markdown > docs/experiment-file.md"
    )


def test_every_table_that_a_file_can_hold_is_on_the_page() -> None:
    def below(kind: type[BaseModel]) -> set[str]:
        found = set()
        for field in kind.model_fields.values():
            for part in str(field.annotation).replace("[", " ").replace("]", " ").replace("|", " ").split():
                name = part.strip(",'>").rpartition(".")[2]
                found.update(table.__name__ for table in reference.TABLES.values() if table.__name__ == name)
        return found

    reachable = {"Experiment"}
    for table in reference.TABLES.values():
        reachable |= below(table)
    assert {table.__name__ for table in reference.TABLES.values()} <= reachable
    kinds = {f.kind for table in reference.TABLES for f in reference.fields(table)}
    assert all(sentence.sentence for table in reference.TABLES for sentence in reference.fields(table))
    assert "whole number, >= 1" in kinds
