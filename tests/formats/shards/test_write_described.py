"""Results of token shards: one for each output, and what they tell."""

from longcrawl.core.outputs import RESULTS
from longcrawl.formats.shards.write import ShardResult

NAMES = ["gpt-simple", "datatrove", "levanter", "litdata", "mds", "megatron", "nanogpt", "olmo-core"]


def test_every_shard_output_has_a_result_of_its_name():
    found = {name: told for name, told in RESULTS.items() if isinstance(told, ShardResult)}
    assert sorted(found) == sorted(NAMES)
    assert len({told.description for told in found.values()}) == len(NAMES)
