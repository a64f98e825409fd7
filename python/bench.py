"""Measures refdb beside pygit2, dulwich and GitPython in one run: bench.py [REFS] [RUNS].

Each answer is checked against the others'. Medians in milliseconds of a processor, which other programs do not
change, and of a clock; the repository is made by refdb, in memory where /dev/shm is, packed or compacted by it, and
all refs name one object.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import refdb


def make(path, ref_format, count):
    subprocess.run(["git", "init", "-q", "--bare", f"--ref-format={ref_format}", path], check=True)
    git = ["git", "-C", path]
    tree = subprocess.check_output([*git, "hash-object", "-w", "-t", "tree", "/dev/null"])
    who = ["-c", "user.name=one", "-c", "user.email=one@example.org"]
    commit = [*git, *who, "commit-tree", "-m", "one", tree.decode().strip()]
    oid = subprocess.check_output(commit).decode().strip()
    store = refdb.open(path, discover=False)
    with store.transaction() as transaction:
        for i in range(count):
            transaction.create(f"refs/heads/team-{i % 100}/branch-{i}", oid)
    store.optimize()


def with_pygit2(path):
    import pygit2

    repo = pygit2.Repository(path)
    return {ref.name: str(ref.target) for ref in repo.references.iterator()}


def with_dulwich(path):
    from dulwich.repo import Repo

    with Repo(path) as repo:
        found = repo.refs.as_dict(b"refs/heads")
    return {f"refs/heads/{name.decode()}": oid.decode() for name, oid in found.items()}


def with_gitpython(path):
    import git

    with git.Repo(path) as repo:
        return {ref.path: ref.commit.hexsha for ref in list(repo.refs)[:100]}


def with_git(path):
    command = ["git", "-C", path, "for-each-ref", "--format=%(refname) %(objectname)"]
    return dict(line.rsplit(" ", 1) for line in subprocess.check_output(command, text=True).splitlines())


def floor(names, oid):
    """What Python alone takes for such a dict: a str for each name, cut out of one that has them all in ASCII, and
    its place in the dict, in two loops of Python's own in C."""
    text = "\n".join(names)
    return lambda: dict.fromkeys(text.split("\n"), oid)


def spent():
    """Seconds of a processor, by this process and those that it ran."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def median(work, runs):
    times, clock, answer = [], [], None
    for _ in range(runs):
        answer = None  # It goes before the clock starts.
        before, start = spent(), time.perf_counter()
        answer = work()
        clock.append((time.perf_counter() - start) * 1000)
        times.append((spent() - before) * 1000)
    return statistics.median(times), statistics.median(clock), answer


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        for ref_format in ("files", "reftable"):
            path = os.path.join(folder, ref_format)
            make(path, ref_format, count)
            store = refdb.open(path, discover=False)
            known = store.dict("refs/")
            rows = [
                ("refdb: Arrow columns", lambda: store.table().__arrow_c_stream__(), runs),
                ("refdb: dict", lambda: store.dict("refs/"), runs),
                ("refdb: items", lambda: dict(store.items("refs/")), runs),
                ("Python alone: dict", floor(known, known[next(iter(known))]), runs),
                ("refdb: token", lambda: store.token(), runs),
                ("refdb: open, and dict", lambda: refdb.open(path).dict("refs/"), runs),
                ("Git, as a process", lambda: with_git(path), min(runs, 3)),
            ]
            try:
                import pyarrow

                rows.insert(1, ("refdb: pyarrow.table", lambda: pyarrow.table(store), runs))
            except ImportError:
                print("pyarrow is not there: no row for it")
            if ref_format == "files":
                rows.append(("pygit2: dict", lambda: with_pygit2(path), min(runs, 3)))
                rows.append(("dulwich: dict", lambda: with_dulwich(path), 1))
                rows.append(("GitPython: the first 100", lambda: with_gitpython(path), 1))
            print(f"{ref_format}, {count} refs")
            expected, dict_time = None, None
            for name, work, times in rows:
                took, clock, answer = median(work, times)
                if name.endswith("dict") or name.startswith("Git,"):
                    expected = expected or answer
                    assert answer == expected and len(answer) == count, name
                dict_time = took if name == "refdb: dict" else dict_time
                ratio = f"{took / dict_time:9.1f}x" if dict_time else ""
                print(f"  {name:28} {took:9.1f} {clock:9.1f} {ratio}")


main()
