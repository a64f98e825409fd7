"""The store beside Git."""

import os
import signal
import threading
import time
from collections.abc import Mapping

import pytest

import refdb


def fill(git, count=1500):
    lines = "".join(f"create refs/heads/d{i % 5}/b{i} {git.one}\n" for i in range(count))
    git("update-ref", "--stdin", stdin=lines.encode())
    git("pack-refs", "--all")
    git("update-ref", "refs/heads/d1/new", git.two)
    git("tag", "-a", "-m", "tag", "v1", git.one)
    git("update-ref", "refs/remotes/origin/main", git.two)
    git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")


def listed(git, *patterns):
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", *patterns).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines)


def test_is_a_mapping(git, store):
    fill(git)
    assert isinstance(store, Mapping)
    expected = listed(git)
    assert [name for name in store if name.startswith("refs/")] == list(expected)
    assert len(store) == len(expected) + 1
    assert "refs/heads/main" in store and b"refs/heads/main" in store
    assert "refs/heads/none" not in store and "../config" not in store
    assert store["refs/heads/main"].oid == git.one
    assert store["refs/remotes/origin/HEAD"].symref == "refs/remotes/origin/main"
    assert store.get("refs/heads/none") is None and store.get("refs/heads/none", 7) == 7
    with pytest.raises(KeyError):
        store["refs/heads/none"]
    with pytest.raises(TypeError):
        store[7]
    assert dict(store.items())["refs/tags/v1"].peeled in (git.one, None)
    assert store["HEAD"] == next(store.values("HEAD"))
    assert repr(store["refs/heads/main"]) == f"Ref('refs/heads/main', oid='{git.one}')"


def test_lists_as_git_does(git, store):
    fill(git)
    assert {k: v for k, v in store.dict().items() if k != "HEAD"} == listed(git)
    assert store.dict("refs/heads/d1/") == listed(git, "refs/heads/d1/")
    some = store.dict("refs/heads/", exclude=["refs/heads/d2", b"refs/heads/d4"])
    assert some == listed(git, "refs/heads", "--exclude=refs/heads/d2", "--exclude=refs/heads/d4")
    names = list(store.keys("refs/heads/"))
    assert list(store.keys("refs/heads/", start_after=names[700])) == names[701:]
    as_bytes = store.dict("refs/heads/", as_bytes=True)
    assert as_bytes[b"refs/heads/main"] == git.one.encode()
    assert list(store.keys("refs/heads/", as_bytes=True)) == list(as_bytes)
    assert {found.name for found in store.points_at(git.two)} == {
        "refs/heads/d1/new",
        "refs/remotes/origin/main",
    }


def test_columns(git, store):
    pyarrow = pytest.importorskip("pyarrow")
    fill(git)
    table = pyarrow.table(store)
    assert table.column_names == ["name", "oid", "symref", "peeled", "broken"]
    table.validate(full=True)
    rows = {row["name"].decode(): row for row in table.to_pylist()}
    assert rows["HEAD"]["symref"] == b"refs/heads/main" and rows["HEAD"]["oid"] is None
    direct = {name: row["oid"].hex() for name, row in rows.items() if row["oid"] is not None}
    expected = listed(git)
    del expected["refs/remotes/origin/HEAD"]
    assert direct == expected
    some = store.table("refs/heads/d1/", start_after="refs/heads/d1/b5")
    names = [name.decode() for name in pyarrow.table(some)["name"].to_pylist()]
    assert names == list(store.keys("refs/heads/d1/", start_after="refs/heads/d1/b5"))
    assert pyarrow.table(store.table("refs/none/")).num_rows == 0
    # A capsule that nobody takes frees what it holds.
    store.__arrow_c_stream__()


def test_names_are_bytes(git, store):
    name = b"refs/heads/\xff\xc3\xa4"
    with store.transaction() as transaction:
        transaction.create(name, git.one)
    text = name.decode("utf-8", "surrogateescape")
    assert text in store and store[text].name == text and store[name].name_bytes == name
    assert text in list(store) and store.resolve(text) == git.one
    assert git("rev-parse", text.encode("utf-8", "surrogateescape")) == git.one


