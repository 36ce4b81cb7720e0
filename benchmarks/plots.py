"""Plots of a run, as PNG and SVG: whole saves and restores, growth, training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.contestants import TENSORFLOW, TFCKPT
from benchmarks.goals import LARGE, RESNET, SMALL, TRANSFORMER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.measure import Result

OURS, THEIRS, LIMIT, OTHER = "#1a6fb5", "#e07b28", "#8a8a8a", "#c9c9c9"
GROWTH = ("small2k", "small10k", "small30k")


def draw(results: Sequence[Result], directory: Path) -> list[str]:
    """Write what can be drawn of the results; the names of the PNG files."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {
        "figure.facecolor": "white",
        "axes.facecolor": "white",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": "tfckpt",
    }
    figures = {
        "save": _wholes(results, "save ms"),
        "restore": _wholes(results, "restore ms"),
        "growth": _growth(results),
        "training": _training(results),
    }
    names = []
    for name, figure in figures.items():
        if figure is not None:
            figure.savefig(directory / f"{name}.png", dpi=150)
            figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
            names.append(f"{name}.png")
    return names


def _colour(contestant: str) -> str:
    if contestant.startswith("tfckpt"):
        return OURS
    if contestant.startswith("tf."):
        return THEIRS
    return LIMIT if contestant.startswith("write") else OTHER


def _bars(axes: Any, rows: Sequence[Result], title: str, label: str) -> None:
    """A bar for each median, the quickest on top, with a mark where the least is."""
    rows = sorted(rows, key=lambda one: one.median)
    names = [one.contestant for one in rows]
    medians = [one.median for one in rows]
    axes.barh(names, medians, color=[_colour(name) for name in names])
    axes.scatter([one.least for one in rows], names, marker="|", color="black", zorder=3)
    for name, median in zip(names, medians, strict=True):
        axes.annotate(
            f"{median:,.0f}" if median >= 10 else f"{median:.2g}",
            (max(median, 0), name),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(label)
    axes.set_title(title, loc="left", fontweight="bold")


def _wholes(results: Sequence[Result], measure: str) -> Any:
    import matplotlib.pyplot as plt

    cases = [
        (workload, f"{title}, disk") for workload, title in (LARGE, TRANSFORMER, RESNET, SMALL)
    ]
    shown = {
        case: [
            one
            for one in results
            if (one.workload, one.case, one.measure) == (workload, case, measure) and one.values
        ]
        for workload, case in cases
    }
    shown = {case: rows for case, rows in shown.items() if rows}
    if not shown:
        return None
    figure, grid = plt.subplots(
        (len(shown) + 1) // 2, 2, figsize=(13, 3.9 * ((len(shown) + 1) // 2)), squeeze=False
    )
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, (case, rows) in zip(grid.flat, shown.items(), strict=False):
        _bars(axes, rows, case, f"{measure.removesuffix(' ms')}, milliseconds (mark: least)")
    figure.tight_layout()
    return figure


def _growth(results: Sequence[Result]) -> Any:
    """Small values: time by their number."""
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
    drawn = False
    for axes, measure in zip(grid, ("save ms", "restore ms"), strict=True):
        for contestant, colour in ((TENSORFLOW, THEIRS), (TFCKPT, OURS)):
            points = [
                (int(one.case.partition(" ")[0].replace(",", "")), one.median)
                for one in results
                if one.workload in GROWTH
                and one.case.endswith("disk")
                and (one.contestant, one.measure) == (contestant, measure)
            ]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), "o-", color=colour, label=contestant)
                drawn = True
        axes.set(xscale="log", yscale="log", xlabel="values of 1 KiB, on disk")
        axes.set_title(measure.removesuffix(" ms"), loc="left", fontweight="bold")
        axes.grid(visible=True, which="both", color="#eeeeee")
    if not drawn:
        plt.close(figure)
        return None
    grid[0].set_ylabel("milliseconds")
    grid[0].legend(frameon=False)
    figure.tight_layout()
    return figure


def _training(results: Sequence[Result]) -> Any:
    import matplotlib.pyplot as plt

    measures = ("stall ms", "time lost ms", "peak MiB")
    labels = (
        "training waits for the call, milliseconds (mark: least)",
        "five steps take longer by, milliseconds (mark: least)",
        "peak of memory above training alone, MiB",
    )
    shown = [
        [r for r in results if (r.workload, r.measure) == ("training", m) and r.values]
        for m in measures
    ]
    if not all(shown):
        return None
    figure, grid = plt.subplots(1, 3, figsize=(15, 3))
    for axes, rows, label in zip(grid, shown, labels, strict=True):
        _bars(axes, rows, rows[0].case, label)
    figure.tight_layout()
    return figure
