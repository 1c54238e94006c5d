"""`judge-local doctor`: every line says how a thing is, and what to do where it is not well."""

import json
import os
import socket

import pytest
from click.testing import CliRunner

from judge_local.cli import doctor as module
from judge_local.cli import main
from judge_local.errors import EngineError

INFO = {
    "version": "1.2.3",
    "system": "CPU : AVX2 = 1 | ",
    "gpu_offload": False,
    "devices": [],
    "mmap": True,
    "max_sequences": 256,
}


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    """An engine that answers at once; one test asks the real one."""
    info = dict(INFO)
    monkeypatch.setattr("judge_local.engine.children.engine_info", lambda: info)
    return info


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty models folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGE_LOCAL_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


def doctor(*args):
    return CliRunner().invoke(main, ["doctor", *args])


def checks():
    data = json.loads(doctor("--json").stdout)
    return {check["name"]: check for check in data["checks"]}


def test_every_line_is_ok_or_has_something_to_do():
    result = doctor("--json")
    data = json.loads(result.stdout)

    assert result.exit_code == 0
    assert data["works"] is True
    assert result.stderr == ""
    for check in data["checks"]:
        assert check["state"] == "ok" or check.get("advice"), check


def test_what_is_looked_at():
    names = list(checks())

    assert names == [
        "judge-local",
        "engine",
        "GPU",
        "processors",
        "memory",
        "models folder",
        "models",
        "disk",
        "pip",
        "settings",
    ]


def test_a_person_gets_the_state_first():
    lines = doctor().stdout.splitlines()

    assert all(line.startswith(("ok ", "warn ", "            ")) for line in lines)
    assert "warn        models: none on this disk" in lines
    assert any("judge-local pull smollm2-135m" in line for line in lines)


def test_the_network_is_not_touched(monkeypatch):
    def refuse(*_, **__):
        pytest.fail("doctor opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)

    assert doctor().exit_code == 0


def test_an_engine_that_does_not_load_is_4(monkeypatch):
    def broken():
        raise EngineError(
            "engine", "llama.cpp does not load ('libgomp.so.1')", "Install llama-cpp-python again."
        )

    monkeypatch.setattr("judge_local.engine.children.engine_info", broken)

    result = doctor()

    assert result.exit_code == 4
    assert "fail        engine: " in result.stdout
    assert "libgomp" in result.stdout


def test_a_missing_engine_is_4(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", version)

    assert doctor().exit_code == 4
    assert checks()["engine"]["state"] == "fail"


def test_a_gpu_is_said_to_stop_a_moment_later(engine):
    engine["gpu_offload"] = True
    engine["devices"] = [{"name": "Card", "free_bytes": 3 * 10**9, "total_bytes": 8 * 10**9}]

    assert checks()["GPU"]["value"] == "Card: 3.0 GB of 8.0 GB free"
    assert "between micro-batches" in checks()["GPU"]["advice"]


def test_a_build_for_gpus_that_finds_none_is_a_warning(engine):
    engine["gpu_offload"] = True

    assert checks()["GPU"]["state"] == "warn"


@pytest.mark.parametrize("on_card", [False, True])
def test_weights_that_a_cpu_reads_slowly_are_a_warning(engine, folder, tiny_model, monkeypatch, on_card):
    from judge_local.models.store import Store

    Store(folder).import_file(tiny_model, name="tiny")
    monkeypatch.setattr("judge_local.models.quantisation.slow_type", lambda header: "Q4_1")
    if on_card:
        engine["devices"] = [{"name": "Card", "free_bytes": 3 * 10**9, "total_bytes": 8 * 10**9}]
    check = checks()["model tiny"]

    assert check["state"] == ("ok" if on_card else "warn")
    assert ("judge-local optimize tiny" in check.get("advice", "")) is not on_card


def test_processors_held_back_are_a_warning(monkeypatch):
    monkeypatch.setattr("judge_local.models.hardware.usable_cores", lambda: 1)
    monkeypatch.setattr("judge_local.models.hardware.cores_by_affinity", lambda: 4)
    monkeypatch.setattr("judge_local.models.hardware.cpu_quota", lambda: 1.5)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)

    check = checks()["processors"]

    assert check["state"] == "warn"
    assert check["value"] == (
        "1 of 64 may be used, one thread each: an affinity mask leaves 4 and a container's quota is worth 1.5"
    )


def test_a_models_folder_that_is_a_file_is_4(folder):
    folder.write_text("not a folder")

    result = doctor()

    assert result.exit_code == 4
    assert "is not a folder" in result.stdout
    assert result.stderr == ""


def test_a_read_only_models_folder_is_a_warning(folder, monkeypatch):
    """Root may write everywhere, so the answer of the operating system is played."""
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)

    check = checks()["models folder"]

    assert check["state"] == "warn"
    assert "may not be written by you" in check["value"]
    assert "Judging works" in check["advice"]


def test_a_full_disk_is_a_warning(monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: module.shutil._ntuple_diskusage(100, 99, 1))

    assert checks()["disk"] == {
        "name": "disk",
        "state": "warn",
        "value": checks()["disk"]["value"],
        "advice": "Make room before you pull a model.",
    }
    assert checks()["disk"]["value"].startswith("1 B free at ")


def test_a_missing_pip_is_a_warning(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)

    assert checks()["pip"]["state"] == "warn"


def test_a_model_is_looked_into(folder, tiny_model):
    from judge_local.models.store import Store

    Store(folder).import_file(tiny_model, name="tiny")

    check = checks()["model tiny"]

    assert check["state"] == "ok"
    assert "llama" in check["value"]


def test_a_model_cut_short_is_a_warning(folder, tiny_model):
    from judge_local.models.store import Store

    stored = Store(folder).import_file(tiny_model, name="tiny")
    stored.path.unlink()  # It may be another name of the file that all tests share.
    stored.path.write_bytes(tiny_model.read_bytes()[:1000])

    check = checks()["model tiny"]

    assert check["state"] == "warn"
    assert "judge-local verify tiny" in check["advice"]


def test_a_damaged_registry_entry_is_a_warning(folder):
    folder.mkdir()
    (folder / "broken.json").write_text("{")

    found = [c for c in json.loads(doctor("--json").stdout)["checks"] if c["name"] == "models"]

    assert {check["state"] for check in found} == {"warn"}
    assert any("broken.json" in check["value"] for check in found)


def test_settings_name_the_file_and_the_environment(tmp_path, monkeypatch):
    (tmp_path / "judge-local.toml").write_text("runs = 3")
    monkeypatch.setenv("JUDGE_LOCAL_SEED", "3")

    value = checks()["settings"]["value"]

    assert str(tmp_path / "judge-local.toml") in value
    assert "JUDGE_LOCAL_SEED" in value


def test_the_real_engine_answers(monkeypatch):
    monkeypatch.undo()

    result = doctor("--json")
    check = next(c for c in json.loads(result.stdout)["checks"] if c["name"] == "engine")

    assert result.exit_code == 0, result.stdout
    assert check["value"].startswith("llama-cpp-python ")
    assert "=" in check["value"]