def test_transactions(git, store):
    with store.transaction(committer=("Ann", "a@b", 1700000000, -530), message="why") as t:
        t.create("refs/heads/new", git.one)
        t.update("refs/heads/main", git.two, old=git.one)
        t.symbolic("refs/heads/sym", "refs/heads/new")
        assert len(t) == 3
        assert "refs/heads/new" not in store
    assert git("rev-parse", "refs/heads/new", "refs/heads/main").split() == [git.one, git.two]
    assert git("symbolic-ref", "refs/heads/sym") == "refs/heads/new"
    shown = git("log", "-g", "--format=%gn %ge %gs", "-1", "refs/heads/new")
    assert shown == "Ann a@b why"
    entry = store.log("refs/heads/main")[0]
    assert entry.committer == ("Ann", "a@b", 1700000000, -530)
    assert (entry.old, entry.new, entry.message) == (git.one, git.two, "why")
    assert store.log("refs/heads/none") is None
    assert store.log("refs/heads/main", newest_first=False)[-1] == entry

    class Stop(Exception):
        pass

    with pytest.raises(Stop):
        with store.transaction() as t:
            t.delete("refs/heads/new")
            raise Stop
    assert "refs/heads/new" in store
    with pytest.raises(RuntimeError):
        t.commit()
    with store.transaction() as t:
        t.delete("refs/heads/new", old=refdb.EXISTS)
        t.verify("refs/heads/main", git.two)
        t.log("HEAD", git.one, git.two, message="noted")
    assert "refs/heads/new" not in store and store.log("HEAD")[0].message == "noted"
    assert store.head() == ("refs/heads/main", git.two)


def test_refusals_are_data(git, store):
    with store.transaction(batch=True) as t:
        t.update("refs/heads/main", git.two, old=git.two)
        t.create("refs/heads/other", git.one)
        t.create("refs/heads/main/below", git.one)
    assert [(r.index, r.reason) for r in t.rejections] == [
        (0, "incorrect old value provided"),
        (2, "refname conflict"),
    ]
    assert "refs/heads/other" in store
    with pytest.raises(refdb.Rejected) as caught:
        with store.transaction() as t:
            t.create("refs/heads/more", git.one)
            t.create("refs/heads/main", git.one)
    assert isinstance(caught.value, ValueError) and caught.value.rejections[0].index == 1
    assert "refs/heads/more" not in store
    with pytest.raises(refdb.InvalidName):
        with store.transaction() as t:
            t.create("refs/heads/a..b", git.one)
    with pytest.raises(refdb.Error):
        with store.transaction() as t:
            t.create("refs/heads/no-object", "1" * len(git.one))
    with store.transaction() as t:
        t.update("refs/heads/no-object", "1" * len(git.one), check=False)
    assert store.resolve("refs/heads/no-object") == "1" * len(git.one)


def test_errors_are_pythons(git, store, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        refdb.open(tmp_path / "none", discover=False)
    assert isinstance(caught.value, refdb.RepositoryError)
    if store.ref_format == "files":
        lock, damaged = git.path / "refs/heads/main.lock", git.path / "packed-refs"
        git("pack-refs", "--all")
    else:
        lock, damaged = git.path / "reftable/tables.list.lock", git.path / "reftable/tables.list"
    lock.touch()
    config = ["core.filesRefLockTimeout=0", "reftable.lockTimeout=0"]
    hasty = refdb.open(git.path, discover=False, config=config)
    with pytest.raises(TimeoutError) as caught:
        with hasty.transaction() as t:
            t.update("refs/heads/main", git.two)
    assert isinstance(caught.value, refdb.Locked)
    lock.unlink()
    damaged.write_bytes(b"no such thing\n")
    with pytest.raises(OSError) as caught:
        list(refdb.open(git.path, discover=False))
    assert isinstance(caught.value, refdb.Corrupt) and caught.value.remedy == "repair"
    assert str(git.path) in str(caught.value.path)


def test_token_changes_whenever_a_ref_does(git, store):
    seen = [store.token()]

    def changed():
        assert store.token() == refdb.open(git.path, discover=False).token()
        seen.append(store.token())
        assert len(set(seen)) == len(seen)

    git("update-ref", "refs/heads/main", git.two)
    changed()
    git("update-ref", "refs/heads/other", git.two)
    changed()
    git("symbolic-ref", "HEAD", "refs/heads/other")
    changed()
    git("update-ref", "-d", "refs/heads/other")
    changed()
    git("pack-refs", "--all")
    assert store.token() == seen[-1]


def test_rename_and_optimize(git, store):
    store.rename("refs/heads/main", "refs/heads/trunk", message="better")
    assert git("rev-parse", "refs/heads/trunk") == git.one
    with pytest.raises(refdb.Rejected):
        store.rename("refs/heads/none", "refs/heads/trunk")
    store.optimize()
    assert store.resolve("refs/heads/trunk") == git.one


def test_threads(git):
    store = refdb.open(git.path, discover=False)
    failures = []

    def work(number):
        try:
            for i in range(20):
                name = f"refs/heads/t{number}/{i}"
                with store.transaction() as t:
                    t.create(name, git.one)
                assert store.resolve(name) == git.one
                assert name in list(store)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(listed(git, "refs/heads/t[0-3]/*")) == 80


def test_one_iterator_for_several_threads(git, store):
    fill(git)
    names, taken = store.keys("refs/"), [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda to=to: to.extend(names)) for to in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sum(taken, [])) == list(store.keys("refs/"))


