"""Names of models as people write them: ids of repositories, other spellings, and names of tuned versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from ...system.caches import remembered
from ..templates.store import names as templated_names

_TUNED = re.compile(r"(?<![a-z0-9])(instruct|it|chat|hf|base|thinking|meta|2[3-9](0[1-9]|1[0-2]))(?![a-z0-9])")
"""Words of a name that say how weights were trained, and the months of versions ("2507"). Layers are the same."""


_NAME = re.compile(r"(?!timm/)(\w[\w.-]*/)?[^/]+")
"""A name, or the id of a repository. Who writes "timm/..." asks for that library's model; other paths are no names."""


def known_names() -> list[str]:
    """The names of all models that are known without torch, in alphabetical order."""
    from .language_models import BY_NAME

    return sorted({*templated_names(), *BY_NAME})


@remembered()  # Users choose the names.
def known_as(name: str) -> str:
    """The name under which a model is known here: "Qwen/Qwen3-32B" and "qwen3-32b" are both "qwen3_32b".

    The id of a repository counts by its last part. Words such as "Instruct" are left out if the name is not known with
    them. A name that is not known in any spelling is returned as it is.
    """
    if name in templated_names():  # which is known without reading the table of transformers
        return name
    spelled = _spellings()
    return name if name in spelled.values() else _found(name, spelled)


def spelled_as(name: str, repositories: Mapping[str, str]) -> str:
    """As `known_as`, for the names of a table, each with the id of its repository; the beginning of one is enough."""
    if name in repositories:
        return name
    spelled = _spelled(repositories)
    letters = _letters(name)  # Fewer than four could be a slip of the keyboard.
    begun = {whole for form, whole in spelled.items() if len(letters) > 3 and form.startswith(letters)}
    same = _found(name, spelled)
    return begun.pop() if same == name and len(begun) == 1 else same


def _found(name: str, spelled: Mapping[str, str]) -> str:
    if not _NAME.fullmatch(name):
        return name
    forms = (_letters(name), _letters(name, tuned=False), _letters(name.replace("/", "-")))  # The last: "ViT-B/16".
    return next((spelled[form] for form in forms if form in spelled), name)


@cache
def _spellings() -> Mapping[str, str]:
    """Letters and digits of a name, or of the repository that it stands for -> the name."""
    from .language_models import BY_NAME, SAME_ARCHITECTURE  # which a list of operations does not need

    same = SAME_ARCHITECTURE.items()
    others = {_letters(repository, tuned=tuned): name for tuned in (False, True) for repository, name in same}
    return others | _spelled(
        {**dict.fromkeys(known_names(), ""), **{name: row.source for name, row in BY_NAME.items()}}
    )


def _spelled(repositories: Mapping[str, str]) -> dict[str, str]:
    return {
        **{_letters(repository, tuned=False): name for name, repository in repositories.items() if repository},
        **{_letters(repository): name for name, repository in repositories.items() if repository},
        **{_letters(name): name for name in repositories},
    }


def _letters(name: str, *, tuned: bool = True) -> str:
    """Letters and digits of the last part of a name; without the words of tuning, if they are not to be kept.

    Numbers stay apart: "regnet_x_1_6gf" is not "regnet_x_16gf".
    """
    last = name.rpartition("/")[2].lower()
    words = re.sub("[^a-z0-9]+", " ", last if tuned else _TUNED.sub("", last)).strip()
    return re.sub("(?<![0-9]) | (?![0-9])", "", words)
