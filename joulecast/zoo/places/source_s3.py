"""Zoo entries in S3 or in a store with the same protocol (MinIO, Garage, Ceph), read by boto3, which is optional."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from ...errors import InputError, MissingDependencyError, ZooError, damaged_zoo, with_extra
from ...system.deadlines import within
from ..entries.files import MANIFEST
from .source_folder import checked_path

_SECONDS = 300.0  # for a file, the largest of which has 64 MB, and for all keys
_MOST_KEYS = 100_000
_MANIFEST_KEY = re.compile(rf"[^/]+/[^/]+/{re.escape(MANIFEST)}")


class S3Source:
    """Entries below s3://BUCKET/PREFIX. Credentials and endpoint are boto3's: $AWS_PROFILE, $AWS_ENDPOINT_URL, ..."""

    def __init__(self, where: str) -> None:
        try:
            import boto3
            import botocore.config
        except ImportError as error:
            raise MissingDependencyError("a zoo in S3 needs boto3", given=where, hint=with_extra("s3")) from error
        parts = urlsplit(where)
        if not parts.netloc:
            raise InputError("this address has no bucket", given=where, allowed="s3://BUCKET or s3://BUCKET/PREFIX")
        self._where, self._bucket = where, parts.netloc
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

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Source.read`."""
        from botocore.exceptions import BotoCoreError, ClientError

        def get() -> bytes:
            found: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(path))["Body"].read(
                most_bytes + 1
            )
            return found

        try:
            data = within(_SECONDS, get)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                return None
            raise self._failed(error) from error
        except (BotoCoreError, OSError) as error:
            raise self._failed(error) from error
        if len(data) > most_bytes:
            raise damaged_zoo("a file of this zoo is larger than allowed", path, f"up to {most_bytes:,} bytes")
        return data

    def changing(self) -> AbstractContextManager[None]:
        """See `Source.changing`: S3 has no locks."""
        return nullcontext()

    def names(self) -> list[str]:
        """See `Source.names`."""
        from botocore.exceptions import BotoCoreError, ClientError

        def keys() -> list[str]:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            listed = (each["Key"] for page in pages for each in page.get("Contents", ()))
            return [key.removeprefix(self._prefix) for key in islice(listed, _MOST_KEYS)]

        try:
            found = [key.rpartition("/")[0] for key in within(_SECONDS, keys) if _MANIFEST_KEY.fullmatch(key)]
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._failed(error) from error
        return sorted(found)

    def write(self, files: Mapping[str, bytes]) -> None:
        """See `Source.write`."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            for path, data in files.items():
                put = partial(self._client.put_object, Bucket=self._bucket, Key=self._key(path), Body=data)
                within(_SECONDS, put)
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._failed(error) from error

    def delete(self, paths: list[str]) -> None:
        """See `Source.delete`."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            for path in paths:
                within(_SECONDS, partial(self._client.delete_object, Bucket=self._bucket, Key=self._key(path)))
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._failed(error) from error
