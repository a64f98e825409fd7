#!/bin/sh
# Writes the tables under crates/reftable/tests/data with a real Git.
#
# Usage: scripts/make-reftable-fixtures.sh [GIT]
#
# GIT is a git binary of version 2.50 or newer (default: $REFDB_GIT, else the one in .git-oracle).
# All times, identities and contents are fixed, so another run with the same Git writes the same
# bytes; another Git may differ in what it puts into a table, never in how.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
git=${1:-${REFDB_GIT:-$root/.git-oracle/root/usr/bin/git}}
data=$root/crates/reftable/tests/data
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export HOME="$work" GIT_CONFIG_NOSYSTEM=1 LC_ALL=C GIT_TEST_REFTABLE_AUTOCOMPACTION=0
helpers=$(dirname "$git")/../lib/git-core
if [ -d "$helpers" ]; then
    export GIT_EXEC_PATH="$helpers" # a git that was moved looks for its helpers elsewhere
fi
export GIT_AUTHOR_NAME='A U Thor' GIT_AUTHOR_EMAIL=author@example.com
export GIT_COMMITTER_NAME='C O Mitter' GIT_COMMITTER_EMAIL=committer@example.com
export GIT_AUTHOR_DATE='1700000000 +0230' GIT_COMMITTER_DATE='1700000000 -0530'

# new NAME [OPTION...]: an empty repository in $work/NAME
new() {
    name=$1
    shift
    "$git" init -q --bare --ref-format=reftable -b main "$@" "$work/$name"
    cd "$work/$name"
}

# newest NAME: keeps the newest table as NAME.ref
newest() {
    cp "reftable/$(tail -n 1 reftable/tables.list)" "$data/$1.ref"
}

# blobs COUNT: makes that many objects, and prints their ids
blobs() {
    seq "$1" | while read -r n; do printf 'blob\ndata <<.\n%s\n.\n\n' "$n"; done |
        "$git" fast-import --quiet
    "$git" cat-file --batch-all-objects --batch-check='%(objectname)'
}

# small NAME [OPTION...]: a commit, tags, a symref, a deletion, logs
small() {
    case_name=$1
    new "$@"
    "$git" config core.logAllRefUpdates always
    tree=$("$git" hash-object -t tree -w --stdin </dev/null)
    commit=$("$git" commit-tree -m one "$tree")
    "$git" update-ref -m 'first message' refs/heads/main "$commit"
    "$git" update-ref -m gone refs/heads/gone "$commit"
    "$git" tag -a -m tagged v1 "$commit"
    "$git" tag -a -m tagged-twice v2 v1 2>/dev/null
    "$git" symbolic-ref refs/remotes/origin/HEAD refs/heads/main
    "$git" update-ref -d refs/heads/gone
    newest "$case_name-deletion"
    "$git" update-ref refs/heads/other "$commit"
    "$git" pack-refs --all
    newest "$case_name"
}

new initial
newest initial

small small
commit=$(GIT_COMMITTER_DATE='1700000001 +1200' "$git" commit-tree -m two "$tree")
GIT_COMMITTER_DATE='1700000001 +1200' "$git" update-ref -m second refs/heads/main "$commit"
"$git" reflog delete 'refs/heads/main@{0}'
newest log-only

small sha256 --object-format=sha256

# Multi-level indices in every section: small blocks, distinct objects, logs.
new levels
"$git" config reftable.blockSize 256
"$git" config reftable.restartInterval 3
"$git" config core.logAllRefUpdates always
blobs 250 >ids
awk '{ printf "create refs/tags/release-%03d/%s %s\n", NR % 17, NR, $1 }' ids |
    "$git" update-ref --stdin -m 'many at once'
newest levels

# Many refs, few objects: offset lists with counts below and above seven.
new few-objects
blobs 3 >ids
"$git" config reftable.blockSize 300
awk '{ id[NR] = $1 } END {
    for (i = 0; i < 600; i++)
        printf "create refs/notes/n%04d %s\n", i, i == 77 ? id[1] : i < 60 ? id[2] : id[3]
}' ids | "$git" update-ref --stdin
newest few-objects

# Default block size, more than three blocks, without objects.
new no-objects
blobs 450 >ids
"$git" config reftable.indexObjects false
awk '{ printf "create refs/changes/%02d/%d/meta %s\n", NR % 100, NR, $1 }' ids |
    "$git" update-ref --stdin
newest no-objects

# An index over refs that name no object at all.
new symrefs
"$git" config reftable.blockSize 256
seq 40 | awk '{ printf "symref-create refs/remotes/r%02d/HEAD refs/remotes/r%02d/main\n", $1, $1 }' |
    "$git" update-ref --stdin
newest symrefs

"$git" version >"$data/GIT_VERSION"
