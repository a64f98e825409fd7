"""Uses every part of the extension, with Python's own library alone: every_part.py REPOSITORY ONE TWO.

REPOSITORY is a bare one in which `main` is at the commit ONE and TWO is another commit. There are three rounds, each
of which removes what it has made. scripts/sanitizers runs it under valgrind, and with the sanitizer for threads.
"""

import ctypes
import gc
import os
import shutil
import signal
import sys
import threading

import refdb

HASTY = ["core.filesRefLockTimeout=0", "reftable.lockTimeout=0"]
WHO = ("Ann", "ann@example.org", 1700000000, -530)


def raised(kind, work, *arguments, **named):
    """Does work that has to fail; returns the error."""
    try:
        work(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError(f"{work} raises no {kind}")


def opening(path, one, two):
    store = refdb.open(path, discover=False)
    assert refdb.open(str(path), config=HASTY).head() == store.head() == ("refs/heads/main", one)
    assert store.ref_format in ("files", "reftable") and store.object_format in ("sha1", "sha256")
    assert str(store.path) in repr(store)
    raised(FileNotFoundError, refdb.open, os.path.join(path, "none"), discover=False)
    raised(refdb.ConfigError, refdb.open, path, config=["core.bare=perhaps"])
    raised(TypeError, refdb.open, path, config=[7])


def transactions(path, one, two):
    store = refdb.open(path, discover=False, config=HASTY)
    with store.transaction(committer=WHO, message="why") as t:
        for i in range(40):
            assert t.create(f"refs/heads/d{i % 4}/b{i}", one) == i
        t.create(b"refs/heads/\xff\xc3\xa4", bytes.fromhex(one), message="bytes")
        t.symbolic("refs/heads/sym", "refs/heads/d1/b1", old=None)
        t.update("refs/heads/main", two, old=one, create_log=True)
        assert len(t) == 43 and t
    with store.transaction(message="back") as t:
        t.update("refs/heads/main", one, old=refdb.EXISTS, deref=False)
        t.update("refs/tags/no-object", "1" * len(one), check=False)
        t.verify("refs/heads/d1/b1", one)
        t.log("refs/heads/d1/b1", one, two, message="noted", committer=WHO)
    assert t.rejections == [] and t.warnings == []
    with store.transaction(batch=True) as t:
        t.update("refs/heads/main", two, old=two)
        t.create("refs/heads/other", two)
        t.create("refs/heads/main/below", one)
    assert [one.index for one in t.rejections] == [0, 2]
    assert all(refused.name and refused.message and not refused.locked for refused in t.rejections)
    assert "index=0" in repr(t.rejections)
    raised(RuntimeError, t.commit)
    t = store.transaction()
    t.create("refs/heads/more", one)
    t.create("refs/heads/main", one)
    assert raised(refdb.Rejected, t.commit).rejections[0].index == 1
    t = store.transaction()
    t.delete("refs/heads/main")
    t.abort()
    raised(RuntimeError, t.delete, "refs/heads/main")

    def left():
        with store.transaction() as t:
            t.delete("refs/heads/main")
            raise ZeroDivisionError

    raised(ZeroDivisionError, left)
    assert "refs/heads/main" in store and "refs/heads/more" not in store


def mapping(path, one, two):
    store = refdb.open(path, discover=False)
    assert len(store) == len(list(store)) == 46
    assert store["refs/heads/main"].oid == one == store.resolve(b"refs/heads/main")
    assert "refs/heads/none" not in store and "../config" not in store
    assert store.get("refs/heads/none") is None and store.get("refs/heads/none", one) is one
    raised(KeyError, store.__getitem__, "refs/heads/none")
    raised(TypeError, store.__getitem__, 7)
    sym = store["refs/heads/sym"]
    assert sym.symref == "refs/heads/d1/b1" and sym.oid is None and sym.peeled is None and not sym.broken
    assert sym == store["refs/heads/sym"] and sym != store["HEAD"] and "symref" in repr(sym)
    strange = b"refs/heads/\xff\xc3\xa4"
    text = strange.decode("utf-8", "surrogateescape")
    assert store[text].name == text and store[text].name_bytes == strange


def listing(path, one, two):
    store = refdb.open(path, discover=False)
    names = list(store.keys("refs/heads/"))
    assert list(store.keys("refs/heads/", start_after=names[3])) == names[4:]
    assert [name.decode("utf-8", "surrogateescape") for name in store.keys("refs/heads/", as_bytes=True)] == names
    assert [name for name, _ in store.items("refs/heads/")] == names
    assert [found.name for found in store.values("refs/heads/")] == names
    given_up = store.items()
    next(given_up)
    everything = store.dict()
    assert everything["HEAD"] == everything["refs/heads/sym"] == one and everything["refs/heads/other"] == two
    assert store.dict("refs/heads/", exclude=["refs/heads/d1", b"refs/heads/d2"], as_bytes=True)
    assert store.dict("refs/none/") == {}
    assert [found.name for found in store.points_at(two)] == ["refs/heads/other"]
    raised(ValueError, store.points_at, "12")
    assert store.token() == refdb.open(path).token()


def reflogs(path, one, two):
    store = refdb.open(path, discover=False)
    newest, born = store.log("refs/heads/d1/b1")
    assert (newest.old, newest.new, newest.message, newest.committer) == (one, two, "noted", WHO)
    assert born == store.log("refs/heads/d1/b1", newest_first=False)[0] and "why" in repr(born)
    assert store.log("refs/heads/none") is None
    raised(refdb.InvalidName, store.log, "../config")
    store.rename("refs/heads/other", "refs/heads/renamed", message="better")
    assert store.log("refs/heads/renamed")[0].message == "better"
    store.rename("refs/heads/renamed", "refs/heads/d1/b2", replace=True)
    raised(refdb.Rejected, store.rename, "refs/heads/none", "refs/heads/some")
    store.optimize(always=False)
    store.optimize()


class Array(ctypes.Structure):
    """A column, or the struct of all: its Arrow layout."""


Array._fields_ = [(name, ctypes.c_int64) for name in ("length", "nulls", "offset", "buffer_count", "child_count")] + [
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))),
    ("private", ctypes.c_void_p),
]


