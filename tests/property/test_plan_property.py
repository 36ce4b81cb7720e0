"""What holds for every policy and every two inventories."""

import dataclasses
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from zoo.entries import layer, sequence

from tfckpt.core.inventory import Entry, Inventory, Layer, Role
from tfckpt.planning import Status, make_plan, render_text
from tfckpt.planning.checks.comparison import Comparison
from tfckpt.planning.matching.routing import Router
from tfckpt.policy import Policy

LAYERS = ("dense", "dense_1", "dense_2", "conv", "head")
names = st.builds(
    "model/{}/{}".format,
    st.sampled_from((*LAYERS, "layer_with_weights-1")),
    st.sampled_from(("w", "b")),
)
dtypes = st.sampled_from(("float32", "float16", "int64", "string"))
shapes = st.sampled_from(((), (1,), (2, 3), None))
weights = st.builds(Entry, names, st.just(Role.WEIGHT), dtypes, shapes, st.just(4))
slots = st.builds(
    lambda of, slot: Entry(
        f"optimizer/{slot}/{of.removeprefix('model/')}",
        Role.SLOT,
        "float32",
        (2,),
        8,
        slot=slot,
        of=of,
    ),
    names,
    st.sampled_from(("momentum", "velocity")),
)
others = st.sampled_from(
    (
        Entry("optimizer/iterations", Role.ITERATIONS, "int64", (), 8),
        Entry("optimizer/learning_rate", Role.HYPERPARAMETER, "float32", (), 4),
        Entry("seed/dropout", Role.SEED, "uint32", (2,), 8),
        Entry("metrics/loss/total", Role.METRIC, "float32", (), 4),
        Entry("save_counter", Role.STATE, "int64", (), 8),
    )
)
UNTOLD = "layer_with_weights-1"
layers = st.lists(
    st.tuples(st.sampled_from((*LAYERS, UNTOLD)), st.sampled_from(("", "", "a", "b"))),
    unique_by=lambda found: found[0],
).map(
    lambda found: tuple(
        Layer(name) if name == UNTOLD else layer(f"{name}?" if "dense" in name else name)
        for name, _ in found
    )
)
inventories = st.builds(
    lambda entries, stack, aliases, kind, complete: Inventory(
        "here",
        {entry.name: entry for entry in entries},
        containers={"model": sequence(*stack)},
        aliases=aliases,
        optimizers={"optimizer": kind},
        complete=complete,
    ),
    st.lists(weights | slots | others, max_size=12),
    layers,
    st.sampled_from(({}, {"model/tied": "model/dense"}, {"model/conv": "model/head"})),
    st.sampled_from(("", "adam", "sgd")),
    st.booleans(),
)
selectors = st.lists(
    st.sampled_from(("model/**", "model/dense*/**", "**/b", "optimizer/**", "nothing/*")),
    max_size=2,
    unique=True,
).map(tuple)
renames = st.lists(
    st.sampled_from(
        (
            {"checkpoint": "model/dense/**", "model": "model/head/**"},
            {"checkpoint": "model/*/w", "model": "model/*/b"},
            {"checkpoint": "optimizer/momentum/**", "model": "optimizer/velocity/**"},
            {"checkpoint": "model/conv/*", "model": ["model/conv/*", "model/dense_2/*"]},
        )
    ),
    max_size=2,
    unique_by=str,
).map(tuple)
adaptations = st.lists(
    st.sampled_from(
        (
            {"how": "transpose", "model": "model/dense/*"},
            {"how": "cast", "casting": "any", "model": "**"},
            {"how": "reshape", "model": "**/w"},
            {"how": "pad", "value": 0, "model": "optimizer/**"},
            {"how": "split", "checkpoint": "model/dense/*",
             "model": ["model/dense_1/*", "model/conv/*"], "axis": 0},
            {"how": "concat", "checkpoint": ["model/conv/*", "model/head/*"],
             "model": "model/head/*", "axis": -1},
        )
    ),
    max_size=3,
    unique_by=str,
).map(tuple)  # fmt: skip
actions = st.sampled_from(("error", "warn", "ignore"))
policies = st.builds(
    Policy,
    api=st.sampled_from(("restore", "read")),
    include=selectors.map(lambda found: found or ("**",)),
    exclude=selectors,
    exclude_checkpoint=selectors,
    rename=renames,
    adapt=st.just(()) | adaptations,
    expect_missing=selectors,
    expect_unexpected=selectors,
    on_missing=actions,
    on_unexpected=actions,
    on_shape_mismatch=st.sampled_from(("error", "skip")),
    on_dtype_mismatch=st.sampled_from(("error", "cast")),
    match=st.sampled_from((("name",), ("structure",), ("name", "structure"))),
    optimizer=st.fixed_dictionaries(
        {
            "slots": st.sampled_from(("restore", "reset")),
            "iterations": st.sampled_from(("restore", "reset")),
            "hyperparameters": st.sampled_from(("restore", "config")),
        }
    ),
    training_state=st.sampled_from((("seeds",), ())),
    allow_empty=st.booleans(),
    min_restored=st.none() | st.floats(0, 1),
)


