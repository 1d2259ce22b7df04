"""What draws the page's charts: Vega with Vega-Lite, kept in the user's cache."""

from __future__ import annotations

import functools
import hashlib
import os
from contextlib import suppress
from importlib.metadata import version

from rffl_pl.files import replaced, user_cache


@functools.cache
def bundle() -> str:
    """All of it, to stand in a script element; to put it together takes seconds of the processor."""
    kept = user_cache() / f"vega_of_vl_convert_{version('vl-convert-python')}.js"
    with suppress(OSError):
        digest, _, text = kept.read_bytes().partition(b"\n")
        if digest == _digest(text) and kept.stat().st_uid == os.getuid():  # nobody else's, in a shared folder
            return text.decode()
    import vl_convert

    made: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    text = made.replace("</script", "<\\/script").encode()
    with suppress(OSError):  # then the next page takes these seconds again
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replaced(kept) as partial:
            partial.write_bytes(_digest(text) + b"\n" + text)
    return text.decode()


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()
