"""What a forger has: the members of an honest bundle, to be altered at will, and the claims recomputed to fit."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.bundle.archive import Archive, write_archive
from twinalign.bundle.contents import Contents
from twinalign.bundle.layout import log_member
from twinalign.verdict.classic import log_lines
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.initial_weights import compare_initial

WITNESS = "witness-of-execution"
"""A folder that hostile content makes where it is executed."""


class Forgery:
    """An honest bundle's members, in memory."""

    def __init__(self, bundle: Path) -> None:
        with Archive(bundle) as archive:
            self.members = {name: bytes(archive.read(name)) for name in archive.names}

    def json(self, name: str) -> Any:
        return json.loads(self.members[name])

    def edit(self, name: str, change: Callable[[Any], Any]) -> None:
        """Alter a JSON member in place."""
        value = self.json(name)
        change(value)
        self.members[name] = (json.dumps(value, ensure_ascii=False) + "\n").encode()

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        return np.load(io.BytesIO(self.members[name]), allow_pickle=True).item()

    def store(self, name: str, arrays: Any) -> None:
        stream = io.BytesIO()
        np.save(stream, arrays, allow_pickle=True)
        self.members[name] = stream.getvalue()

    def change_arrays(self, name: str, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
        arrays = self.arrays(name)
        change(arrays)
        self.store(name, arrays)

    def renew_manifest(self) -> None:
        """Sizes and digests of what the members have become."""

        def renew(manifest: dict[str, Any]) -> None:
            manifest["members"] = {
                name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                for name, content in sorted(self.members.items())
                if name != "manifest.json"
            }

        self.edit("manifest.json", renew)

    def write(self, path: Path) -> Path:
        """A bundle whose manifest fits its members."""
        self.renew_manifest()
        write_archive(path, self.members)
        return path

    def claim_what_is(self, path: Path) -> None:
        """Recompute summary, logs and manifest from the arrays, as a forger who has read the source would."""
        with Archive(self.write(path)) as archive:
            contents = Contents.of(archive)
            found = {}
            for stage in contents.stages:
                found[stage] = compare_stage(stage, contents.recordings(stage), contents.description)
                lines = "\n".join(log_lines(found[stage].classic)) + "\n"
                self.members[log_member(stage)] = lines.encode()
            summary = contents.summary
            initial = {}
            if "initial" in summary:
                initial = compare_initial(contents.recordings("initial"), summary["initial"]["counts"]).to_json()

        def claim(summary: dict[str, Any]) -> None:
            verdicts = {comparison.verdict for comparison in found.values()}
            summary["stages"] = {at: summary["stages"][at] | comparison.to_json() for at, comparison in found.items()}
            summary |= {"initial": initial} if initial else {}
            summary["verdict"] = next((v for v in ("diverged", "inconclusive") if v in verdicts), "aligned")

        self.edit("result/summary.json", claim)
        verdict = self.json("result/summary.json")["verdict"]
        self.edit("manifest.json", lambda manifest: manifest.update(verdict=verdict))
