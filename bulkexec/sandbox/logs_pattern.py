"""Filter patterns of CloudWatch Logs: the unstructured ones."""

import re
from collections.abc import Callable

from bulkexec.sandbox.service import ServiceError

TERM = re.compile(r'(?P<sign>[-?]?)(?:"(?P<phrase>(?:[^"\\]|\\.)*)"|(?P<word>[^\s"]+))')
STRUCTURED = "{[%"


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a message matches a pattern; terms and quoted phrases are case-sensitive substrings.

    `a "b c"` needs both, `-a` excludes, `?a ?b` needs any of these (ignored beside plain terms, as the service does).
    JSON, space-delimited and regular-expression patterns raise ServiceError InvalidParameterException: the sandbox
    does not know them.
    Source: CloudWatch Logs user guide, "Filter pattern syntax".
    """
    if pattern.strip()[:1] in tuple(STRUCTURED):
        raise ServiceError("InvalidParameterException", f"the sandbox knows only term patterns, not: {pattern}")
    required, excluded, optional = _terms(pattern)

    def matches(message: str) -> bool:
        if any(term in message for term in excluded) or not all(term in message for term in required):
            return False
        return bool(required) or not optional or any(term in message for term in optional)

    return matches


def _terms(pattern: str) -> tuple[list[str], list[str], list[str]]:
    by_sign: dict[str, list[str]] = {"": [], "-": [], "?": []}
    for match in TERM.finditer(pattern):
        phrase = match["phrase"]
        term = match["word"] if phrase is None else re.sub(r"\\(.)", r"\1", phrase)
        by_sign[match["sign"]].append(term)
    return by_sign[""], by_sign["-"], by_sign["?"]
