"""Repositories made by Git, in both formats and with both hashes."""

import subprocess

import pytest

import refdb


# Not by the environment, which the tests of others change.
WHO = ["-c", "user.name=One", "-c", "user.email=one@example.org"]


class Git:
    """A repository, and the Git that asks about it."""

    def __init__(self, path, ref_format, object_format):
        self.path = path
        subprocess.run(
            [
                "git",
                "init",
                "--quiet",
                "--bare",
                "--initial-branch=main",
                f"--ref-format={ref_format}",
                f"--object-format={object_format}",
                str(path),
            ],
            check=True,
        )
        self("config", "core.logAllRefUpdates", "true")
        tree = self("hash-object", "-w", "-t", "tree", "/dev/null")
        self.one = self("commit-tree", "-m", "one", tree)
        self.two = self("commit-tree", "-m", "two", "-p", self.one, tree)
        self("update-ref", "refs/heads/main", self.one)

    def __call__(self, *arguments, stdin=None):
        run = subprocess.run(
            ["git", *WHO, "-C", str(self.path), *arguments],
            check=True,
            capture_output=True,
            input=stdin,
        )
        return run.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


@pytest.fixture(params=["files-sha1", "files-sha256", "reftable-sha1", "reftable-sha256"])
def git(request, tmp_path):
    return Git(tmp_path / "repo", *request.param.split("-"))


@pytest.fixture
def store(git):
    return refdb.open(git.path, discover=False, config=["core.filesRefLockTimeout=0"])
