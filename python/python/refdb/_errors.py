"""The errors, each of a kind that Python has."""


class Error(Exception):
    """What refdb fails with. `path`, `line` and `remedy` say what it is about, where that is known;
    `remedy` is "repair" (`refdb refs repair`), "remove-locks" or "give-up" (these options of it), or None.
    `rejections` is the refused edit, if that is what failed."""

    path = None
    line = None
    remedy = None
    rejections = ()


class IoError(Error, OSError):
    """The system refused a file operation."""


class Locked(Error, TimeoutError):
    """Another process holds a lock: try again later."""


class Corrupt(Error, OSError):
    """A file of the ref store, or an object, is damaged or missing."""


class BrokenRef(Error, ValueError):
    """A single ref is unreadable: delete or rewrite it."""


class InvalidName(Error, ValueError):
    """A name breaks Git's rules."""


class Rejected(Error, ValueError):
    """An edit was refused: read again and decide anew."""


class Unsupported(Error, NotImplementedError):
    """The repository needs something that this version cannot do."""


class ConfigError(Error, ValueError):
    """A value of the configuration, or a date in the environment, is invalid."""


class RepositoryError(Error, FileNotFoundError):
    """There is no repository at the path, or it may not be opened."""


class Misuse(Error, ValueError):
    """The caller asked for something that makes no sense."""


class Moved(Error, RuntimeError):
    """The refs were moved into the other format since the store was opened: open it again."""


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "refdb"
del _class
