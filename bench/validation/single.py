"""One instruction or one transfer each, whose time was published; the load before and the store after do not count."""

import nki
import nki.isa as nisa
import nki.language as nl


def _sbuf(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def _load(x, **how):
    tile = _sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x, **how)
    return tile


def _store(tile, **how):
    y = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=tile, **how)
    return y


@nki.jit
def add(a, b):
    """tensor_tensor on VectorE."""
    out = _sbuf(a.shape, a.dtype)
    nisa.tensor_tensor(dst=out, data1=_load(a), data2=_load(b), op=nl.add)
    return _store(out)


@nki.jit
def square(x):
    """activation on ScalarE."""
    out = _sbuf(x.shape)
    nisa.activation(dst=out, op=nl.square, data=_load(x))
    return _store(out)


@nki.jit
def square_and_sum(x):
    """activation_reduce on ScalarE."""
    out, total = _sbuf(x.shape), _sbuf((x.shape[0], 1))
    nisa.activation_reduce(dst=out, op=nl.square, data=_load(x), reduce_op=nl.add, reduce_res=total)
    return _store(total)


@nki.jit
def largest(x):
    """tensor_reduce on VectorE."""
    out = _sbuf((x.shape[0], 1))
    nisa.tensor_reduce(dst=out, op=nl.maximum, data=_load(x), axis=1)
    return _store(out)


@nki.jit
def scaled(x):
    """tensor_scalar on VectorE, into float8."""
    out = _sbuf(x.shape, nl.float8_e4m3)
    nisa.tensor_scalar(dst=out, data=_load(x), op0=nl.multiply, operand0=0.5)
    return _store(out)


@nki.jit
def product(stationary, moving):
    """one nc_matmul."""
    bank = nl.ndarray((stationary.shape[1], moving.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=bank, stationary=_load(stationary), moving=_load(moving))
    out = _sbuf(bank.shape)
    nisa.tensor_copy(dst=out, src=bank)
    return _store(out)


@nki.jit
def there_and_back(x):
    """A load and a store whose descriptors are made beforehand."""
    return _store(_load(x, dge_mode=nisa.dge_mode.none), dge_mode=nisa.dge_mode.none)


@nki.jit
def software_load(x):
    """A load whose descriptors GpSimdE makes."""
    return _store(_load(x, dge_mode=nisa.dge_mode.swdge))
