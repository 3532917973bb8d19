"""Price of one request to a target without token prices."""

from dataclasses import dataclass, replace
from typing import Self

from convergence_core.budget.prices import PriceTable
from convergence_core.errors import Billed
from convergence_core.records import NO_USAGE


@dataclass(frozen=True, slots=True)
class RequestPrice:
    """Price of each request, unless its answer reports another."""

    usd: float | None = None
    """Price in dollars; ``None`` if unknown."""
    version: str | None = None
    """Date of the price table; ``None`` means no price, or a configured one."""

    @classmethod
    def of(cls, prices: PriceTable | None, provider: str) -> Self:
        """Return the price of a provider without models."""
        price = None if prices is None else prices.find(provider, None)
        if prices is None or price is None:
            return cls()
        return cls(price.request, prices.version_of(provider, None))

    def bill(self, billed: Billed | None) -> Billed | None:
        """Return a request's bill: the reported cost, else this price."""
        if self.usd is None or (billed is not None and billed.cost_usd is not None):
            return billed
        billed = billed or Billed(usage=NO_USAGE, cost_usd=None)
        return replace(billed, cost_usd=self.usd, price_version=self.version)
