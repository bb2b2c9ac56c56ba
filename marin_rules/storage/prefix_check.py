"""Whether results can be written below a prefix in a bucket: tested with one small object, which is deleted again."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

from marin_rules.checks import Check, Verdict
from marin_rules.storage.explain import StorageError, UnansweredError
from marin_rules.storage.objects.open import open_objects

_DATA = b"marin-rules looks whether it may write here. This object can be deleted.\n"


def check_prefix(prefix: str) -> Iterator[Check]:
    """Create, create again (which must be refused: leases rely on it), read and delete. Ends with the first trouble."""
    url = os.path.join(prefix, f".marin-rules-check-{secrets.token_hex(8)}")
    doing = "write"
    try:
        store = open_objects(url)
        version = store.write(url, _DATA, None)
        yield Check(f"write below {prefix}", Verdict.OK)
        if store.write(url, _DATA, None) is not None:
            detail = "the store replaced an object that was only to be created: two runs could do the same step"
            yield Check(f"create-if-absent below {prefix}", Verdict.MISSING, detail)
            return
        yield Check(f"create-if-absent below {prefix}", Verdict.OK)
        doing = "read"
        found = store.read(url)
        if found is None or version is None or found.data != _DATA:
            yield Check(f"read below {prefix}", Verdict.MISSING, f"{url} is not what was written just before")
            return
        yield Check(f"read below {prefix}", Verdict.OK)
        doing = "delete"
        store.delete(url, version)
        yield Check(f"delete below {prefix}", Verdict.OK)
    except UnansweredError as error:
        yield Check(f"{doing} below {prefix}", Verdict.UNKNOWN, str(error))
    except StorageError as error:
        yield Check(f"{doing} below {prefix}", Verdict.MISSING, str(error))
