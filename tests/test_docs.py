"""The documentation is true: its code runs, and every public module has its place."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    names: dict[str, object] = {"__name__": "__main__"}
    code = compile("\n".join(blocks), str(page), "exec")
    exec(code, names)
    for name, value in list(names.items()):
        if name.startswith("test_") and callable(value):
            value()


def test_every_module_has_its_place_in_the_reference() -> None:
    text = "".join(
        page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")
    )
    modules = {
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
        for path in (ROOT / "agentrt").rglob("*.py")
        if path.name != "__init__.py"
    }
    told = re.findall(r"automodule:: ([\w.]+)", text)
    assert sorted(told) == sorted([*modules, "agentrt"])


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
