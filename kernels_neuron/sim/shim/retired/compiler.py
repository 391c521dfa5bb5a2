"""nki.compiler: the compiler's front door, which a simulator does not have."""

from typing import NoReturn

from kernels_neuron.errors import NotSimulated


class kernel_builder:
    """Host-side compilation."""

    @staticmethod
    def compile_kernel(*args: object, **kwargs: object) -> NoReturn:
        """Compiles a kernel for a device; refused here."""
        raise NotSimulated(
            "nki.compiler.kernel_builder.compile_kernel is not supported by this simulator",
            hint="call the kernel with numpy arrays, or through nki.simulate",
        )


__all__ = ["kernel_builder"]
