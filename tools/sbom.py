"""Writes a software bill of materials: the installed packages that tasklm runs on, as CycloneDX 1.6
in JSON.

python tools/sbom.py --out build/tasklm.cdx.json

Where SOURCE_DATE_EPOCH is set, the same environment gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from lock import NAME, RUNNING
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
SPECIFICATION = "1.6"
LONGEST_LICENSE = 64  # characters: longer ones are whole texts
Graph = dict[str, set[str]]


def required(package: Distribution, extras: Iterable[str]) -> list[Requirement]:
    """What an installed package requires on this machine, with some of its extras."""
    requirements = [Requirement(words) for words in package.requires or []]
    wanted = ["", *sorted(extras)]
    return [
        one
        for one in requirements
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in wanted)
    ]


def installed(name: str, extras: Iterable[str]) -> tuple[dict[str, Distribution], Graph]:
    """The installed packages that one needs, itself among them, and which of them needs which."""
    packages: dict[str, Distribution] = {}
    graph: Graph = {}
    done: set[tuple[str, str]] = set()
    waiting = [(name, tuple(extras))]
    while waiting:
        key, wanted = waiting.pop()
        if (key, str(sorted(wanted))) in done:
            continue
        done.add((key, str(sorted(wanted))))
        packages[key] = _distribution(key)
        for requirement in required(packages[key], wanted):
            other = str(canonicalize_name(requirement.name))
            if other != key:
                graph.setdefault(key, set()).add(other)
            waiting.append((other, tuple(requirement.extras)))
    return packages, graph


def _distribution(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise SystemExit(f"{name} is needed and not installed. Install all of it: make") from None


def licenses(package: Distribution) -> list[dict[str, Any]]:
    """The licences that a package names, as CycloneDX writes them."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    classifiers = [line.split(" :: ") for line in metadata.get_all("Classifier", [])]
    named = sorted({words[-1] for words in classifiers if words[0] == "License" and len(words) > 2})
    text = (metadata.get("License") or "").strip()
    if not named and text and "\n" not in text and len(text) <= LONGEST_LICENSE:
        named = [text]
    return [{"license": {"name": name}} for name in named]


def component(name: str, package: Distribution) -> dict[str, Any]:
    """A package as a component."""
    address = f"pkg:pypi/{name}@{package.version.replace('+', '%2B')}"
    about: dict[str, Any] = {
        "type": "library",
        "bom-ref": address,
        "name": name,
        "version": package.version,
        "purl": address,
    }
    if summary := package.metadata.get("Summary"):
        about["description"] = summary
    if named := licenses(package):
        about["licenses"] = named
    return about


def bill(name: str, extras: Iterable[str], seconds: float) -> dict[str, Any]:
    """The bill of materials of an installed package, made at some time."""
    packages, graph = installed(name, extras)
    components = {key: component(key, packages[key]) for key in sorted(packages)}
    own = {**components.pop(name), "type": "application"}
    all_of_them = {name: own, **components}
    depends = [
        {
            "ref": one["bom-ref"],
            "dependsOn": sorted(all_of_them[other]["bom-ref"] for other in graph.get(key, ())),
        }
        for key, one in all_of_them.items()
    ]
    content = {"components": list(components.values()), "dependencies": depends}
    metadata = {
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
        "tools": {
            "components": [
                {"type": "application", "name": "tools/sbom.py", "version": own["version"]}
            ]
        },
        "component": own,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([metadata, content], sort_keys=True))
    head = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{serial}",
    }
    return {**head, "version": 1, "metadata": metadata, **content}


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--extras", default=",".join(RUNNING), help="of tasklm, joined by commas")
    options = parser.parse_args()
    made_at = float(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    found = bill(NAME, [extra for extra in options.extras.split(",") if extra], made_at)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(
        f"{options.out}: {NAME} "
        f"{found['metadata']['component']['version']} and {len(found['components'])} packages"
    )


if __name__ == "__main__":
    main()
