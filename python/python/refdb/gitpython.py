"""All refs of a GitPython repository at once, in both formats.

    for ref in refdb.gitpython.refs(repo):
        print(ref.path, ref.commit.summary)

GitPython reads a ref by going through packed-refs for each, and knows no reftables.
"""

from git.objects.base import Object
from git.util import hex_to_bin

import refdb


class Reference:
    """A ref with the object that it leads to, as it was when the refs were listed."""

    __slots__ = ("repo", "path", "hexsha")

    def __init__(self, repo, path, hexsha):
        self.repo, self.path, self.hexsha = repo, path, hexsha

    @property
    def name(self):
        """The name without `refs/heads/`, `refs/tags/` or `refs/`."""
        for prefix in ("refs/heads/", "refs/tags/", "refs/remotes/", "refs/"):
            if self.path.startswith(prefix):
                return self.path[len(prefix) :]
        return self.path

    @property
    def object(self):
        """The object, as GitPython has it."""
        return Object.new_from_sha(self.repo, hex_to_bin(self.hexsha))

    @property
    def commit(self):
        """The commit, behind an annotated tag, too."""
        found = self.object
        while found.type == "tag":
            found = found.object
        return found

    def __repr__(self):
        return f"<refdb.gitpython.Reference '{self.path}'>"


def refs(repo, prefix="refs/", exclude=()):
    """Lists the refs of a `git.Repo` below a prefix, symrefs with what they lead to."""
    store = refdb.open(repo.git_dir, discover=False)
    found = store.dict(prefix, exclude=list(exclude))
    return [Reference(repo, path, hexsha) for path, hexsha in found.items()]
