"""What is known of models: their limits, and who stands in for whom.

A catalog is what its owner puts in; there is no built-in table, since it would age.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, frozen

from agentrt.core.errors import ModelReferenceError

__all__ = ["ModelCatalog", "ModelSpec", "split_ref"]


def split_ref(ref: str) -> tuple[str, str]:
    """Vendor and model id of a reference; a model id may hold slashes itself.

    Raises:
        ModelReferenceError: there is no slash, or nothing before or after it.
    """
    vendor, slash, model_id = ref.partition("/")
    if not (vendor and slash and model_id):
        raise ModelReferenceError(
            f"model is {ref!r}, expected 'vendor/model-id', as 'openai/gpt-4o-mini'"
        )
    return vendor, model_id


@frozen(kw_only=True)
class ModelSpec:
    """One model's limits, in tokens. None is not known."""

    ref: str
    context_limit: int | None = None
    output_limit: int | None = None
    fallbacks: Sequence[str] = ()
    """References of the models that stand in, in order."""

    capabilities: frozenset[str] = frozenset()
    """As `images`, `audio`, `pdf`, `reasoning`."""

    def __attrs_post_init__(self) -> None:
        for ref in (self.ref, *self.fallbacks):
            split_ref(ref)


@define(init=False)
class ModelCatalog:
    """Specs by reference."""

    _specs: Mapping[str, ModelSpec]

    def __init__(self, specs: Iterable[ModelSpec] = ()) -> None:
        by_ref: dict[str, ModelSpec] = {}
        for spec in specs:
            if spec.ref in by_ref:
                raise ValueError(f"model {spec.ref!r} is in the catalog twice")
            by_ref[spec.ref] = spec
        self._specs = by_ref

    def find(self, ref: str) -> ModelSpec | None:
        return self._specs.get(ref)

    def context_limit(self, ref: str) -> int | None:
        """Tokens that a request and its answer may have together; None: not known."""
        spec = self.find(ref)
        return None if spec is None else spec.context_limit

    def fallback_chain(self, ref: str) -> Sequence[str]:
        """`ref` and all that stand in for it, each once, nearest first."""
        chain = [ref]
        for each in chain:
            spec = self.find(each)
            fallbacks = () if spec is None else spec.fallbacks
            chain.extend(other for other in fallbacks if other not in chain)
        return tuple(chain)
