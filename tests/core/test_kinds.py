"""Tables of longcrawl's own kinds against the classes that are decorated."""

import importlib
import pkgutil

import pytest

import longcrawl
from longcrawl.core import kinds
from longcrawl.core.outputs import OUTPUTS, RESULTS
from longcrawl.core.registry import Registry, describe_kind
from longcrawl.core.sources import SOURCES
from longcrawl.core.stages import STAGES, Stage
from longcrawl.errors import StageError
from longcrawl.formats.shards.base import FORMATS

REGISTRIES = {
    "SOURCES": lambda: vars(SOURCES)["_kinds"],
    "STAGES": lambda: vars(STAGES)["_kinds"],
    "OUTPUTS": lambda: vars(OUTPUTS)["_kinds"],
    "RESULTS": lambda: {name: type(result) for name, result in vars(RESULTS)["_results"].items()},
    "SHARD_FORMATS": lambda: vars(FORMATS)["_kinds"],
}


@pytest.mark.parametrize("table", REGISTRIES)
def test_a_table_lists_every_decorated_class(table):
    for module in pkgutil.walk_packages(longcrawl.__path__, "longcrawl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    made = {name: f"{kind.__module__}:{kind.__qualname__}" for name, kind in REGISTRIES[table]().items()}
    ours = {name: path for name, path in made.items() if path.startswith("longcrawl.")}
    listed = getattr(kinds, table)
    said = [f'add "{name}": "{ours[name]}"' for name in sorted(ours.keys() - listed.keys())]
    said += [f"remove {name!r}" for name in sorted(listed.keys() - ours.keys())]
    said += [f"{name!r} is {ours[name]}" for name in sorted(ours.keys() & listed.keys()) if ours[name] != listed[name]]
    assert said == [], f"in {table} of longcrawl/core/kinds.py"
    assert list(listed) == sorted(listed), f"sort {table} of longcrawl/core/kinds.py"


def test_a_name_of_ours_is_taken_before_its_module_is_imported():
    registry = Registry("stage", Stage, StageError, {"one_line": "longcrawl.text.nowhere:OneLine"})
    with pytest.raises(StageError, match=r"two stages are called 'one_line', longcrawl.text.nowhere:OneLine and test"):
        registry.add("one_line", type("OneLine", (), {"__module__": "test_kinds"}))


@pytest.mark.parametrize("registry", [SOURCES, STAGES, OUTPUTS], ids=lambda registry: registry.what)
def test_what_a_kind_is_about_is_read_without_importing_it(registry):
    unseen = Registry(registry.what, object, StageError, getattr(kinds, f"{registry.what.upper()}S"))
    read = {name: unseen.about(name) for name in unseen.loaded()}
    assert vars(unseen)["_kinds"] == {}
    assert read == {name: describe_kind(registry.find(name)).partition("\n")[0] for name in read}


def test_the_repr_of_a_stage_has_the_fields_that_were_set():
    assert repr(STAGES.make("min_hash", {"bands": 14, "rows": 8})) == "MinHash(bands=14, rows=8)"
    assert repr(STAGES.make("gopher_quality", {})) == "GopherQuality()"
