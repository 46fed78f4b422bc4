"""Zoo entries in S3 or in a store with the same protocol (MinIO, Garage, Ceph), read by boto3, which is optional."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ...errors import InputError, ZooError, needing, with_extra
from ...system.limits import within
from ..entries.files import MANIFEST
from .source_folder import Source, checked_path, within_size

_SECONDS = 300.0  # for a file, the largest of which has 64 MB, and for all keys
_MISSING = ("NoSuchKey", "404")
_CHANGED = ("PreconditionFailed", "412", "ConditionalRequestConflict", "409")
_WITHOUT_CONDITIONS = ("NotImplemented", "501")
_MOST_KEYS = 100_000
_MOST_TRIES = 100
_MANIFEST_KEY = re.compile(rf"[^/]+/[^/]+/{re.escape(MANIFEST)}")

Result = TypeVar("Result")


class S3Source(Source):
    """Entries below s3://BUCKET/PREFIX. Credentials and endpoint are boto3's: $AWS_PROFILE, $AWS_ENDPOINT_URL, ..."""

    def __init__(self, where: str) -> None:
        with needing("a zoo in S3 needs boto3", with_extra("s3"), given=where):
            import boto3
            import botocore.config
        parts = urlsplit(where)
        if not parts.netloc:
            raise InputError("this address has no bucket", given=where, allowed="s3://BUCKET or s3://BUCKET/PREFIX")
        self.where, self._bucket = where, parts.netloc
        self._prefix = parts.path.strip("/") + "/" if parts.path.strip("/") else ""
        # Two tries of 20 s, so that nobody waits for minutes for a server that is down.
        config = botocore.config.Config(connect_timeout=10, read_timeout=20, retries={"max_attempts": 2})
        try:
            self._client: Any = boto3.client("s3", config=config)
        except Exception as error:  # for wrong settings botocore raises classes without a common base
            raise self._failed(error) from error

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Source.read`."""
        read = self._object(path, most_bytes)
        return None if read is None else within_size(read[0], path, most_bytes)

    def names(self) -> list[str]:
        """See `Source.names`."""
        return sorted(key.rpartition("/")[0] for key in self._keys("") if _MANIFEST_KEY.fullmatch(key))

    def files(self, folder: str) -> list[str]:
        """See `Source.files`."""
        return self._keys(f"{checked_path(folder)}/")

    def write(self, path: str, data: bytes) -> None:
        """See `Source.write`."""
        self._ask(self._client.put_object, path, Body=data)

    def delete(self, paths: list[str]) -> None:
        """See `Source.delete`."""
        for path in paths:
            self._ask(self._client.delete_object, path)

    def update(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """See `Source.update`: a write counts only if the object is still the one that was read.

        In a store without conditional writes (HTTP headers If-Match and If-None-Match), the last writer wins.
        """
        for _ in range(_MOST_TRIES):
            before = self._object(path, None)
            data, condition = (None, {"IfNoneMatch": "*"}) if before is None else (before[0], {"IfMatch": before[1]})
            changed = change(data)
            try:
                self._ask(self._client.put_object, path, Body=changed, **condition)
            except ZooError as error:
                code = _code(error.__cause__)
                if code in _WITHOUT_CONDITIONS:
                    return self.write(path, changed)
                if code not in (*_CHANGED, *_MISSING):
                    raise
            else:
                return None
        raise ZooError(
            "this zoo changes faster than its index can be written", given=self.where, hint="push again later"
        )

    def _object(self, path: str, most_bytes: int | None) -> tuple[bytes, str] | None:
        """An object, or one byte more of it than `most_bytes`, and its version; None where there is none."""

        def get(**where: str) -> tuple[bytes, str]:
            answer = self._client.get_object(**where)
            return answer["Body"].read(None if most_bytes is None else most_bytes + 1), answer.get("ETag", "")

        try:
            return self._ask(get, path)
        except ZooError as error:
            if _code(error.__cause__) in _MISSING:
                return None
            raise

    def _keys(self, below: str) -> list[str]:
        """The paths that begin so."""

        def keys() -> list[str]:
            pages = self._client.get_paginator("list_objects_v2")
            listings = pages.paginate(Bucket=self._bucket, Prefix=self._prefix + below)
            listed = (each["Key"] for page in listings for each in page.get("Contents", ()))
            return [key.removeprefix(self._prefix) for key in islice(listed, _MOST_KEYS)]

        with self._failing():
            return within(_SECONDS, keys)

    def _ask(self, function: Callable[..., Result], path: str, **options: Any) -> Result:
        key = self._prefix + str(checked_path(path))
        with self._failing():
            return within(_SECONDS, partial(function, Bucket=self._bucket, Key=key, **options))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn what boto3 and the system raise into errors of the zoo."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> ZooError:
        code = _code(error)
        refused = code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoCredentialsError")
        return ZooError(
            "this zoo denied access" if refused else "this zoo cannot be reached",
            given=f"{self.where}: {code}" if refused else f"{self.where}: {error}",
            hint="check $AWS_PROFILE or $AWS_ACCESS_KEY_ID" if refused else "check $AWS_ENDPOINT_URL",
        )


def _code(error: BaseException | None) -> str:
    """The code with which a store refused, or the name of another error."""
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", type(error).__name__))
