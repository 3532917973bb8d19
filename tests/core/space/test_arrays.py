"""Candidates as arrays: where values lie, and how far apart texts are."""

import numpy as np
import pytest

from convergence_core.records import Params
from convergence_core.space import Choice, Float, Integer, Space
from convergence_core.space.arrays import Encoding
from tests.support.random_spaces import points, random_space

SPACE = Space(
    parameters={
        "model": Choice(kind="categorical", choices=("small", "large")),
        "temperature": Float(min=0.0, max=2.0),
        "rag": Choice(kind="boolean", choices=(False, True)),
        "k": Integer(min=1, max=5, when=(("rag", (True,)),)),
        "style": Choice(kind="categorical", choices=("a", "b", "c"), when=(("rag", (True,)),)),
    }
)


def text_distances(*texts: str) -> np.ndarray:
    choice = Choice(kind="text", choices=texts, names=tuple(f"{i}.md" for i in range(len(texts))))
    (distance,) = Encoding.of(Space(parameters={"prompt": choice})).distances
    return distance


def test_numbers_come_before_choices_and_inactive_ones_are_marked():
    encoding = Encoding.of(SPACE)
    assert encoding.names == ("temperature", "k", "model", "rag", "style")
    genes = encoding.genes(
        [
            {"model": "large", "temperature": 0.5, "rag": True, "k": 2, "style": "c"},
            {"model": "small", "temperature": 2.0, "rag": False},
        ]
    )
    assert genes == pytest.approx(
        np.array([[0.25, 0.25, 1, 1, 2], [1, np.nan, 0, 0, np.nan]]), nan_ok=True
    )
    places = encoding.places(genes)
    assert places.numbers == pytest.approx(np.array([[0.25, 0.25], [1, 0.5]]))
    assert places.codes.tolist() == [[1, 1, 2], [0, 0, 3]]


@pytest.mark.parametrize("seed", range(8))
def test_different_points_have_different_genes_and_places_keep_their_order(seed):
    space = random_space(seed)
    encoding = Encoding.of(space)
    some = points(space, 40, np.random.default_rng(seed))
    genes = encoding.genes(some)
    assert len(np.unique(np.nan_to_num(genes, nan=-1.0), axis=0)) == len(some)
    places = encoding.places(genes)
    assert len(places) == len(some)
    assert ((places.numbers >= 0) & (places.numbers <= 1)).all()
    again = encoding.encode(some)
    assert np.array_equal(places.numbers, again.numbers)
    assert np.array_equal(places.codes, again.codes)
    rows = np.array([3, 0])
    joined = places.take(rows).join(places.take(rows[:1]))
    assert np.array_equal(joined.codes, places.codes[[3, 0, 3]])
    assert np.array_equal(joined.numbers, places.numbers[[3, 0, 3]])


@pytest.mark.parametrize(
    "space",
    [
        Space(parameters={"x": Float(min=0, max=1)}),
        Space(parameters={"c": Choice(kind="boolean", choices=(False, True))}),
    ],
    ids=["numbers only", "choices only"],
)
def test_spaces_of_one_kind_can_be_encoded(space):
    some: list[Params] = [space.sample(np.random.default_rng(seed)) for seed in range(3)]
    places = Encoding.of(space).encode(some)
    assert places.numbers.shape == (3, "x" in space.parameters)
    assert places.codes.shape == (3, "c" in space.parameters)
    assert len(Encoding.of(space).encode([])) == 0


def test_categories_are_equally_far_apart_and_from_not_active():
    (_, _, style) = Encoding.of(SPACE).distances
    assert np.array_equal(style, 1.0 - np.eye(4))


def test_texts_that_share_words_are_near():
    distance = text_distances(
        "Answer briefly and cite your sources",
        "Answer briefly and cite two sources",
        "Think step by step, then reply with JSON only",
    )
    assert np.allclose(np.diag(distance), 0.0, atol=0.0)
    assert np.allclose(distance, distance.T)
    assert distance[0, 1] < 0.4
    assert min(distance[0, 2], distance[1, 2]) > 0.7
    assert np.array_equal(distance[3, :3], np.ones(3))  # not active


def test_the_order_of_words_and_their_case_count_as_documented():
    distance = text_distances("cite the source", "Cite  the SOURCE", "source the cite")
    assert distance[0, 1] == pytest.approx(0.0, abs=1e-12)
    assert 0.1 < distance[0, 2] < 0.6
