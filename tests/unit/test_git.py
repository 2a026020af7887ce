"""What git is asked: by anybody, from a hook, and where it knows nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_compileguard.baseline.git import GitError, checked_out, merge_of, revision
from tests.cli.conftest import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "tests" / "__compileguard__").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "tests" / "__compileguard__" / "ünï [x] *.json").write_text("old", encoding="utf-8")
    (root / "code.py").write_text("old", encoding="utf-8")
    git(root, "add", "--all")
    git(root, "commit", "-qm", "first")
    return root


def test_files_of_a_revision_are_found_by_any_name(repository: Path) -> None:
    (path,) = (repository / "tests" / "__compileguard__").iterdir()
    path.write_text("new", encoding="utf-8")
    found = revision("main", repository / "tests")
    assert found.read(found.path_of(path)) == b"old"
    assert found.files(repository / "tests") == (path.relative_to(repository).as_posix(),)
    assert found.read("tests") is None
    assert found.read("tests/gone.json") is None
    assert found.label == f"main ({found.commit[:12]})"
    with pytest.raises(GitError, match="lies outside the repository"):
        found.path_of(repository.parent / "other")


def test_a_hook_of_another_repository_does_not_mislead(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = checked_out(repository)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert checked_out(repository) == expected
    assert revision("HEAD", repository).root == repository


def test_the_commit_is_dirty_for_code_and_not_for_baselines(repository: Path) -> None:
    clean = checked_out(repository)
    assert clean == git(repository, "rev-parse", "--short=12", "HEAD").strip()
    (path,) = (repository / "tests" / "__compileguard__").iterdir()
    path.write_text("new", encoding="utf-8")
    assert checked_out(repository) == clean
    (repository / "code.py").write_text("new", encoding="utf-8")
    assert checked_out(repository) == f"{clean}-dirty"


def test_outside_a_repository_nothing_is_known(tmp_path: Path) -> None:
    assert checked_out(tmp_path) is None
    assert merge_of(tmp_path / "x.json", b"") is None
    with pytest.raises(GitError, match="not a git repository"):
        revision("main", tmp_path)
