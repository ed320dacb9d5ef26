"""Tables of the benchmarks' results, as Markdown for the terminal and for the book."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

RESULTS = [Path(__file__).with_name(name) for name in ("results.json", "pooled.json")]
"""What was measured, in one run each."""

BENCHMARKS = ("svgd", "annealing", "straightforward", "limit", "pooled", "workers")

NOT_RUN = "not run"

Row = dict[str, Any]


def table(report: dict[str, Any], name: str) -> str:
    """Return the table of one benchmark, and below it what is to be said of its cases."""
    rows = report.get("results", {}).get(name, [])
    if not rows:
        return f"*{NOT_RUN}*\n"
    if name == "limit":
        return _limit(rows)
    if name == "pooled":
        return _pooled(rows)
    return _workers(rows) if name == "workers" else _compared(rows)


def machine(report: dict[str, Any]) -> str:
    """Return a sentence on when, on what and with what the results were measured."""
    if not report:
        return f"*{NOT_RUN}*\n"
    about = report["machine"]
    peers = "".join(f", {name} {version}" for name, version in about["peers"].items())
    gpu, threads = about.get("gpu", NOT_RUN), report["settings"]["threads"]
    count = f"{threads} thread{'s' if threads > 1 else ''}"
    return (
        f"Measured on {about['created'][:10]} on {about['machine']}, with {count}, "
        f"PyTorch {about['torch']}{peers}; GPU: {gpu}.\n"
    )


def faster_peers(rows: list[Row]) -> list[str]:
    """Return a sentence on each peer: in which cases it takes less time than we do."""
    sentences = []
    for name in _peers(rows):
        cases = [r for r in rows if name in r["ratio"]]
        faster = [r for r in cases if r["ratio"][name]["median"] < 1]
        listed = "; ".join(
            f"{_setting(r)}{' on a GPU' if r['device'] == 'cuda' else ''} "
            f"({r['ratio'][name]['median']:.2g})"
            for r in faster
        )
        count = f"{name} is faster than we are in {len(faster)} of {len(cases)} cases"
        sentences.append(f"{count}: {listed}." if faster else f"{count}.")
    return sentences


def _compared(rows: list[Row]) -> str:
    """Peers beside us: how many times as long as ours they take."""
    peers, names = _peers(rows), list(rows[0]["setting"])
    lines = _head([*names, "ours", *peers, "GPU"])
    for setting, on in _by_setting(rows).items():
        cells, cpu, gpu = list(setting), on.get("cpu"), on.get("cuda")
        cells.append(_time(cpu["seconds"][cpu["ours"]]["median"]) if cpu else NOT_RUN)
        cells += [_ratio(cpu["ratio"].get(name)) if cpu else NOT_RUN for name in peers]
        listed = [f"{name} {_ratio(gpu['ratio'].get(name))}" for name in peers] if gpu else []
        lines.append(_line([*cells, ", ".join(listed) or NOT_RUN]))
    return "\n".join([*lines, "", *(f"- {text}" for text in faster_peers(rows))]) + "\n"


def _limit(rows: list[Row]) -> str:
    """Parts of a transition: their share of the least time that the machine allows."""
    lines = _head([*rows[0]["setting"], "time", "Gflop", "MB", "share of the bound", "GPU"])
    for setting, on in _by_setting(rows).items():
        cells, any_row = list(setting), next(iter(on.values()))
        cells.append(_time(on["cpu"]["seconds"]["median"]) if "cpu" in on else NOT_RUN)
        cells += [f"{any_row['flops'] / 1e9:.3g}", f"{any_row['bytes'] / 1e6:.3g}"]
        cells += [_share(on[name]["share"]) if name in on else NOT_RUN for name in ("cpu", "cuda")]
        lines.append(_line(cells))
    lines.append("")
    for device in dict.fromkeys(r["device"] for r in rows):
        for floats in dict.fromkeys(r["setting"]["floats"] for r in rows):
            r = next(r for r in rows if r["device"] == device and r["setting"]["floats"] == floats)
            lines.append(
                f"- {floats}, {device}: {r['flops_per_second']['median'] / 1e9:.0f} Gflop/s in a "
                f"square product, {r['bytes_per_second']['median'] / 1e9:.0f} GB/s moved."
            )
    return "\n".join(lines) + "\n"


def _pooled(rows: list[Row]) -> str:
    """A transition of SteinIS with a pool: how many times as long HAIS takes, and its products."""
    lines = _head([*rows[0]["setting"], "ours", "HAIS-1L / ours", "share of products", "GPU"])
    for setting, on in _by_setting(rows).items():
        cells, cpu, gpu = list(setting), on.get("cpu"), on.get("cuda")
        cells.append(_time(cpu["seconds"][cpu["ours"]]["median"]) if cpu else NOT_RUN)
        cells.append(_ratio(cpu["ratio"]["HAIS-1L"]) if cpu else NOT_RUN)
        cells.append(_share(cpu["share_of_products"]) if cpu else NOT_RUN)
        cells.append(_ratio(gpu["ratio"]["HAIS-1L"]) if gpu else NOT_RUN)
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def _workers(rows: list[Row]) -> str:
    """Throughput as ratios to one process."""
    lines = _head(["", *rows[0]["ratio"]])
    for r in rows:
        one = r["chunks_per_second"]["1 process"]["median"]
        others = [_ratio(v) for name, v in r["ratio"].items() if name != "1 process"]
        lines.append(_line([r["setting"]["rate"], f"1 ({one:.2g} chunks/s)", *others]))
    return "\n".join(lines) + "\n"


def _peers(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for r in rows for name in r["ratio"]))


def _by_setting(rows: list[Row]) -> dict[tuple[str, ...], dict[str, Row]]:
    """Rows of each setting, by device."""
    found: dict[tuple[str, ...], dict[str, Row]] = {}
    for r in rows:
        found.setdefault(tuple(map(str, r["setting"].values())), {})[r["device"]] = r
    return found


def _setting(row: Row) -> str:
    return ", ".join(
        f"{k} = {v}" if isinstance(v, int) else str(v) for k, v in row["setting"].items()
    )


def _ratio(value: dict[str, float] | None) -> str:
    if value is None:
        return "–"
    middle, low, high = (f"{value[k]:.3g}" for k in ("median", "quartile_1", "quartile_3"))
    return f"{middle} ({low} to {high})"


def _share(value: dict[str, float]) -> str:
    middle, low, high = (f"{value[k]:.0%}" for k in ("median", "quartile_1", "quartile_3"))
    return f"{middle} ({low} to {high})"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(names: list[str]) -> list[str]:
    return [_line(names), _line(["---"] * len(names))]


def _of(reports: list[dict[str, Any]], name: str) -> str:
    """Return the table of one benchmark, with where it was measured if not as the first report."""
    report = next((r for r in reports if r.get("results", {}).get(name)), {})
    about = f"\n{machine(report)}" if report and report is not reports[0] else ""
    return table(report, name) + about


def main() -> None:
    """Write each table to a file of its own, for the book, and that on the machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, nargs="+", default=RESULTS)
    parser.add_argument("--folder", type=Path, required=True, help="where benchmarks_*.md go")
    args = parser.parse_args()
    reports = [json.loads(path.read_text("utf-8")) for path in args.results if path.exists()] or [
        {}
    ]
    texts = {name: _of(reports, name) for name in BENCHMARKS} | {"machine": machine(reports[0])}
    for name, text in texts.items():
        (args.folder / f"benchmarks_{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