def test_python_goes_on_while_a_lock_is_waited_for(git):
    patient = ["core.filesRefLockTimeout=1000", "reftable.lockTimeout=1000"]
    store = refdb.open(git.path, discover=False, config=patient)
    lock = "refs/heads/main.lock" if store.ref_format == "files" else "reftable/tables.list.lock"
    (git.path / lock).touch()
    locked = []

    def write():
        try:
            with store.transaction() as t:
                t.update("refs/heads/main", git.two)
        except refdb.Locked as error:
            locked.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        thread.join(0.01)
    assert locked and turns > 10


def in_a_child(work):
    """Does the work in a forked process, which ends after a minute at the latest; returns its exit code."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_after_fork(git, store):
    list(store)

    def create():
        with store.transaction() as t:
            t.create("refs/heads/child", git.one)

    assert in_a_child(create) == 0
    assert store.resolve("refs/heads/child") == git.one
    with store.transaction() as t:
        t.create("refs/heads/parent", git.one)


def test_a_child_waits_for_no_thread_of_its_parent(git):
    store = refdb.open(git.path, discover=False, config=["core.filesRefLockTimeout=2000", "reftable.lockTimeout=2000"])
    lock = git.path / ("refs/heads/main.lock" if store.ref_format == "files" else "reftable/tables.list.lock")
    lock.touch()

    def write():
        with store.transaction() as t:
            t.update("refs/heads/main", git.two)

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(0.2)

    def create():
        lock.unlink()
        with store.transaction() as t:
            t.create("refs/heads/child", git.one)

    assert in_a_child(create) == 0
    thread.join()
    assert store.resolve("refs/heads/child") == git.one
    assert store.resolve("refs/heads/main") == git.two


def test_nothing_stays(git):
    import every_part

    assert every_part.grown(str(git.path), git.one, git.two, rounds=3) == 0


def test_stubs_name_what_is_there():
    import ast
    import pathlib

    stubs = ast.parse(pathlib.Path(refdb.__file__).with_name("_refdb.pyi").read_text())
    for stub in stubs.body:
        if isinstance(stub, ast.ClassDef):
            told = {member.name for member in stub.body}
            there = getattr(refdb, stub.name)
            own = {name for name in vars(there) if not name.startswith("_")}
            assert own == {name for name in told if not name.startswith("_")}, stub.name
            assert all(hasattr(there, name) for name in told), stub.name
            assert all(getattr(there, name).__doc__ for name in own), stub.name


def test_documentation(tmp_path):
    import doctest

    from conftest import Git

    git = Git(tmp_path / "repo", "reftable", "sha1")
    given = {"path": git.path, "oid": git.one}
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    failed, tried = doctest.testmod(refdb, extraglobs=given, optionflags=flags)
    assert tried > 10 and failed == 0
    git = Git(tmp_path / "other", "reftable", "sha1")
    given = {"path": git.path, "oid": git.one}
    readme = os.path.join(os.path.dirname(__file__), "../../docs/python.md")
    failed, tried = doctest.testfile(readme, False, globs=given, optionflags=flags)
    assert tried > 5 and failed == 0
