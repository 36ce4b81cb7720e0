"""Random pairs of models without Keras: no plan puts a value into a layer that it is not of.

What tfckpt knows of the models is simulated, the plans are its own. The floors of
``zoo/pairs/simulated.yaml`` hold for a range of pairs; a restore that is refused more often than
there is worse, and so is a wrong one that the lists do not have. A pair that is restored rightly
comes off its list. The policies that refusals suggest are held in the same way, over fewer pairs.

Of a live model, a record of tfckpt and a checkpoint of plain TensorFlow, the simulation is exact,
but for the inputs of models, which have no weights, and for digests of settings, which have another
text.
"""

import random
from collections import Counter, defaultdict
from pathlib import Path

import keras
import pytest
import tensorflow as tf
import yaml
from zoo.pairs.build import NotAModelError, built, start_anew
from zoo.pairs.cases import case
from zoo.pairs.object_graph import written
from zoo.pairs.objects import Objects, recorded
from zoo.pairs.simulated import MISPLACED, PART, POLICIES, RIGHT, WRITERS, Pair, pairs, search

import tfckpt
from tfckpt.live.inventory import collect
from tfckpt.stored.formats.open import open_checkpoint

KNOWN = yaml.safe_load((Path(__file__).parents[1] / "zoo/pairs/simulated.yaml").read_text())
START, NUMBER = KNOWN["range"].values()
PASTED = KNOWN["pasted"]


@pytest.fixture(scope="module")
def found():
    """What became of the range."""
    searches = search(pairs(START, NUMBER))
    print(*searches.values(), sep="\n")
    return searches


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_misplaced_and_nothing_refused_that_is_the_same(found, writer) -> None:
    wrong, refused = found[writer].wrong, found[writer].refused
    assert wrong.keys() == KNOWN["wrong"][writer].keys(), f"wrong without a word:\n{wrong}"
    known = KNOWN["refused"] if writer == "tfckpt" else {}
    assert refused.keys() == known.keys(), f"refused, though the same:\n{refused}"


@pytest.mark.parametrize("writer", WRITERS)
def test_as_many_are_restored_as_before(found, writer) -> None:
    restored, floors = found[writer].restored, KNOWN["restored"][writer]
    assert all(restored[policy] >= floors[policy] for policy in POLICIES), restored


@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_refusal_suggests_is_right(writer) -> None:
    some = [*pairs(START, PASTED["pairs"]), *((at, Pair(case(at))) for at in PASTED["also"])]
    tried = [(at, pair) for at, pair in some if writer == "tfckpt" or pair.case.shown]
    verdicts = {at: pair.pasted(writer) for at, pair in tried}
    assert not {at: each for at, each in verdicts.items() if each.word in (MISPLACED, PART)}
    right = Counter(verdict.word for verdict in verdicts.values())[RIGHT]
    assert right >= PASTED["right"][writer], right


@pytest.mark.long
def test_what_is_suggested_for_thousands_of_other_pairs_is_right() -> None:
    start = random.SystemRandom().randrange(1 << 32)
    for at, pair in pairs(start, 4000):
        for writer in WRITERS if pair.case.shown else WRITERS[:1]:
            verdict = pair.pasted(writer)
            assert verdict.word not in (MISPLACED, PART), (at, writer, verdict)


@pytest.mark.long
def test_twenty_thousand_other_pairs() -> None:
    """Of pairs that nobody has looked at, one in thousands is known to be wrong."""
    start = random.SystemRandom().randrange(1 << 32)
    for each in search(pairs(start, 20_000)).values():
        print(f"seed {start}: {each}\n{each.wrong}")
        assert len(each.wrong) <= 12
        assert len(each.refused) <= 8


@pytest.mark.parametrize("count", [16, pytest.param(200, marks=pytest.mark.long)])
def test_simulated_models_are_those_of_keras(tmp_path, count) -> None:
    flavours = keras, pytest.importorskip("tf_keras")
    for at in range(2000, 2000 + count):
        flavour, pair = flavours[at % 2], case(at)
        start_anew(flavour)
        try:
            model = built(flavour, pair.second)
        except NotAModelError:
            with pytest.raises(NotAModelError):
                Objects(pair.second, Counter(), pair.flavour)
            continue
        simulated = Objects(pair.second, Counter(), pair.flavour)
        live = collect({"model": model})
        read = {"roots": live.roots, "bases": live.weak_bases}
        assert known(live.inventory) == known(simulated.collected), pair.second
        for library, found in (
            (tfckpt, recorded(simulated.collected)),
            (tf.train, written(simulated, simulated.collected).inventory),
        ):
            path = library.Checkpoint(model=model).save(f"{tmp_path}/{at} {library.__name__}")
            with open_checkpoint(path, **read) as file:
                assert known(file.inventory) == known(found), pair.second


def known(inventory):
    """All that a plan of such a model depends on."""
    held = {
        path: each
        for path, each in inventory.containers.items()
        if not all("input" in layer.own for layer in each.layers)
    }
    alike = defaultdict(list)  # layers by their settings
    for path, each in held.items():
        for layer in each.layers:
            alike[layer.cls, layer.settings].append(f"{path}/{layer.place}")
    fields = ("name", "role", "dtype", "shape", "nbytes")
    return {
        "entries": [[getattr(e, field) for field in fields] for e in inventory.entries.values()],
        "containers": {
            path: each._replace(layers=tuple(x._replace(settings="") for x in each.layers))
            for path, each in held.items()
        },
        "alike": sorted(map(sorted, alike.values())),
        "listings": {path: paths for path, paths in inventory.listings.items() if paths},
        **{
            field: getattr(inventory, field)
            for field in ("aliases", "private", "complete", "roots")
        },
    }