@given(policies, inventories, inventories, st.randoms())
def test_what_holds_for_every_plan(policy, stored, live, random):
    plan = make_plan(policy, stored, live)
    # every value ends in a step, and every live one in exactly one
    assert sorted(step.name for step in plan.steps if step.name) == sorted(live.entries)
    sources = [step.source for step in plan.steps if step.source]
    sources += [part.name for step in plan.steps for part in step.parts]
    assert set(sources) == set(stored.entries)
    several = any(len(rule.model) > 1 for rule in policy.rename) or policy.adapt
    if not stored.aliases and not several:  # else one value may fill two here
        assert len(sources) == len(stored.entries)
    for step in plan.steps:
        assert step.live is live.entries.get(step.name)
        assert step.stored is stored.entries.get(step.source)
    # what is assigned fits
    for step in plan.assignments:
        made = step.changes[-1].after[0] if step.changes else step.stored
        assert made.shape == step.live.shape
        cast = policy.on_dtype_mismatch == "cast" if step.changes else step.status is Status.CAST
        assert made.dtype == step.live.dtype or cast
        assert bool(step.changes) == (step.status is Status.ADAPTED)
        assert len(step.reads) == 1 or any(change.how == "concat" for change in step.changes)
        if step.live.of and not (policy.rename or policy.adapt) and policy.match != ("structure",):
            pair = step.live.of, step.stored.of
            assert len(set(pair)) == 1 or UNTOLD in pair[1] or live.aliases or stored.aliases
        assert step.live.role is not Role.SLOT or policy.optimizer.slots == "restore"
    # the report counts its values
    report = render_text(plan)
    for status, count in plan.counts.items():
        assert any(line.split()[:2] == [status.value, str(count)] for line in report.splitlines())
    assert ("refused" in report.splitlines()[0]) == (not plan.ok)

    # the order of values does not matter
    def shuffled(inventory):
        entries = list(inventory.entries.items())
        random.shuffle(entries)
        return dataclasses.replace(inventory, entries=dict(entries))

    assert make_plan(policy, shuffled(stored), shuffled(live)) == plan


@given(inventories)
def test_restoring_an_inventory_into_itself_loads_all_of_it(inventory):
    plan = make_plan(Policy(allow_empty=True), inventory, inventory)
    assert plan.ok
    assert {step.status for step in plan.steps} <= {Status.LOADED}
    assert [step.name for step in plan.steps] == [step.source for step in plan.steps]


@settings(max_examples=250)
@given(st.just(Policy()) | policies, inventories, inventories)
def test_what_goes_straight_to_its_own_name_is_what_the_long_way_finds(policy, stored, other):
    live = dataclasses.replace(other, entries={**stored.entries, **other.entries})
    plan = make_plan(policy, stored, live)
    with (
        mock.patch.object(Router, "straight", return_value=None),
        mock.patch.object(Router, "nowhere", return_value=False),
        mock.patch.object(Comparison, "plain", return_value=False),
    ):
        long = make_plan(policy, stored, live)
    assert plan == long
    assert render_text(plan) == render_text(long)
