"""How often the verdict rule errs and how often it finds what is there: all figures that the rules of evidence ask for.

    python bench/validity/verdicts.py --pages 10000

Each page compares three treatments with one baseline, so its contrasts are correlated through the shared arm; d is the
smallest effect and sd the standard deviation of the paired difference. Words come from the rule on many pages at once
(`words`), which a test holds equal to paribus.stats.verdict.decide.
"""

import argparse

from draws import NOISES
from new_documents import document_entries
from one_look import entries, power_entries
from stages import extension_entries, look_entries
from table import Entry, rendered, standard_error

ONE_LOOK = 10
"""Studies looked at once cost little, and the resampled public seeds err in up to 5.4 %: near what is accepted."""

PREFACE = """\
{pages} simulated studies for each entry, in percent; standard error {at_5:.2f} points at 5 %, at most {at_50:.2f}.
Bits per byte and CORE: the raw values of the 20 public nanochat seeds, resampled. Spikes show what the t interval
cannot do and are held to nothing."""


def main() -> None:
    """Print every table; the last line says how many targets were missed."""
    parser = argparse.ArgumentParser(description="Error rates and power of the verdict rule, by simulation.")
    parser.add_argument("--pages", type=int, default=10_000, help="simulated studies for each entry")
    pages: int = parser.parse_args().pages
    print(PREFACE.format(pages=pages, at_5=standard_error(5, pages), at_50=standard_error(50, pages)))
    found: list[Entry] = []

    def show(title: str, of: list[Entry]) -> None:
        found.extend(of)
        print(f"\n{rendered(title, of)}", flush=True)

    for seeds in (5, 8):
        many = ONE_LOOK * pages
        title = f"One look at S = {seeds} ({many} studies, standard error {standard_error(5, many):.2f} points at 5 %)"
        show(title, [entry for noise in NOISES for entry in entries(many, seeds, noise)])
    show(
        "Power in units of a cell's sd, cells correlating by r over seeds: simulated, and what `paribus power` prints",
        [entry for seeds in (5, 8) for entry in power_entries(pages, seeds)],
    )
    show(
        "Planned looks, and one declared extension whose size depends on stage 1: false words at any look or stage",
        [e for noise in NOISES for e in (*look_entries(pages, noise), *extension_entries(pages, noise))],
    )
    show(
        "New documents: seeds and documents drawn anew",
        [entry for seeds in (5, 8) for entry in document_entries(pages, seeds)],
    )
    judged = [entry for entry in found if entry.reached is not None]
    print(f"\n{sum(entry.reached is True for entry in judged)} of {len(judged)} targets reached")


if __name__ == "__main__":
    main()
