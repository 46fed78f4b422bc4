"""Commands that run scripts of the repository."""

import pytest

from joulecast.cli import machine


@pytest.mark.parametrize("command", ["published", "account study", "account graph", "datasets convert"])
def test_a_package_without_its_repository_says_so(call, tmp_path, monkeypatch, command):
    monkeypatch.setattr(machine, "_BENCHMARKS", tmp_path / "benchmarks")
    code, _, said = call(*command.split(), "--help")
    assert code == 2
    assert all(part in said for part in ("a script of the repository", "given:", "allowed:", "next:", command))


def test_arguments_and_the_exit_code_are_those_of_the_script(call, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_BENCHMARKS", tmp_path)
    (tmp_path / "variants.py").write_text("import sys; sys.exit(3 if sys.argv[1:] == ['gpt2', '--gpu', 'A30'] else 4)")
    assert call("account", "study", "gpt2", "--gpu", "A30")[0] == 3
