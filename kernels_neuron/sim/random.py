"""Random numbers of an engine: one xorwow generator per lane, its state set, read and advanced by instructions."""

from __future__ import annotations

import numpy as np

WORDS = 6  # five shift registers and the counter
_COUNTER_STEP = np.uint32(362437)


class Xorwow:
    """Marsaglia's xorwow in every partition, `streams` of them side by side."""

    def __init__(self, lanes: int, streams: int, *seed: int) -> None:
        self.streams = streams
        self.state = np.zeros((lanes, streams, WORDS), np.uint32)
        self.seed(*seed)

    def seed(self, *words: int) -> None:
        """Spread `words` over all lanes."""
        sequence = np.random.SeedSequence([word & 0xFFFFFFFF for word in words])
        self.state[...] = sequence.generate_state(self.state.size).reshape(self.state.shape)
        self.state[..., 0] |= 1  # shift registers of zeros would stay so

    def draw(self, lanes: slice, count: int) -> np.ndarray:
        """The next `count` words of each lane, [lanes, count]."""
        state = self.state[lanes]
        rounds = -(-count // self.streams)
        out = np.empty((rounds, state.shape[0], self.streams), np.uint32)
        x, y, z, w, v, d = (np.ascontiguousarray(state[..., word]) for word in range(WORDS))
        for index in range(rounds):
            t = x ^ (x >> np.uint32(2))
            x, y, z, w = y, z, w, v
            v = (v ^ (v << np.uint32(4))) ^ (t ^ (t << np.uint32(1)))
            d = d + _COUNTER_STEP
            out[index] = d + v
        state[...] = np.stack([x, y, z, w, v, d], axis=-1)
        return out.transpose(1, 0, 2).reshape(state.shape[0], -1)[:, :count]


def uniform(words: np.ndarray) -> np.ndarray:
    """Words as float32 in [0, 1), from their upper 24 bits."""
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
