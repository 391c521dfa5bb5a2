"""Threads of the libraries below a run: two pools that both wait by spinning slow each other down."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.Lock()
_inside = 0  # launches of this process that are running
_before = 1  # torch's threads outside of them


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """While any is open, torch computes on the calling thread, as one tile is too little for more; BLAS has the others.

    torch's threads and NumPy's would wait for work at the same time, each on a core that the other one needs: a ViT
    took 5 s instead of 2 on two cores.
    """
    global _inside, _before
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with _LOCK:
        _inside += 1
        if _inside == 1:
            _before = torch.get_num_threads()
            torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if _inside == 0:
                torch.set_num_threads(_before)
