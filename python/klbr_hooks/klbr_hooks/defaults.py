"""The careful default: the operator always wakes the session, and no private key goes out."""

from __future__ import annotations

from klbr.policy import (
    Allow,
    AttentionDecision,
    AttentionRequest,
    Defer,
    DeliveryDecision,
    DeliveryRequest,
    Hold,
    HookContext,
    Wake,
)

PRIORITIES = {"operator": 100, "discord.dm": 50, "discord.mention": 40}
AMBIENT_PAUSE_SECONDS = 60
TEXT_BYTES_MAX = 65_536


def attention(request: AttentionRequest, context: HookContext) -> AttentionDecision:
    """Wakes for everything that was addressed to the session; looks at the rest a minute later."""
    priority = PRIORITIES.get(request.source)
    if priority is None:
        return Defer(AMBIENT_PAUSE_SECONDS)
    return Wake(priority)


def delivery(request: DeliveryRequest, context: HookContext) -> DeliveryDecision:
    """Lets a text go to the operator, unless it is empty, too long or carries a private key."""
    if request.destination != "operator":
        return Hold(f"no rule for the destination {request.destination[:100]!r}")
    if not request.text.strip():
        return Hold("the text is empty")
    if len(request.text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        return Hold(f"the text is longer than {TEXT_BYTES_MAX} bytes")
    if carries_private_key(request.text):
        return Hold("the text carries a private key")
    return Allow()


def carries_private_key(text: str) -> bool:
    """Whether a text has the first line of a PEM private key, of whatever kind."""
    return any("-----BEGIN " in line and "PRIVATE KEY-----" in line for line in text.splitlines())
