"""nl.NKIObject: the base class of the structures that kernels pass around."""

import dataclasses
import inspect
from typing import Any


class NKIObject:
    """Base of classes whose instances are passed to kernels.

    Every class attribute with a plain value is a field, annotated or not, and `__init__` takes the fields; the
    `@dataclass` decorator is optional.
    Source: NKI language guide, classes.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = inspect.get_annotations(cls)
        values = {name: value for name, value in vars(cls).items() if _is_field(name, value, annotations)}
        without_default = {name: kind for name, kind in annotations.items() if name not in values}
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
