# To be sourced, in the folder of the sources: what packages of every kind are made with. The same sources give the
# same bytes.
#
#   $version, $SOURCE_DATE_EPOCH    of the packages, and of every file in them
#   $work                           a folder that goes when the script ends
#   python, objcopy, tar_of, sums   below

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints a Python that has what wheels and bills are made with.
python() {
    local venv=$PWD/.tools/package wanted='wheel==0.48.0 cyclonedx-python-lib==11.12.0'
    if [ "$(cat "$venv/has" 2>/dev/null)" != "$wanted" ]; then
        echo "installing $wanted" >&2
        python3 -m venv --clear "$venv"
        # shellcheck disable=SC2086 # words
        "$venv/bin/pip" install --quiet --disable-pip-version-check $wanted
        echo "$wanted" >"$venv/has"
    fi
    echo "$venv/bin/python"
}

# Finds a program that handles files of programs for any machine: the one that Rust brings, or LLVM's.
objcopy() {
    local root rust
    root=$(rustc --print sysroot)
    rust=$root/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/rust-objcopy
    [ -x "$rust" ] || rust=$(command -v llvm-objcopy) || die "there is no rust-objcopy and no llvm-objcopy"
    LD_LIBRARY_PATH=$root/lib "$rust" "$@"
}

# A tar of a folder, the same whenever it is made.
tar_of() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$1" -c "$2"
}

# Writes the checksums of all that is in a folder: sums DIRECTORY
sums() {
    (cd "$1" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | sort |
        xargs sha256sum >SHA256SUMS)
}
