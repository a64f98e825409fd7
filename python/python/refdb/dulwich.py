"""refdb's refs for dulwich: both formats, reftables of any size included.

    repo = dulwich.repo.Repo(path)
    refdb.dulwich.attach(repo)

Reflogs are written as Git writes them, whether dulwich gives a message or not.
"""

from dulwich.objects import ZERO_SHA, valid_hexsha
from dulwich.refs import SYMREF
from dulwich.refs import RefsContainer as _RefsContainer

import refdb


def attach(repo):
    """Gives a `dulwich.repo.Repo` these refs in place of its own."""
    repo.refs = RefsContainer(repo.controldir())


class RefsContainer(_RefsContainer):
    """The refs of a repository, given as a `refdb.Store` or by its path. As with dulwich's own, nobody looks
    whether an object exists that a ref is set to."""

    def __init__(self, store):
        super().__init__()
        if not isinstance(store, refdb.Store):
            store = refdb.open(store, discover=False)
        self.store = store

    def allkeys(self):
        return {b"HEAD"} & set(self.store.keys("HEAD", as_bytes=True)) | set(
            self.store.keys("refs/", as_bytes=True)
        )

    def subkeys(self, base):
        prefix = base.rstrip(b"/") + b"/"
        return {name[len(prefix) :] for name in self.store.keys(prefix, as_bytes=True)}

    def as_dict(self, base=None):
        if base is not None:
            prefix = base.rstrip(b"/") + b"/"
            found = self.store.dict(prefix, as_bytes=True)
            return {name[len(prefix) :]: oid for name, oid in found.items()}
        refs = self.store.dict("refs/", as_bytes=True)
        head = self.store.resolve("HEAD")
        if head is not None:
            refs[b"HEAD"] = head.encode()
        return refs

    def read_loose_ref(self, name):
        found = self.store.get(name)
        if found is None:
            return None
        if found.symref is not None:
            return SYMREF + found.symref.encode("utf-8", "surrogateescape")
        return found.oid.encode() if found.oid else None

    def get_packed_refs(self):
        return {}

    def get_peeled(self, name):
        found = self.store.get(name)
        return found.peeled.encode() if found is not None and found.peeled else None

    def get_symrefs(self):
        values = (found for _, found in self.store.items() if found.symref is not None)
        encode = lambda name: name.encode("utf-8", "surrogateescape")  # noqa: E731
        return {found.name_bytes: encode(found.symref) for found in values}

    def set_symbolic_ref(
        self, name, other, committer=None, timestamp=None, timezone=None, message=None
    ):
        self._check_refname(name)
        self._check_refname(other)
        who = _signature(committer, timestamp, timezone)
        with self.store.transaction(committer=who, message=message or b"") as transaction:
            transaction.symbolic(name, other)

    def set_if_equals(
        self, name, old_ref, new_ref, committer=None, timestamp=None, timezone=None, message=None
    ):
        self._check_refname(name)
        self._check_ref_value(new_ref)
        old = _old(old_ref)
        if old is False:
            return False
        who = _signature(committer, timestamp, timezone)
        try:
            with self.store.transaction(committer=who, message=message or b"") as transaction:
                if new_ref.startswith(SYMREF):
                    transaction.symbolic(name, new_ref[len(SYMREF) :], old=old)
                else:
                    transaction.update(name, new_ref, old=old, check=False)
        except refdb.Rejected:
            if old is refdb.ANY:
                raise
            return False
        return True

    def add_if_new(
        self, name, ref, committer=None, timestamp=None, timezone=None, message=None
    ):
        return self.set_if_equals(
            name, ZERO_SHA, ref, committer, timestamp, timezone, message
        )

    def remove_if_equals(
        self, name, old_ref, committer=None, timestamp=None, timezone=None, message=None
    ):
        self._check_refname(name)
        old = _old(old_ref)
        if old is False:
            return False
        if old is None:
            return name not in self.store
        who = _signature(committer, timestamp, timezone)
        try:
            with self.store.transaction(committer=who, message=message or b"") as transaction:
                transaction.delete(name, old=old, deref=False)
        except refdb.Rejected:
            if old is refdb.ANY:
                raise
            return False
        return True

    def pack_refs(self, all=False):
        self.store.optimize()


def _old(old_ref):
    """What refdb calls an expected value of dulwich's; False for one that no ref has."""
    if old_ref is None:
        return refdb.ANY
    if old_ref == ZERO_SHA:
        return None
    return old_ref if valid_hexsha(old_ref) else False


def _signature(committer, timestamp, timezone):
    """A committer as refdb takes it; None for whom Git would name."""
    if committer is None or timestamp is None:
        return None
    name, _, email = committer.partition(b" <")
    minutes = abs(timezone or 0) // 60
    zone = minutes // 60 * 100 + minutes % 60
    return name, email.rstrip(b">"), int(timestamp), -zone if (timezone or 0) < 0 else zone
