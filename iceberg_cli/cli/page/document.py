"""The template engine of pages: escaping, redaction, and the policy that keeps every network request out."""

from __future__ import annotations

import base64
import functools
import hashlib
from typing import TYPE_CHECKING, Any

from iceberg_cli.cli.render import printable
from iceberg_cli.plan.text import size
from iceberg_cli.storage.redaction import redact

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """A page as text.

    Args:
        template: its name.
        values: what the template reads.
    """
    from markupsafe import Markup

    environment = _environment()
    style, script = (_part(environment, name) for name in ("page.css", "page.js"))
    return environment.get_template(template).render(
        **values,
        style=Markup(style),  # noqa: S704 - of this package
        script=Markup(script),  # noqa: S704
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def shown(value: object) -> Any:
    """A value as the page has it before it is escaped: secrets left out, control characters spelled out."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return printable(redact(value))
    return value


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("iceberg_cli.cli.page"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = size
    return environment


def _part(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0].strip()


def _hash(text: str) -> str:
    """As a Content-Security-Policy names the only text of its kind that counts."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
