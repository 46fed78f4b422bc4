"""Zoo entries in S3 or in a store with the same protocol (MinIO, Garage, Ceph), read by boto3, which is optional."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from ...errors import InputError, ZooError, damaged_zoo, needing, with_extra
from ...system.limits import within
from ..entries.files import MANIFEST
from .source_folder import checked_path

_SECONDS = 300.0  # for a file, the largest of which has 64 MB, and for all keys
# Writes begin within this time after the lock was taken. Others take it over once the last write has ended as well.
_HELD_S = 600.0
_STALE_S = _HELD_S + _SECONDS
_MOST_WAIT_S = 120.0
_POLL_S = 0.5
_LOCK = ".lock"
_TAKEN = ("PreconditionFailed", "412", "ConditionalRequestConflict", "409", "NoSuchKey", "404")
_WITHOUT_CONDITIONS = ("NotImplemented", "501")
_MOST_KEYS = 100_000
_MANIFEST_KEY = re.compile(rf"[^/]+/[^/]+/{re.escape(MANIFEST)}")


class S3Source:
    """Entries below s3://BUCKET/PREFIX. Credentials and endpoint are boto3's: $AWS_PROFILE, $AWS_ENDPOINT_URL, ..."""

    def __init__(self, where: str) -> None:
        with needing("a zoo in S3 needs boto3", with_extra("s3"), given=where):
            import boto3
            import botocore.config
        parts = urlsplit(where)
        if not parts.netloc:
            raise InputError("this address has no bucket", given=where, allowed="s3://BUCKET or s3://BUCKET/PREFIX")
        self._where, self._bucket = where, parts.netloc
        self._held_until_s = float("inf")
        self._prefix = parts.path.strip("/") + "/" if parts.path.strip("/") else ""
        # Two tries of 20 s, so that nobody waits for minutes for a server that is down.
        config = botocore.config.Config(connect_timeout=10, read_timeout=20, retries={"max_attempts": 2})
        try:
            self._client: Any = boto3.client("s3", config=config)
        except Exception as error:  # for wrong settings botocore raises classes without a common base
            raise self._failed(error) from error

    def _key(self, path: str) -> str:
        return self._prefix + str(checked_path(path))

    def _failed(self, error: Exception) -> ZooError:
        code = str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", type(error).__name__))
        refused = code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoCredentialsError")
        return ZooError(
            "this zoo denied access" if refused else "this zoo cannot be reached",
            given=f"{self._where}: {code}" if refused else f"{self._where}: {error}",
            hint="check $AWS_PROFILE or $AWS_ACCESS_KEY_ID" if refused else "check $AWS_ENDPOINT_URL",
        )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn what boto3 and the system raise into errors of the zoo."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._failed(error) from error

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Source.read`."""
        from botocore.exceptions import ClientError

        def get() -> bytes | None:
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._key(path))
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                    return None
                raise
            data: bytes = found["Body"].read(most_bytes + 1)
            return data

        with self._asking():
            data = within(_SECONDS, get)
        if data is None:
            return None
        if len(data) > most_bytes:
            raise damaged_zoo("a file of this zoo is larger than allowed", path, f"up to {most_bytes:,} bytes")
        return data

    @contextmanager
    def changing(self) -> Iterator[None]:
        """See `Source.changing`: whoever creates the object `.lock` changes this place. A store creates it once only.

        A killed process leaves the lock. Others take it over when it is older than any write of its owner can be.
        Stores that know no conditional writes (HTTP header If-None-Match) have no lock.
        """
        begin_s = time.monotonic()
        with self._asking():
            while not self._took_lock():
                if time.monotonic() - begin_s > _MOST_WAIT_S:
                    raise ZooError(
                        "another process is changing this zoo, or was killed while it did",
                        given=f"{self._where}: waited for {_MOST_WAIT_S:.0f} s",
                        hint=f"try again later: a lock of a killed process ends after {_STALE_S / 60:.0f} minutes",
                    )
                time.sleep(_POLL_S)
        self._held_until_s = time.monotonic() + _HELD_S
        try:
            yield
        finally:
            held, self._held_until_s = time.monotonic() < self._held_until_s, float("inf")
            if held:
                self._delete(_LOCK)

    def _took_lock(self) -> bool:
        """Create the lock, or take over the one of a process that was killed; False where another process has it."""
        from botocore.exceptions import ClientError

        lock = {"Bucket": self._bucket, "Key": self._key(_LOCK)}
        put = partial(self._client.put_object, **lock, Body=secrets.token_bytes(16))
        try:
            within(_SECONDS, partial(put, IfNoneMatch="*"))
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code not in (*_TAKEN, *_WITHOUT_CONDITIONS):
                raise
            if code in _TAKEN:
                return self._took_over(partial(self._client.head_object, **lock), put)
        return True

    def _took_over(self, head: Callable[[], dict[str, Any]], put: Callable[..., Any]) -> bool:
        """Replace the lock if it is so old that its owner must have been killed, and nobody else has replaced it."""
        from botocore.exceptions import ClientError

        try:
            found = within(_SECONDS, head)
            # Both are times of the store, whatever the clock of this machine says.
            now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
            stale = bool((now - found["LastModified"]).total_seconds() >= _STALE_S)
            if stale:
                within(_SECONDS, partial(put, IfMatch=found["ETag"]))
        except ClientError as error:  # The lock was given back or taken over in between.
            if str(error.response.get("Error", {}).get("Code")) not in _TAKEN:
                raise
            return False
        return stale

    def names(self) -> list[str]:
        """See `Source.names`."""
        return sorted(key.rpartition("/")[0] for key in self._keys("") if _MANIFEST_KEY.fullmatch(key))

    def files(self, name: str) -> list[str]:
        """See `Source.files`."""
        return [key for key in self._keys(f"{checked_path(name)}/") if "/" not in key]

    def _keys(self, below: str) -> list[str]:
        """The keys that begin so, without this beginning."""
        prefix = self._prefix + below

        def keys() -> list[str]:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            listed = (each["Key"] for page in pages for each in page.get("Contents", ()))
            return [key.removeprefix(prefix) for key in islice(listed, _MOST_KEYS)]

        with self._asking():
            return within(_SECONDS, keys)

    def write(self, files: Mapping[str, bytes]) -> None:
        """See `Source.write`."""
        with self._asking():
            for path, data in files.items():
                if time.monotonic() > self._held_until_s:
                    raise ZooError(
                        "writing to this zoo takes longer than it may be locked",
                        given=f"{self._where}: more than {_HELD_S / 60:.0f} minutes",
                        hint="push again over a faster connection; the old entry is still there",
                    )
                put = partial(self._client.put_object, Bucket=self._bucket, Key=self._key(path), Body=data)
                within(_SECONDS, put)

    def delete(self, paths: list[str]) -> None:
        """See `Source.delete`."""
        for path in paths:
            self._delete(path)

    def _delete(self, path: str) -> None:
        with self._asking():
            within(_SECONDS, partial(self._client.delete_object, Bucket=self._bucket, Key=self._key(path)))
