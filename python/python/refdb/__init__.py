"""The refs of Git repositories, in both of Git's formats, on disk exactly as Git has them.

>>> import refdb
>>> store = refdb.open(path, discover=False)
>>> with store.transaction(message="made for show") as transaction:
...     _ = transaction.create("refs/heads/topic", oid)
...     _ = transaction.symbolic("HEAD", "refs/heads/topic")
>>> store.head() == ("refs/heads/topic", oid)
True
>>> store["HEAD"]
Ref('HEAD', symref='refs/heads/topic')
>>> list(store.keys("refs/heads/"))
['refs/heads/main', 'refs/heads/topic']
>>> store.resolve("refs/heads/none") is None
True
>>> store.log("refs/heads/topic")[0].message
'made for show'

An edit that depends on the value that was seen is refused when it has changed:

>>> with store.transaction() as transaction:
...     _ = transaction.update("refs/heads/topic", oid, old=None)
Traceback (most recent call last):
    ...
refdb.Rejected: ...

In a batch, the others go on:

>>> with store.transaction(batch=True) as transaction:
...     _ = transaction.create("refs/heads/topic", oid)
...     _ = transaction.create("refs/heads/other", oid)
>>> transaction.rejections
[Rejection(index=0, name='refs/heads/topic', reason='reference already exists')]
>>> "refs/heads/other" in store
True

Names are ``str``, in which surrogates stand for bytes that are no UTF-8, or ``bytes``; ids are hexadecimal
digits. A store can be used by several threads and after ``os.fork()``.
"""

from collections.abc import Mapping

from ._errors import (
    BrokenRef,
    ConfigError,
    Corrupt,
    Error,
    InvalidName,
    IoError,
    Locked,
    Misuse,
    Moved,
    Rejected,
    RepositoryError,
    Unsupported,
)
from ._refdb import Columns, LogEntry, Names, Ref, Refs, Rejection, Store, Transaction, open


class Old:
    """What a ref is expected to hold, where that is no id: `ANY` or `EXISTS`."""

    __slots__ = ("_refdb_old",)

    def __init__(self, word):
        self._refdb_old = word

    def __repr__(self):
        return f"refdb.{self._refdb_old.upper()}"


ANY = Old("any")
EXISTS = Old("exists")

Mapping.register(Store)

__all__ = [
    "ANY",
    "EXISTS",
    "BrokenRef",
    "Columns",
    "ConfigError",
    "Corrupt",
    "Error",
    "InvalidName",
    "IoError",
    "Locked",
    "LogEntry",
    "Misuse",
    "Moved",
    "Names",
    "Old",
    "Ref",
    "Refs",
    "Rejected",
    "Rejection",
    "RepositoryError",
    "Store",
    "Transaction",
    "Unsupported",
    "open",
]
