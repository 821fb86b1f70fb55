"""`paribus tunnel` in the terminal: the table of the page, how its tasks were calibrated, and what no row predicts."""

from rich.console import Console

from paribus.report.of_tasks import CAUTION, TunnelContent
from paribus.report.tables import to_text
from paribus.report.tunnel_door import due_tunnel
from paribus.report.tunnel_table import head_of, tally_of, tunnel_table
from paribus.stats.power import count_of
from paribus.tunnel.running import Outcome


def show(content: TunnelContent, console: Console) -> None:
    """Print the rows as far as they may be shown."""
    shown = due_tunnel(content)
    table = tunnel_table(shown)
    width = console.width if console.is_terminal else None
    lines = ["", f"Wind tunnel, {head_of(shown)}. {tally_of(shown)}", ""]
    lines += [to_text(table, width), *([table.note] if table.note else []), ""]
    calibrations = {f"{task}: {said}." for task, said in shown.difficulty.items()}
    lines += [f"difficulty of {task}: {said}" for task, said in shown.difficulty.items()]
    # What is doubtful of a calibration is among the page's caveats too.
    lines += [f"note: {caveat}" for caveat in shown.caveats if caveat not in calibrations] + [CAUTION]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def require_results(outcome: Outcome, page: str = "") -> None:
    """Raise what kept tasks from a result, as one error of the first one's kind. Nothing where all have one."""
    if not outcome.failures:
        return
    first = next(iter(outcome.failures.values()))
    tasks = list(outcome.failures)
    if len(tasks) == 1 and not outcome.experiments:
        raise first
    same = len({(error.what, error.received) for error in outcome.failures.values()}) == 1
    because = [first.what, first.received] if same else [f"{task}: {e.what}" for task, e in outcome.failures.items()]
    remedy = first.remedy if same or len(tasks) == 1 else ""
    kept = f"; finished tasks are kept: {page}" if outcome.experiments else ""
    raise type(first)(
        f"no result for {len(tasks)} of {count_of(len(tasks) + len(outcome.experiments), 'task')} ({', '.join(tasks)})",
        expected=first.expected,
        received="; ".join(filter(None, because)),
        remedy=f"{remedy or 'mend it and run the same command again'}{kept}",
    )
