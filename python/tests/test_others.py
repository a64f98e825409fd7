"""The adapters: dulwich's own tests of a container of refs, and GitPython."""

import importlib.util
import os
import unittest

import pytest

import refdb

SUITE = os.environ.get("REFDB_DULWICH_TESTS")


def suite():
    """The module of dulwich's tests, from its source package."""
    if not SUITE:
        pytest.fail("REFDB_DULWICH_TESTS names no tests of dulwich: scripts/languages python fetches them")
    import sys

    sys.path.insert(0, SUITE)
    return importlib.import_module("tests.test_refs")


@pytest.mark.parametrize("ref_format", ["files", "reftable"])
def test_dulwichs_own(ref_format, tmp_path):
    from conftest import Git

    from refdb.dulwich import RefsContainer

    theirs = suite()

    class Tests(theirs.RefsContainerTests, unittest.TestCase):
        def setUp(self):
            git = Git(tmp_path / self._testMethodName, ref_format, "sha1")
            git("symbolic-ref", "HEAD", "refs/heads/master")
            git("update-ref", "-d", "refs/heads/main")
            self._refs = RefsContainer(refdb.open(git.path, discover=False))
            for name, value in theirs._TEST_REFS.items():
                self._refs[name] = value

    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Tests)
    result = unittest.TestResult()
    tests.run(result)
    failures = [text for _, text in result.failures + result.errors]
    assert not failures, "\n".join(failures)
    assert result.testsRun >= 20 and not result.skipped
    print(f"dulwich's RefsContainerTests, {ref_format}: {result.testsRun} of {result.testsRun}")


def test_dulwich_repositories(git):
    if git("rev-parse", "--show-object-format") != "sha1":
        return
    from dulwich.repo import Repo

    import refdb.dulwich

    repo = Repo(str(git.path))
    refdb.dulwich.attach(repo)
    assert repo.head() == git.one.encode()
    repo.refs.set_if_equals(
        b"refs/heads/main", git.one.encode(), git.two.encode(), b"Ann <a@b>", 1700000000, -19800, b"why"
    )
    shown = git("log", "-g", "--format=%gn %ge %gs", "-1", "refs/heads/main")
    assert shown == "Ann a@b why"
    entry = repo.refs.store.log("refs/heads/main")[0]
    assert entry.committer == ("Ann", "a@b", 1700000000, -530)
    assert repo.get_walker().__iter__().__next__().commit.message == b"two\n"
    repo.close()


def test_gitpython(git):
    if git("rev-parse", "--show-object-format") != "sha1":
        return
    import git as gitpython

    import refdb.gitpython

    git("update-ref", "refs/heads/topic/one", git.two)
    git("tag", "-a", "-m", "tag", "v1", git.one)
    repo = gitpython.Repo(str(git.path))
    found = {ref.name: ref for ref in refdb.gitpython.refs(repo)}
    assert sorted(found) == ["main", "topic/one", "v1"]
    assert found["topic/one"].commit.message == "two\n"
    assert found["v1"].object.type == "tag" and found["v1"].commit.hexsha == git.one
    repo.close()


def test_pygit2(git, tmp_path):
    if git("rev-parse", "--show-object-format") != "sha1":
        return
    import pygit2

    import refdb.pygit2

    if not os.environ.get("REFDB_GIT2"):
        pytest.fail("REFDB_GIT2 names no plug-in for libgit2: scripts/git2 build makes it")
    repo = refdb.pygit2.open(str(git.path))
    assert repo.head.name == "refs/heads/main" and str(repo.head.target) == git.one
    repo.set_ident("One", "one@example.org")
    repo.references.create("refs/heads/topic", git.one)
    with pytest.raises(pygit2.AlreadyExistsError):
        repo.references.create("refs/heads/topic", git.two)
    topic = repo.references["refs/heads/topic"]
    topic.set_target(git.two, "moved")
    assert [entry.message for entry in topic.log()][:1] == ["moved"] and len(list(topic.log())) == 2
    with repo.transaction() as transaction:
        transaction.lock_ref("refs/heads/main")
        transaction.lock_ref("refs/heads/new")
        transaction.set_target("refs/heads/main", git.two, message="together")
        transaction.set_target("refs/heads/new", git.two, message="together")
    topic.rename("refs/heads/renamed")
    repo.references.delete("refs/heads/new")
    listed = git("for-each-ref", "--format=%(refname) %(objectname)").split("\n")
    assert listed == [f"refs/heads/main {git.two}", f"refs/heads/renamed {git.two}"]
    assert git("reflog", "show", "--format=%gn %gs", "refs/heads/main").split("\n")[0] == "One together"
    assert sorted(repo.references) == ["refs/heads/main", "refs/heads/renamed"]
    repo.references.compress()
    git("refs", "verify")
    # One that nobody attaches.
    assert pygit2.Repository(str(git.path)).branches["renamed"].target == repo.head.target
    # What is open already.
    other = refdb.pygit2.attach(pygit2.Repository(str(git.path)))
    assert other.branches["renamed"].target == repo.head.target
