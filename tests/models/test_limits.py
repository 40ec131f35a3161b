"""References and what a catalog knows of them."""

import pytest

from agentrt.core.errors import ModelReferenceError
from agentrt.models.limits import ModelCatalog, ModelSpec, split_ref


def test_a_reference_is_split_at_the_first_slash() -> None:
    assert split_ref("openai/gpt") == ("openai", "gpt")
    assert split_ref("hub/org/model") == ("hub", "org/model")


@pytest.mark.parametrize("ref", ["", "gpt", "/gpt", "openai/", "/"])
def test_a_reference_of_another_form_is_refused(ref: str) -> None:
    with pytest.raises(ModelReferenceError, match="expected 'vendor/model-id'"):
        split_ref(ref)
    with pytest.raises(ModelReferenceError):
        ModelSpec(ref="a/b", fallbacks=[ref])


def test_a_catalog_knows_what_was_put_in() -> None:
    spec = ModelSpec(ref="a/b", context_limit=100)
    catalog = ModelCatalog([spec])
    assert catalog.find("a/b") is spec
    assert (catalog.context_limit("a/b"), catalog.context_limit("c/d")) == (100, None)
    assert catalog.find("c/d") is None


def test_a_model_is_in_a_catalog_once() -> None:
    with pytest.raises(ValueError, match="'a/b' is in the catalog twice"):
        ModelCatalog([ModelSpec(ref="a/b"), ModelSpec(ref="a/b")])


def test_the_chain_names_each_stand_in_once_the_nearest_first() -> None:
    catalog = ModelCatalog(
        [
            ModelSpec(ref="a/1", fallbacks=["b/1", "c/1"]),
            ModelSpec(ref="b/1", fallbacks=["d/1", "a/1"]),
            ModelSpec(ref="c/1", fallbacks=["d/1"]),
        ]
    )
    assert catalog.fallback_chain("a/1") == ("a/1", "b/1", "c/1", "d/1")
    assert catalog.fallback_chain("x/y") == ("x/y",)