class Schema(ctypes.Structure):
    """What a column is."""


Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("child_count", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))),
    ("private", ctypes.c_void_p),
]


class Stream(ctypes.Structure):
    """What a capsule holds."""


Stream._fields_ = [
    ("schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))),
    ("next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))),
    ("error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))),
    ("private", ctypes.c_void_p),
]

pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
pointer_in.restype = ctypes.POINTER(Stream)
pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]


def columns(path, one, two):
    store = refdb.open(path, discover=False)
    # One that nobody takes, one of which nothing is read, and one that is read whole.
    store.table("refs/heads/").__arrow_c_stream__()
    capsule = store.table("refs/heads/").__arrow_c_stream__()
    stream = pointer_in(capsule, b"arrow_array_stream")
    stream.contents.release(stream)
    assert not stream.contents.release
    capsule = store.__arrow_c_stream__()
    stream = pointer_in(capsule, b"arrow_array_stream")
    schema, names, oids = Schema(), [], []
    assert stream.contents.schema(stream, schema) == 0 and schema.format == b"+s"
    told = [schema.children[i].contents.name for i in range(schema.child_count)]
    assert told == [b"name", b"oid", b"symref", b"peeled", b"broken"]
    schema.release(schema)
    while True:
        array = Array()
        assert stream.contents.next(stream, array) == 0, stream.contents.error(stream)
        if not array.release:
            break
        column, oid = array.children[0].contents, array.children[1].contents
        ends = ctypes.cast(column.buffers[1], ctypes.POINTER(ctypes.c_int32))[: array.length + 1]
        text = ctypes.string_at(column.buffers[2], ends[-1])
        names += [text[start:end] for start, end in zip(ends, ends[1:])]
        oids.append(ctypes.string_at(oid.buffers[1], array.length * len(one) // 2))
        # One column outlives the others.
        kept = Array.from_buffer_copy(column)
        column.release = type(column.release)()
        array.release(array)
        assert ctypes.string_at(kept.buffers[2], ends[-1]) == text
        kept.release(kept)
    stream.contents.release(stream)
    assert names == list(store.keys(as_bytes=True)) and bytes.fromhex(one) in b"".join(oids)


def errors(path, one, two):
    copy = f"{path}.copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    store = refdb.open(copy, discover=False, config=HASTY)
    is_files = store.ref_format == "files"
    lock = os.path.join(copy, "refs/heads/main.lock" if is_files else "reftable/tables.list.lock")
    with open(lock, "w"):
        t = store.transaction()
        t.update("refs/heads/main", two)
        assert isinstance(raised(TimeoutError, t.commit), refdb.Locked)
    os.remove(lock)
    t = store.transaction()
    raised(refdb.InvalidName, t.create, "refs/heads/a..b", one)
    raised(ValueError, t.create, "refs/heads/a", "12")
    raised(TypeError, t.create, 7, one)
    raised(ValueError, store.transaction, committer=("Ann", "a@b", 0, 99999))
    with open(os.path.join(copy, "packed-refs" if is_files else "reftable/tables.list"), "wb") as damaged:
        damaged.write(b"no such thing\n")
    store = refdb.open(copy, discover=False)
    for work in (lambda: list(store), store.dict, store.token, store.__arrow_c_stream__):
        error = raised(refdb.Corrupt, work)
        assert error.remedy == "repair" and copy in str(error.path)
    shutil.rmtree(copy)


def threads(path, one, two):
    store = refdb.open(path, discover=False)
    names, taken, failures = store.keys("refs/"), [], []

    def work(number):
        try:
            taken.extend(names)
            for i in range(3):
                name = f"refs/heads/t{number}/{i}"
                with store.transaction() as t:
                    t.create(name, one)
                assert store.resolve(name) == one and name in store.dict("refs/heads/t")
                list(store.items("refs/heads/d1"))
            with store.transaction() as t:
                for i in range(3):
                    t.delete(f"refs/heads/t{number}/{i}", old=one)
        except BaseException as failure:
            failures.append(failure)

    together = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert failures == [] and len(taken) == len(set(taken)) > 40


def children(path, one, two):
    store = refdb.open(path, discover=False)
    list(store)
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(120)
            with store.transaction() as t:
                t.create("refs/heads/child", one)
            # At any other end valgrind would tell that Python has made its locks anew, and freed none.
            os.execvp("true", ["true"])
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.resolve("refs/heads/child") == one


def removed(path, one, two):
    store = refdb.open(path, discover=False)
    with store.transaction() as t:
        for name in store.keys("refs/", as_bytes=True):
            if name != b"refs/heads/main":
                t.delete(name, deref=False)
    assert list(store) == ["HEAD", "refs/heads/main"]


PARTS = (opening, transactions, mapping, listing, reflogs, columns, errors, threads, children, removed)


def grown(path, one, two, rounds):
    """How many more objects there are after the last round than before it, of those that Python's collector
    has in a list: a tuple or a dict that is kept is no leak for valgrind."""
    counts = []
    for _ in range(rounds):
        for part in PARTS:
            part(path, one, two)
        gc.collect()
        counts.append(len(gc.get_objects()))
    return counts[-1] - counts[-2]


if __name__ == "__main__":
    more = grown(*sys.argv[1:4], rounds=3)
    assert more == 0, f"{more} objects are kept"
    print(f"all {len(PARTS)} parts")
