"""Example rows for a use case without data: 120 days of orders, and whether each came back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

TARGET, POSITIVE, TIME, KEYS = "returned", "yes", "ordered_at", ("order_id",)
DAYS, ORDERS_A_DAY = 120, 80


def example_rows() -> pd.DataFrame:
    """A number with nulls, a whole number, two texts, a boolean; the label depends on some of them, with noise."""
    import numpy as np
    import pandas as pd

    generator = np.random.default_rng(0)
    rows = DAYS * ORDERS_A_DAY
    price = generator.lognormal(3.5, 0.6, rows).round(2)
    items = generator.integers(1, 6, rows)
    channel = generator.choice(["app", "shop", "web"], rows, p=[0.4, 0.2, 0.4])
    size = generator.choice(["S", "M", "L", "XL"], rows)
    gift = generator.random(rows) < 0.15
    rating = generator.normal(4, 0.7, rows).clip(1, 5).round(1)
    logit = 0.8 * np.log(price) - 3.2 + 0.5 * (channel == "web") - 0.8 * gift - 0.7 * (rating - 4)
    minutes = np.repeat(np.arange(DAYS), ORDERS_A_DAY) * 1440 + np.tile(np.arange(ORDERS_A_DAY) * 15 + 120, DAYS)
    return pd.DataFrame(
        {
            "order_id": np.arange(1, rows + 1),
            "ordered_at": pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(minutes, unit="min"),
            "price": price,
            "items": items,
            "channel": channel,
            "size": size,
            "gift": gift,
            "rating": np.where(generator.random(rows) < 0.1, np.nan, rating),
            "returned": np.where(generator.random(rows) < 1 / (1 + np.exp(-logit)), "yes", "no"),
        }
    )
