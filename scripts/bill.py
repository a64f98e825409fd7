"""What the command is made of, from `cargo metadata`: as CycloneDX, and the licences as a text.

Usage: scripts/bill.py sbom|licences TARGET    (scripts/package brings the library that it needs)

The same sources give the same bytes: SOURCE_DATE_EPOCH is the time, and nothing is drawn.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = "refdb-cli"
# The names of files with a licence, or with what it asks to be handed on.
TEXTS = re.compile(r"(licen[cs]e|copying|notice|copyright|unlicense)", re.IGNORECASE)


def packages(target):
    """Returns the packages that the command is made of, by their ids, and what each needs."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={target}"]
    metadata = json.loads(subprocess.check_output(command))
    by_id = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}

    def needs(package):
        # What is only needed while it is built or tested is not in it.
        return [
            dep["pkg"]
            for dep in nodes[package]["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
            and not is_macro(by_id[dep["pkg"]])
        ]

    root = next(id for id, package in by_id.items() if package["name"] == ROOT)
    found, waiting = {}, [root]
    while waiting:
        package = waiting.pop()
        if package not in found:
            found[package] = needs(package)
            waiting += found[package]
    return root, by_id, found


def is_macro(package):
    return any("proc-macro" in target["kind"] for target in package["targets"])


def licence_of(package):
    # A slash is an old way to write OR.
    return re.sub(r" */ *", " OR ", package["license"] or "")


def ordered(by_id, ids):
    return sorted(ids, key=lambda id: (by_id[id]["name"], by_id[id]["version"]))


def sbom(target):
    from cyclonedx.contrib.hash.factories import HashTypeFactory
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    root, by_id, found = packages(target)
    lock = tomllib.loads(Path("Cargo.lock").read_text())["package"]
    sums = {(package["name"], package["version"]): package.get("checksum") for package in lock}

    def component(package):
        name, version = package["name"], package["version"]
        hashed = sums.get((name, version))
        url = PackageURL("cargo", name=name, version=version)
        return Component(
            name=name,
            version=version,
            type=ComponentType.APPLICATION if name == ROOT else ComponentType.LIBRARY,
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


def licences(target):
    root, by_id, found = packages(target)
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
    for text, names in sorted(texts.items(), key=lambda item: item[1]):
        out += ["", "-" * 80, ", ".join(dict.fromkeys(names)), "-" * 80, "", text]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    kinds = {"sbom": sbom, "licences": licences}
    if len(sys.argv) != 3 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.stdout.write(kinds[sys.argv[1]](sys.argv[2]))
