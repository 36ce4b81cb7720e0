"""A plan as lines of text: what it says by data, without its sentences and its paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golden.lines import joined, typed

if TYPE_CHECKING:
    from tfckpt import Plan


def plan_lines(plan: Plan) -> list[str]:
    """The verdict, then the steps, by status; many in a line, as names are.

    What is loaded by its own name, as it is, is counted: its name is among the golden names.
    """
    document = plan.to_json()
    verdict = ["ok" if document["ok"] else "refused"]
    if document["problems"]:
        verdict.append(f"problems {len(document['problems'])}")
    if document["training_state"]:
        verdict.append(f"training {' '.join(document['training_state'])}")
    groups: dict[str, list[tuple[str, str, str]]] = {status: [] for status in document["counts"]}
    plain = 0
    for step in document["steps"]:
        line = _line(step)
        if step["status"] == "LOADED" and line == (step["name"], "", ""):
            plain += 1
        else:
            groups[step["status"]].append(line)
    verdict.append(f"{plain} by their own names")
    steps = [f"{word} {line}" for word, group in groups.items() for line in joined(group)]
    return [", ".join(verdict), *steps]


def _line(step: dict[str, Any]) -> tuple[str, str, str]:
    """Name, source, and what else is not as one expects of a value that is loaded."""
    name, live, stored = step["name"], step["live"], step["stored"]
    sources = [step["source"], *(part["source"] for part in step["parts"])]
    said = [] if step["severity"] == "ok" else [step["severity"]]
    if step["target"] not in ("", step["source"]):
        said.append(f"for {step['target']}")
    if live and stored and (live["dtype"], live["shape"]) != (stored["dtype"], stored["shape"]):
        said.append(f"{typed(**_kind(stored))} → {typed(**_kind(live))}")
    said += [each["how"] for each in step["changes"]]
    if not name:
        return f"<- {step['source']}", "", " ".join(said)
    source = " + ".join(each for each in sources if each)
    return name, "" if source == name else source, " ".join(said)


def _kind(value: dict[str, Any]) -> dict[str, Any]:
    return {key: value[key] for key in ("dtype", "shape")}
