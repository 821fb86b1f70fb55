"""A small installation of documented packages, the same on every machine."""

from pathlib import Path

from paribus.seeds import generator


def write_packages(site: Path) -> tuple[str, ...]:
    """Two packages of 90 modules below `site`: their names. A near repeat, a page that is too short and files that are
    no Python are among them."""
    draw = generator("tests", "prepare", "packages")
    words = ["alpha", "bêta", "gamma", "δ", "epsilon(x)", "zeta=3", "`eta`", "theta.", "12,345", "don't", "漢字"]

    def docstring(count: int) -> str:
        lines = [" ".join(draw.choice(words, size=int(draw.integers(1, 12)))) for _ in range(count)]
        return "\n    ".join(lines)

    names = ("paribus_oak", "paribus_ash")
    for package in names:
        (site / package / "inner").mkdir(parents=True)
        for number in range(45):
            folder = site / package / ("inner" if number % 3 == 0 else "")
            text = f'"""{docstring(int(draw.integers(1, 60)))}"""\n\n\ndef f{number}():\n    """{docstring(30)}"""\n'
            (folder / f"m{number:02d}.py").write_text(text, encoding="utf-8")
        (site / package / "broken.py").write_text("def (", encoding="utf-8")
    for name in ("y", "z"):
        (site / names[0] / f"{name}.py").write_text(f'"""{" ".join(map(str, range(300)))}"""\n', encoding="utf-8")
    (site / names[1] / "short.py").write_text('"""Too short."""\n', encoding="utf-8")
    return names
