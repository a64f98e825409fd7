"""refdb's refs for pygit2: repositories whose refs are tables can be opened, and refdb does all that is done with
refs, in both formats.

    repo = refdb.pygit2.open(path)

What is open already takes `attach(repo)`; it can only be a repository whose refs are files, unless `enable()` was
called before it was opened, which attaches tables by itself. The plug-in, `librefdb-git2.so`, is beside this file if the wheel was built with it,
or where `REFDB_GIT2` says, or where the loader finds it.
"""

import ctypes
import os

import pygit2
import pygit2.repository
from pygit2 import _pygit2
from pygit2.errors import check_error

import refdb

_NAME = "librefdb-git2.so"
_loaded = None


def open(path, flags=0):
    """Opens a repository whose refs are files or tables; returns a `pygit2.Repository`."""
    enable()
    repo = pygit2.Repository(path, flags) if flags else pygit2.Repository(path)
    return attach(repo)


def attach(repo):
    """Gives a `pygit2.Repository` these refs in place of libgit2's own; returns it."""
    plugin, libgit2 = _load()
    pointer = ctypes.c_void_p.from_buffer_copy(repo._pointer)
    _check(plugin, plugin.refdb_git2_attach_in(libgit2, pointer))
    return repo


def enable():
    """Lets pygit2 open repositories whose refs are tables, and attaches each, whoever opens it from now on: with
    refs of libgit2's own it would show none."""
    plugin, libgit2 = _load()
    _check(plugin, plugin.refdb_git2_enable_in(libgit2))
    begin = pygit2.repository.BaseRepository._common_init
    if getattr(begin, "attaches", False):
        return

    def common_init(self):
        begin(self)
        if "extensions.refstorage" in self.config:
            attach(self)

    common_init.attaches = True
    pygit2.repository.BaseRepository._common_init = common_init


def _check(plugin, code):
    if code < 0:
        unfound = plugin.refdb_git2_last_error()
        if unfound:
            raise refdb.Unsupported(unfound.decode("utf-8", "replace"))
        check_error(code)


def _load():
    """The plug-in, and a handle for the libgit2 that pygit2 stands on, which need not be the only one here."""
    global _loaded
    if _loaded is None:
        beside = os.path.join(os.path.dirname(__file__), _NAME)
        given = os.environ.get("REFDB_GIT2")
        plugin = ctypes.CDLL(given or (beside if os.path.exists(beside) else _NAME))
        plugin.refdb_git2_last_error.restype = ctypes.c_char_p
        plugin.refdb_git2_enable_in.argtypes = [ctypes.c_void_p]
        plugin.refdb_git2_attach_in.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        _loaded = plugin, ctypes.CDLL(_pygit2.__file__)._handle
    return _loaded
