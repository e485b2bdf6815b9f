"""Builds the dataset `scenes`: handwritten digits laid over pieces of photographs, with a mask of which digit is where.

The scenes are composed, so that every mask is known by construction, and there are as many backgrounds as an interval
needs. The parts are real: digits from scikit-learn's package (E. Alpaydin and C. Kaynak, UCI, 1998, CC BY 4.0), and its
two photographs (a temple in China and a flower, by Yann and dany13, CC BY 2.0).

A `place` is a piece of a photograph, which its scenes are cut from; no pixel is of two places. Each digit of the source
is laid over scenes of one place only. So nothing of a place is met again in another one.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

SIDE = 48
# Of the digits' scans these are used: the others look much like one of them at this size.
DIGITS = (0, 1, 3, 4, 7)
# Height and width of a place in a photograph of 427 x 640 points: scenes of one place may share points.
PLACE = 80
SCENES_OF_PLACE = 16
SMALLEST, LARGEST, MOST_DIGITS = 20, 28, 3
# Ink of a scan, from 0 to 16, from which on a point belongs to its digit.
INK = 5


def build(out: Path, places: int, seed: int) -> None:
    """One table of scenes of the first `places` places, `files/scenes/*.png` and `files/masks/*.png`."""
    for folder in ("scenes", "masks"):
        (out / "files" / folder).mkdir(parents=True, exist_ok=True)
    backgrounds, scans = _backgrounds()[:places], _scans(places, seed)
    rows = []
    for place, (background, own) in enumerate(zip(backgrounds, scans, strict=True)):
        random = np.random.default_rng((seed, place))
        for number in range(SCENES_OF_PLACE):
            name = f"{place:02d}-{number:02d}.png"
            scene, mask = _scene(background, own, random)
            # Without compression the bytes do not depend on the library that would compress them.
            Image.fromarray(scene).save(out / "files" / "scenes" / name, compress_level=0)
            Image.fromarray(mask).save(out / "files" / "masks" / name, compress_level=0)
            row = {"scene": len(rows), "place": place, "picture": f"files/scenes/{name}", "mask": f"files/masks/{name}"}
            rows.append(row)
    pd.DataFrame(rows).to_parquet(out / "scenes.parquet", index=False)


def _backgrounds() -> list[np.ndarray]:
    """The places of both photographs, one of each in turn, each `(PLACE, PLACE, 3)`."""
    found: Any = load_sample_images()
    pieces = [
        [
            photograph[top : top + PLACE, left : left + PLACE]
            for top in range(0, photograph.shape[0] - PLACE + 1, PLACE)
            for left in range(0, photograph.shape[1] - PLACE + 1, PLACE)
        ]
        for photograph in found.images
    ]
    return [piece for pair in zip(*pieces, strict=True) for piece in pair]


def _scans(places: int, seed: int) -> list[list[tuple[int, np.ndarray]]]:
    """Of each place the scans that are laid over its scenes, each with the place of its class, from 1 on."""
    found: Any = load_digits()
    usable = [
        (DIGITS.index(digit) + 1, scan)
        for scan, digit in zip(found.images, found.target, strict=True)
        if digit in DIGITS
    ]
    order = np.random.default_rng(seed).permutation(len(usable))
    return [[usable[at] for at in order[place::places]] for place in range(places)]


def _scene(
    background: np.ndarray, scans: list[tuple[int, np.ndarray]], random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A piece of the background with one to three digits, and its mask; later digits cover earlier ones."""
    top, left = random.integers(0, PLACE - SIDE + 1, size=2)
    scene = background[top : top + SIDE, left : left + SIDE].astype(np.float64)
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    for _ in range(random.integers(1, MOST_DIGITS + 1)):
        kind, scan = scans[random.integers(len(scans))]
        side = int(random.integers(SMALLEST, LARGEST + 1))
        ink = np.asarray(Image.fromarray(scan.astype(np.float32)).resize((side, side), Image.Resampling.BILINEAR))
        down, right = random.integers(0, SIDE - side + 1, size=2)
        here = (slice(down, down + side), slice(right, right + side))
        own = ink >= INK
        color = random.uniform(0, 255, size=3)
        scene[here][own] = 0.15 * scene[here][own] + 0.85 * color
        mask[here][own] = kind
    return np.clip(scene + random.normal(0, 6, size=scene.shape), 0, 255).astype(np.uint8), mask


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--places", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    build(arguments.out, arguments.places, arguments.seed)
