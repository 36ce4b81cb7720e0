"""Plots of a run, as PNG and SVG: whole saves and restores, growth, training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.background import THREAD
from benchmarks.contestants import NO_FSYNC, TENSORFLOW, TFCKPT
from benchmarks.goals import LARGE, RESNET, SMALL, TRANSFORMER
from benchmarks.limits import FSYNC, WRITE_2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.measure import Result

OURS, THEIRS, LIMIT, OTHER = "#1a6fb5", "#e07b28", "#7a7a7a", "#c4c4c4"
LEGEND = {
    OURS: "tfckpt",
    THEIRS: "TensorFlow",
    OTHER: "others",
    LIMIT: "the machine's limit: the bytes alone",
}
GROWTH = ("small2k", "small10k", "small30k")
# Whom a reader would choose between, and the one limit that bounds them; None: as it is called.
SAVERS = {
    TFCKPT: None,
    NO_FSYNC: "tfckpt.Checkpoint, no fsync",
    TENSORFLOW: None,
    "safetensors": None,
    "torch.save": None,
    "Keras .keras": None,
    "Keras .weights.h5 (no optimizer)": "Keras .weights.h5, no optimizer",
    "Orbax StandardCheckpointer": "Orbax",
}
SAVE = SAVERS | {FSYNC: "write + fsync, 2 threads"}
RESTORE = {name: shown for name, shown in SAVERS.items() if name != NO_FSYNC} | {
    WRITE_2: "read, 2 threads"
}
TRAINING = {
    "stall ms": "The call to save returns after, ms",
    "time lost ms": "Five steps and a save take longer by, ms",
    "peak MiB": "Memory on top, MiB",
}


def draw(results: Sequence[Result], directory: Path) -> list[str]:
    """Write what can be drawn of the results; the names of the PNG files."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {
        "figure.facecolor": "white",
        "axes.facecolor": "white",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 10,
        "svg.fonttype": "none",
        "svg.hashsalt": "tfckpt",
    }
    figures = {
        "save": _wholes(results, "save ms", SAVE, "Milliseconds to save, on disk"),
        "restore": _wholes(results, "restore ms", RESTORE, "Milliseconds to restore, from disk"),
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


def _color(contestant: str) -> str:
    if contestant.startswith("tfckpt"):
        return OURS
    if contestant.startswith("tf.") or contestant == THREAD:
        return THEIRS
    return LIMIT if contestant in {FSYNC, WRITE_2} else OTHER


def _bars(axes: Any, rows: Sequence[Result], shown: Mapping[str, str | None], title: str) -> None:
    """A bar for each median, the quickest on top, with a mark where the quickest round is."""
    rows = sorted(rows, key=lambda one: one.median)
    names = [shown.get(one.contestant) or one.contestant for one in rows]
    medians = [one.median for one in rows]
    axes.barh(names, medians, color=[_color(one.contestant) for one in rows])
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
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    axes.set_title(title, loc="left", fontweight="bold", fontsize=10)


def _headed(figure: Any, title: str, colors: Sequence[str]) -> Any:
    """The figure below its title, what is good, and what the colors mean."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    mark = Line2D([], [], marker="|", color="black", linestyle="", label="quickest round")
    patches = [Patch(color=color, label=LEGEND[color]) for color in LEGEND if color in colors]
    inches = figure.get_figheight()
    figure.suptitle(
        f"{title} \u2013 less is better", x=0.01, y=1 - 0.1 / inches, ha="left", va="top"
    )
    figure.legend(
        handles=[*patches, mark],
        loc="upper left",
        bbox_to_anchor=(0.005, 1 - 0.35 / inches),
        ncols=len(patches) + 1,
        frameon=False,
    )
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / inches))
    return figure


def _wholes(
    results: Sequence[Result], measure: str, shown: Mapping[str, str | None], title: str
) -> Any:
    import matplotlib.pyplot as plt

    panels = {}
    for workload, name in (LARGE, TRANSFORMER, RESNET, SMALL):
        rows = [
            one
            for one in results
            if (one.workload, one.case, one.measure) == (workload, f"{name}, disk", measure)
            and one.values
            and one.contestant in shown
        ]
        if rows:
            panels[name] = rows
    if not panels:
        return None
    lines = (len(panels) + 1) // 2
    figure, grid = plt.subplots(lines, 2, figsize=(11, 0.7 + 2.9 * lines), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (name, rows) in zip(grid.flat, panels.items(), strict=False):
        _bars(axes, rows, shown, name)
    return _headed(
        figure, title, [_color(one.contestant) for rows in panels.values() for one in rows]
    )


def _growth(results: Sequence[Result]) -> Any:
    """Small values: time by their number."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator, NullLocator

    figure, grid = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
    counts: set[int] = set()
    for axes, measure in zip(grid, ("save ms", "restore ms"), strict=True):
        for contestant, color in ((TENSORFLOW, THEIRS), (TFCKPT, OURS)):
            points = [
                (int(one.case.partition(" ")[0].replace(",", "")), one.median)
                for one in results
                if one.workload in GROWTH
                and one.case.endswith("disk")
                and (one.contestant, one.measure) == (contestant, measure)
            ]
            counts |= {count for count, _ in points}
            if points:
                axes.plot(*zip(*sorted(points), strict=True), "o-", color=color, label=contestant)
        axes.set(xscale="log", yscale="log", xlabel="values of 1 KiB")
        axes.xaxis.set_major_locator(FixedLocator(sorted(counts)))
        axes.xaxis.set_minor_locator(NullLocator())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.0f}")
        axes.set_title(measure.removesuffix(" ms"), loc="left", fontweight="bold", fontsize=10)
        axes.grid(visible=True, which="both", color="#eeeeee")
    if not counts:
        plt.close(figure)
        return None
    grid[0].legend(frameon=False)
    figure.suptitle(
        "Milliseconds by the number of values, on disk \u2013 less is better", x=0.01, ha="left"
    )
    figure.tight_layout()
    return figure


def _training(results: Sequence[Result]) -> Any:
    import matplotlib.pyplot as plt

    panels = {
        title: [r for r in results if (r.workload, r.measure) == ("training", m) and r.values]
        for m, title in TRAINING.items()
    }
    if not all(panels.values()):
        return None
    figure, grid = plt.subplots(1, 3, figsize=(14, 2.9))
    for axes, (title, rows) in zip(grid, panels.items(), strict=True):
        _bars(axes, rows, {THREAD: "SaveV2 in a thread"}, title)
    case = next(iter(panels.values()))[0].case
    colors = [_color(one.contestant) for rows in panels.values() for one in rows]
    return _headed(figure, f"A save while a model trains ({case})", colors)
