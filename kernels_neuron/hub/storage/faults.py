"""What a store says no to, one class per kind, so that a server can give each its own status."""

from kernels_neuron.errors import HubError


class RepoMissing(HubError):
    """There is no such repo, or the caller may not know of it."""


class RevisionMissing(HubError):
    """There is no such branch, tag or commit."""


class EntryMissing(HubError):
    """There is no such file or folder at `commit`."""

    def __init__(self, message: str, *, commit: str) -> None:
        super().__init__(message)
        self.commit = commit


class AlreadyThere(HubError):
    """The repo, branch or tag exists."""


class StaleParent(HubError):
    """The branch has moved on since the caller looked."""


class Refused(HubError):
    """A name, a path or an artifact breaks a rule of the registry."""


class Damaged(HubError):
    """The folder on disk is not what was written to it."""
