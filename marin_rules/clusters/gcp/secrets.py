"""A secret's value from Secret Manager, as the service account of this machine may read it.

Over REST: Google's own client would be one more thing that every host has to install.
"""

from __future__ import annotations

import base64

from marin_rules.clusters.gcp.calls import Calls, NotFoundError
from marin_rules.clusters.gcp.rest import Rest
from marin_rules.clusters.protocol import RefusedError


def fetch_secret(place: str, calls: Calls | None = None) -> str:
    """The value of `projects/P/secrets/S/versions/V`. Raises `ClusterError`, without the value in its text."""
    rest = Rest(place.split("/")[1], calls or Calls())
    try:
        answer = rest.get("secretmanager", f"v1/{place}:access")
        return base64.b64decode(answer["payload"]["data"]).decode()
    except NotFoundError as error:
        raise RefusedError(
            f"there is no secret {place}: create it, or correct its place in gcp.secrets of the cluster's file"
        ) from error
    except RefusedError as error:
        raise RefusedError(
            f"{error}. The service account of this machine needs the role secretmanager.secretAccessor for it"
        ) from error
    except (KeyError, ValueError) as error:
        # Its text may quote the answer.
        raise RefusedError(f"cannot read the secret {place}: {type(error).__name__}; its value must be text") from None
    finally:
        rest.close()
