"""Samples of buckets: in which order epochs deliver them, and what they are in a batch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.loading.samples import DeliveredBucket, EpochOrder, Rows


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 3), st.data())
def test_each_epoch_has_every_sample_once_however_it_is_asked(count, epochs, seed, data):
    order = EpochOrder(count, seed, "web")
    whole = order(np.arange(epochs * count)).reshape(epochs, count)
    assert np.sort(whole).tolist() == [list(range(count))] * epochs
    places = np.array(data.draw(st.lists(st.integers(0, epochs * count - 1))), np.int64)
    assert order(places).tolist() == whole.ravel()[places].tolist()


def test_epochs_have_orders_of_their_own_and_without_a_seed_that_of_the_bucket():
    orders = EpochOrder(100, 0, "web")(np.arange(200)).reshape(2, 100).tolist()
    assert orders[0] != orders[1]
    assert orders[0] not in (EpochOrder(100, 1, "web")(np.arange(100)).tolist(), list(range(100)))
    assert orders[0] != EpochOrder(100, 0, "code")(np.arange(100)).tolist()
    assert EpochOrder(3, None, "web")(np.arange(7)).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_rows_of_a_batch_are_samples_with_their_documents_and_where_they_come_from(tmp_path):
    tokens = [list(range(8 + 10 * number, 13 + 10 * number)) for number in range(6)]
    crawl = lc.Crawl({"id": [f"d{number}" for number in range(6)], "tokens": tokens})
    crawl.to_composed(tmp_path / "out", capacities=[16], end_of_text=7)
    (bucket,) = lc.formats.open_composed(tmp_path / "out").buckets
    delivered = DeliveredBucket(bucket, 2, None)
    assert delivered.stock.samples == 2 * len(bucket)
    places, rows = np.arange(len(bucket)), np.arange(len(bucket))[::-1].copy()
    into = Rows(len(bucket), 16, "reset")
    list(delivered.fill(places, rows, into))
    stored = bucket.read(places)
    ids, _, positions, documents = into.out[:, rows]
    for row, sizes in enumerate(stored.piece_sizes):
        filled = int(sizes.sum())
        assert (into.counts[rows[row]], into.filled[rows[row]]) == (len(sizes), filled)
        assert ids[row, :filled].tolist() == stored.tokens[row, :filled].tolist()
        assert positions[row, :filled].tolist() == [place for size in sizes for place in range(size)]
        numbers = documents[row, :filled].tolist()
        assert [numbers.count(number) for number in dict.fromkeys(numbers)] == sizes.tolist()
    named = {(each.row, each.document) for each in delivered.origins(places, rows)}
    assert {name for _, name in named} == {f"d{number}" for number in range(6)}
