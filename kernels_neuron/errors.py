"""The exception tree: what went wrong in one sentence, and the next step as a hint."""


class KernelsNeuronError(Exception):
    """Root of every error this package raises on purpose. `hint` says what to do next, or is None."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(KernelsNeuronError):
    """The call or the command line is wrong; nothing was done."""


class UnsupportedDtype(KernelsNeuronError):
    """A dtype that NKI, numpy or torch has no counterpart for."""


class KernelError(KernelsNeuronError):
    """A kernel broke a rule of the machine. `rule` is the rule's id, `where` is "file.py:12" in the kernel.

    `source` is the kernel's line, which is shown below the message with the rule. Raised before the offending
    instruction has any effect.
    """

    def __init__(
        self,
        message: str,
        *,
        rule: str,
        hint: str | None = None,
        where: str | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.rule = rule
        self.where = where
        self.source = source
        self.add_note(f"\n    {source}\n" * bool(source) + f"rule: {rule}")


class NotSimulated(KernelError):
    """A documented NKI feature that this simulator does not run; it refuses rather than guess."""

    def __init__(self, message: str, *, hint: str | None = None, where: str | None = None) -> None:
        super().__init__(message, rule="not-simulated", hint=hint, where=where)


class UnknownName(NotSimulated, AttributeError):
    """A name that no NKI reference we know of has. Also an AttributeError, so that hasattr and getattr answer."""


class NewerName(KernelError, AttributeError):
    """A name that came after the NKI version of the run. Also an AttributeError, so that hasattr and getattr answer."""


class FileProblems(KernelsNeuronError):
    """A file the user wrote is wrong. `problems` lists all of them, each starting with its key path."""

    def __init__(self, file: object, problems: list[str], *, hint: str | None = None) -> None:
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"{file} has {len(problems)} problem{'s' if len(problems) != 1 else ''}:{lines}", hint=hint)
        self.problems = problems


class ArtifactError(KernelsNeuronError):
    """A built variant is damaged, foreign or not what its metadata says; nothing of it was run."""


class HubError(KernelsNeuronError):
    """A Hub or registry refused, is missing something, or cannot be reached."""


class SwapError(KernelsNeuronError):
    """kernelize cannot do what was asked under `strict`, or was asked for something that does not exist."""
