import json
from dataclasses import replace

from steinis_lib.companion import claim_places
from steinis_lib.companion.claim_places import ELSEWHERE, by_section, figure_name, place_of
from steinis_lib.companion.claims import Finding, ledger
from steinis_lib.companion.reading_claims import Judged
from steinis_lib.companion.registry import SECTIONS


def test_every_claim_of_the_ledger_has_a_section_that_is_a_page():
    pages = {f"sections/{section.notebook}" for section in SECTIONS.values()}
    for claim in ledger():
        place = place_of(claim)
        assert place.page in pages and place.name.startswith(f"{place.short}. ")


def test_claims_are_grouped_in_the_order_of_the_book_and_those_of_no_section_come_last():
    found = [
        Finding(c, tuple(Judged(r, r.choices) for r in c.readings)) for c in reversed(ledger())
    ]
    stray = Finding(found[0].claim.model_copy(update={"id": "stray"}), found[0].readings)
    groups = by_section([stray, *found])
    assert [p.short for p in groups] == [*(f"Section {n}" for n in range(1, 7)), ELSEWHERE.short]
    assert groups[ELSEWHERE] == [stray]
    assert sum(map(len, groups.values())) == len(found) + 1


def test_a_figure_is_named_by_the_heading_below_its_label(monkeypatch, tmp_path):
    claim = next(c for c in ledger() if c.id == "rbm-across-d")
    cells = [
        {"cell_type": "code", "source": ["(fig-rbm-dims)=\n", "## Not this one"]},
        {"cell_type": "markdown", "source": ["(fig-rbm-dims)=\n", "## Errors\n", "\n", "Text."]},
        {"cell_type": "markdown", "source": ["(fig-odd)=\n", "## With $x$"]},
    ]
    path = tmp_path / "sections.ipynb"
    path.write_text(json.dumps({"cells": cells}), "utf-8")

    class Written(type(SECTIONS["rbm"])):
        notebook_path = path

    section = SECTIONS["rbm"]
    fields = {name: getattr(section, name) for name in section.__dataclass_fields__}
    written = {name: replace(s) if s is not section else Written(**fields)
               for name, s in SECTIONS.items()}  # fmt: skip
    monkeypatch.setattr(claim_places, "SECTIONS", written)
    monkeypatch.setattr(claim_places, "_headings", claim_places._headings.__wrapped__)
    assert figure_name(claim) == "Figure in Section 4: Errors"
    odd = claim.model_copy(update={"figure": "fig-odd"})
    assert figure_name(odd) == "Figure in Section 4"
