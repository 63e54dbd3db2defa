"""What can be said of real nodes without starting one: what they lack, their images, their groups, what is left."""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import fields, replace
from pathlib import Path

import pytest

from precision_lab.builds.programs import NODE_MODULES, Module, modules_for
from precision_lab.nodes.images import write_pause_archive
from precision_lab.nodes.leftovers import Snapshot
from precision_lab.nodes.node import PAUSE_IMAGE
from precision_lab.nodes.support import missing
from precision_lab.processes import cgroups

NOTHING = Snapshot(*[frozenset[str]()] * len(fields(Snapshot)))


def hierarchy(root: Path, name: str, **files: str) -> Path:
    """A mounted controller, as a folder."""
    folder = root / name
    folder.mkdir()
    for file, text in {"cgroup.procs": "", **files}.items():
        (folder / file).write_text(text)
    return folder


def test_without_root_the_only_sentence_says_to_be_root() -> None:
    (sentence,) = missing(user_id=1000)
    assert "as root" in sentence


def test_a_group_is_made_in_every_hierarchy_and_taken_away_with_all_below_it(tmp_path: Path) -> None:
    hierarchies = [hierarchy(tmp_path, name) for name in ("cpu", "memory")]
    cgroups.create("lab-x/node-a", tmp_path)
    assert all((folder / "lab-x" / "node-a").is_dir() for folder in hierarchies)
    cgroups.remove("lab-x", tmp_path)
    assert not any((folder / "lab-x").exists() for folder in hierarchies)
    cgroups.remove("lab-x", tmp_path)


def test_controllers_without_a_hierarchy_are_named(tmp_path: Path) -> None:
    for name in cgroups.NEEDED:
        hierarchy(tmp_path, name)
    assert cgroups.missing(tmp_path) == []
    (tmp_path / "pids" / "cgroup.procs").unlink()
    assert cgroups.missing(tmp_path) == ["pids"]


def test_the_pause_image_holds_the_program_and_its_digest(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    with tarfile.open(write_pause_archive(program, tmp_path / "pause.tar")) as tar:
        files = {name: tar.extractfile(name) for name in tar.getnames()}
        content = {name: file.read() for name, file in files.items() if file}
    (image,) = json.loads(content["manifest.json"])
    layer = content[image["Layers"][0]]
    assert image["RepoTags"] == [PAUSE_IMAGE]
    config = json.loads(content[image["Config"]])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]


@pytest.mark.parametrize("module", NODE_MODULES, ids=lambda module: module.name)
def test_each_program_of_real_nodes_is_found_by_its_name(module: Module) -> None:
    (found,) = modules_for(module.program_names)
    assert found is module


def test_a_changed_go_source_of_ours_is_built_again() -> None:
    (plugin,) = modules_for(("gpu-device-plugin",))
    other = replace(plugin, programs=(("gpu-device-plugin", "../../../nodes/pause.go"),))
    assert plugin.key() != other.key()
    source = plugin.folder / plugin.programs[0][1]
    assert source.read_text() in "".join(plugin.key_parts())


def test_what_came_and_what_went_is_said_with_its_kind() -> None:
    later = replace(NOTHING, mounts=frozenset({"/a"}), interfaces=frozenset({"veth0"}))
    assert NOTHING.differences(later) == ["mounts: + /a", "interfaces: + veth0"]
    assert later.differences(NOTHING) == ["mounts: - /a", "interfaces: - veth0"]
