"""The TensorE activity throttle: half rate until a window was busy enough, window by window.

Rule and constants: AWS documents a start at about half rate and a ramp after about 3 us; the window and the threshold
are measured in public trn2 traces. The phase of the windows is free, so estimates report several.
"""

from kernels_neuron.arch import Arch

PHASES = 8


class Throttle:
    """Streams PE cycles through windows of full and half rate. Time only moves forward.

    phase  share of a window, 0 to 1, that has passed at time 0
    """

    def __init__(self, arch: Arch, phase: float) -> None:
        self.ghz = arch.tensor.ghz
        self.window = arch.throttle_window_ns
        self.threshold = arch.throttle_threshold * self.window * self.ghz
        self.throttled = arch.throttled
        self.rate = 0.5 if arch.throttled else 1.0
        self.active = 0.0  # cycles streamed in the window at hand
        self.border = self.window * (1.0 - phase) if arch.throttled else float("inf")

    def at(self, time: float) -> float:
        """The rate at `time`, 0.5 or 1."""
        if time >= self.border:
            self._next_window()
            if time >= self.border:  # whole windows without work
                idle = int((time - self.border) // self.window) + 1
                self.border += idle * self.window
                self.rate = 0.5
        return self.rate

    def stream(self, start: float, cycles: float) -> float:
        """When `cycles` that start at `start` have streamed."""
        if not self.throttled:
            return start + cycles / self.ghz
        self.at(start)
        time = start
        while True:
            speed = self.ghz * self.rate
            room = (self.border - time) * speed
            if cycles <= room:
                self.active += cycles
                return time + cycles / speed
            self.active += room
            cycles -= room
            time = self.border
            self._next_window()

    def _next_window(self) -> None:
        self.rate = 1.0 if self.active >= self.threshold else 0.5
        self.active = 0.0
        self.border += self.window
