"""What a package is made of, from `cargo metadata`: as CycloneDX, and the licences as a text.

Usage: scripts/bill.py sbom|licences TARGET [PACKAGE [MANIFEST]]    (scripts/packing.sh brings the library that it
needs). It is the package of the command unless one is named, of this workspace or that of a manifest.

The same sources give the same bytes: SOURCE_DATE_EPOCH is the time, and nothing is drawn.
"""

import html
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

COMMAND = "refdb-cli"
# The names of files with a licence, or with what it asks to be handed on.
TEXTS = re.compile(r"(licen[cs]e|copying|notice|copyright|unlicense)", re.IGNORECASE)


def packages(target, name, manifest):
    """Returns the packages that one is made of, by their ids, and what each needs."""
    where = ["--locked", "--manifest-path", manifest]
    command = ["cargo", "metadata", "--format-version=1", f"--filter-platform={target}", *where]
    metadata = json.loads(subprocess.check_output(command))
    by_id = {package["id"]: package for package in metadata["packages"]}
    # That is said of a whole workspace, whose other packages may want more of one that they share.
    command = ["cargo", "tree", "-p", name, "--target", target, "-e", "normal,no-proc-macro", *where]
    command += ["--prefix", "none", "--format", "{p}"]
    lines = subprocess.check_output(command, text=True).splitlines()
    built = {tuple(line.split()[:2]) for line in lines if line}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}

    def needs(package):
        # What is only needed while it is built or tested is not in it.
        return [
            dep["pkg"]
            for dep in nodes[package]["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
            and (by_id[dep["pkg"]]["name"], "v" + by_id[dep["pkg"]]["version"]) in built
        ]

    root = next(id for id, package in by_id.items() if package["name"] == name)
    found, waiting = {}, [root]
    while waiting:
        package = waiting.pop()
        if package not in found:
            found[package] = needs(package)
            waiting += found[package]
    return root, by_id, found


def licence_of(package):
    # A slash is an old way to write OR.
    return re.sub(r" */ *", " OR ", package["license"] or "")


def ordered(by_id, ids):
    return sorted(ids, key=lambda id: (by_id[id]["name"], by_id[id]["version"]))


def sbom(target, name=COMMAND, manifest="Cargo.toml"):
    from cyclonedx.contrib.hash.factories import HashTypeFactory
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    root, by_id, found = packages(target, name, manifest)
    lock = tomllib.loads(Path(manifest).with_name("Cargo.lock").read_text())["package"]
    sums = {(package["name"], package["version"]): package.get("checksum") for package in lock}

    def component(package):
        name, version = package["name"], package["version"]
        hashed = sums.get((name, version))
        url = PackageURL("cargo", name=name, version=version)
        return Component(
            name=name,
            version=version,
            type=ComponentType.APPLICATION if name == COMMAND else ComponentType.LIBRARY,
            bom_ref=str(url),
            purl=url,
            description=package["description"],
            licenses=[LicenseFactory().make_from_string(licence_of(package))],
            hashes=[HashTypeFactory().from_hashlib_alg("sha256", hashed)] if hashed else [],
        )

    made = {id: component(by_id[id]) for id in ordered(by_id, found)}
    bom = Bom()
    bom.metadata.component = made[root]
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    for id, one in made.items():
        if id != root:
            bom.components.add(one)
        bom.register_dependency(one, [made[needed] for needed in found[id]])
    # The number is that of the content.
    parts = " ".join(str(one.purl) for one in made.values())
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"{target} {parts}")
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def licences(target, name=COMMAND, manifest="Cargo.toml"):
    _, by_id, found = packages(target, name, manifest)
    out = ["refdb is made of these packages, each under a licence of its own. Texts follow behind the list.", ""]
    texts = {}
    for id in ordered(by_id, found):
        package = by_id[id]
        if package["source"] is None:
            continue
        name = f"{package['name']} {package['version']}"
        out.append(f"{name}: {licence_of(package)}")
        folder = Path(package["manifest_path"]).parent
        for path in sorted(folder.iterdir()):
            if path.is_file() and TEXTS.search(path.name) and path.suffix not in (".rs", ".toml"):
                text = path.read_text(encoding="utf-8", errors="replace")
                text = "\n".join(line.rstrip() for line in text.strip().splitlines())
                texts.setdefault(text, []).append(name)
    texts.setdefault(licences_of_rust(), []).append("the Rust Standard Library, which is in each of them")
    for what, file in linked_with(target):
        text = Path("scripts/licences", file).read_text(encoding="utf-8").strip()
        texts.setdefault(text, []).append(what)
    for text, names in sorted(texts.items(), key=lambda item: item[1]):
        out += ["", "-" * 80, ", ".join(dict.fromkeys(names)), "-" * 80, "", text]
    return "\n".join(out) + "\n"


def linked_with(target):
    """Returns what the linker adds that is no package, and where its licence stands (below scripts/licences)."""
    if "linux" not in target:
        return []
    unwind = ("LLVM's libunwind, which is linked with it", "libunwind.txt")
    if target.endswith("musl"):
        return [unwind, ("musl, which is linked with it", "musl.txt")]
    return [unwind, ("Zig's compiler-rt, which is linked with it", "zig.txt")]


def licences_of_rust():
    """Returns the notices of Rust's own library, which its compiler brings as a page."""
    root = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
    page = Path(root) / "share/doc/rust/COPYRIGHT-library.html"
    if not page.exists():
        print(f"bill: the notices of Rust's library are left out, for there is no {page}", file=sys.stderr)
        return "MIT OR Apache-2.0"
    text = re.sub(r"<(style|script).*?</\1>|<[^>]+>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = "\n".join(line.strip() for line in html.unescape(text).strip().splitlines())
    return re.sub(r"\n{3,}", "\n\n", text)


if __name__ == "__main__":
    kinds = {"sbom": sbom, "licences": licences}
    if not 3 <= len(sys.argv) <= 5 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.stdout.write(kinds[sys.argv[1]](*sys.argv[2:]))
