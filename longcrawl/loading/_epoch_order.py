"""The order in which the samples of a bucket are delivered, epoch after epoch."""

from dataclasses import dataclass
from functools import cached_property

from longcrawl.kernels.keyed_order import KeyedOrder
from longcrawl.loading.packing_plan import Longs

__all__ = ["EpochOrder"]


@dataclass(frozen=True)
class EpochOrder:
    """Which of ``count`` samples is delivered at a place, counted through all epochs; each has an order of its own.

    >>> import numpy as np
    >>> EpochOrder(3, None, "web")(np.array([0, 2, 3, 5])).tolist()
    [0, 2, 0, 2]

    Attributes:
        count: samples of an epoch.
        seed: of the orders; None for that of the samples, in every epoch.
        name: of the bucket.

    """

    count: int
    seed: int | None
    name: str

    def __call__(self, places: Longs) -> Longs:
        """Return the samples at these places, int64."""
        if self.seed is None or not len(places):
            return places % max(self.count, 1)
        first, last = int(places.min()) // self.count, int(places.max()) // self.count
        if first == last:
            return self._order(first)(places - first * self.count)
        samples, epochs = places % self.count, places // self.count
        for epoch in range(first, last + 1):
            samples[epochs == epoch] = self._order(epoch)(samples[epochs == epoch])
        return samples

    def _order(self, epoch: int) -> KeyedOrder:
        if epoch not in self._orders:
            self._orders[epoch] = KeyedOrder(self.count, self.seed or 0, f"samples of {self.name}, epoch {epoch}")
        return self._orders[epoch]

    @cached_property
    def _orders(self) -> dict[int, KeyedOrder]:
        return {}
