"""nl.NKIObject: the base class of the structures that kernels pass around."""

import dataclasses
import inspect
from typing import Any

from kernels_neuron.sim.locate import fail


class LeftOut:
    """Stands for a field that was given no value: any use of it is an error that names it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self, *_: Any) -> Any:
        fail("field-left-out", f"{self._name} has no value", "pass it where the object is made")

    __bool__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __index__ = __iter__ = __getitem__ = __call__ = _refuse
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # dataclasses look at a default before it is used
            raise AttributeError(name)
        self._refuse()


class NKIObject:
    """Base of classes whose instances are passed to kernels.

    Every class attribute with a plain value is a field, annotated or not, and `__init__` takes the fields; the
    `@dataclass` decorator is optional. A field without a value may be left out as long as nothing reads it, which
    public kernels do.
    Source: NKI language guide, classes.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = inspect.get_annotations(cls)
        values = {name: value for name, value in vars(cls).items() if _is_field(name, value, annotations)}
        without_default = {name: kind for name, kind in annotations.items() if name not in values}
        for name in without_default:
            setattr(cls, name, LeftOut(f"{cls.__name__}.{name}"))
        cls.__annotations__ = without_default | {name: annotations.get(name, Any) for name in values}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # reached only in a class without the decorator and without an __init__ of its own
        cls = type(self)
        if not dataclasses.is_dataclass(cls) or "__init__" not in vars(cls):
            dataclasses.dataclass(eq=False, repr=False)(cls)
        cls.__init__(self, *args, **kwargs)


def _is_field(name: str, value: Any, annotations: dict[str, Any]) -> bool:
    if name in annotations:
        return True
    if name.startswith("__") or callable(value) or hasattr(value, "__get__"):
        return False
    # dataclasses refuse mutable defaults, so an unannotated one stays an attribute of the class
    return not isinstance(value, (list, dict, set))
