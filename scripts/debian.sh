# To be sourced: fetches Debian packages with apt without touching the host.
#
# apt gets a state of its own in a folder of ours, needs no root, and checks signatures with the
# host's Debian keys. The archive is the one that the host's own configuration names.
#
#   debian_begin DIR LOG [ARCH]   prepares, for this machine or another; sets `debian_arch`; messages of
#                          apt go to LOG
#   debian_suite SUITE...  turns to suites and fetches their lists; `debian_debs` is empty afterwards
#   debian_get ARGUMENTS   runs apt-get; `download` and `install --download-only` fill `debian_debs`
#   debian_unpack DIR      unpacks everything in `debian_debs` into DIR

debian_begin() {
    debian_dir=$1
    debian_log=$2
    debian_debs=$debian_dir/cache/archives
    for tool in apt-get apt-config dpkg dpkg-deb; do
        command -v "$tool" >/dev/null || die "$tool is missing: this needs Debian or a relative"
    done
    debian_arch=${3:-$(dpkg --print-architecture)}
    debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -r "$debian_keyring" ] ||
        die "$debian_keyring is missing (package debian-archive-keyring)"

    # The first archive that ends in /debian, else the first that is not for security.
    uris=$(apt-get indextargets --no-release-info --format '$(REPO_URI)' 'Created-By: Packages' |
        sed 's#/*$##' | awk '!seen[$0]++')
    debian_archive=$(printf '%s\n' "$uris" | grep '/debian$' | head -n 1) ||
        debian_archive=$(printf '%s\n' "$uris" | grep -v security | head -n 1) || true
    [ -n "$debian_archive" ] || die "apt's configuration names no Debian archive"

    rm -rf "$debian_dir"
    mkdir -p "$debian_dir/none"
    : >"$debian_dir/status"
    # Of the host's settings only those for fetching (proxies and the like) are kept: its hooks
    # would otherwise run and touch its caches.
    apt-config dump | grep '^Acquire::' | grep -v '^Acquire::IndexTargets' \
        >"$debian_dir/conf" || true
    cat >>"$debian_dir/conf" <<CONF
#clear Acquire::Languages;
Acquire::Languages { "none"; };
Acquire::Retries "3";
Acquire::AllowInsecureRepositories "false";
APT::Architecture "$debian_arch";
#clear APT::Architectures;
APT::Architectures { "$debian_arch"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "$debian_dir/none";
Dir::Etc::sourcelist "$debian_dir/sources";
Dir::Etc::sourceparts "$debian_dir/none";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "$debian_dir/none";
Dir::State "$debian_dir/state";
Dir::State::status "$debian_dir/status";
Dir::Cache "$debian_dir/cache";
CONF
}

debian_get() {
    (cd "$debian_debs" && APT_CONFIG=$debian_dir/conf apt-get -q -y "$@") >>"$debian_log" 2>&1
}

debian_suite() {
    for debian_from; do
        echo "deb [signed-by=$debian_keyring] $debian_archive $debian_from main"
    done >"$debian_dir/sources"
    rm -rf "$debian_dir/state" "$debian_dir/cache"
    mkdir -p "$debian_dir/state/lists/partial" "$debian_debs/partial"
    debian_get update
}

debian_unpack() {
    mkdir -p "$1"
    for deb in "$debian_debs"/*.deb; do
        dpkg-deb -x "$deb" "$1" >>"$debian_log" 2>&1 || return 1
    done
}
