"""What a connection that does not come about means, in a person's words.

gRPC says it in a text alone, and says the same code for all of it. Nothing is decided by these words: they
are only shown, and where none fits gRPC's own text is.
"""

from typing import Final

_NEVER_CONNECTED: Final = "failed to connect to all addresses"
_TRUST_CAUSE: Final = "CERTIFICATE_VERIFY_FAILED: "


def connection_words(message: str, where: str) -> str:
    """Return why no connection to ``where`` came about, without a full stop; "" where nothing is known."""
    if _NEVER_CONNECTED not in message:
        # A connection that was there and broke: its end says nothing about credentials.
        return ""
    if "certificate has expired" in message:
        return f"the certificate of the hub at {where} has expired"
    if _TRUST_CAUSE in message:
        cause = message.partition(_TRUST_CAUSE)[2].partition(":")[0]
        return (
            f"the certificate of the hub at {where} is not signed by an authority that is trusted here"
            f" ({cause}); name the CA file that the hub's operator gave you"
        )
    if "Hostname Verification Check failed" in message:
        return (
            f"the certificate of the hub at {where} is for another name; dial a name or an IP address that"
            " is in it (of several addresses the first has to be in each hub's)"
        )
    if "WRONG_VERSION_NUMBER" in message:
        return f"what listens at {where} does not speak TLS: it is no hub, or one without TLS"
    if "Failed to create security handshaker" in message:
        return (
            "this client's own certificate and key are of a kind that gRPC does not take; use ECDSA on P-256"
            f" or P-384, or RSA (it was not even tried to reach {where})"
        )
    if "Expected SETTINGS frame" in message:
        return f"what listens at {where} does not speak gRPC; it is no hub"
    if any(text in message for text in ("Socket closed", "Connection reset by peer", "Broken pipe")):
        return (
            f"what listens at {where} ends the connection before it says a word: it speaks TLS where this"
            " client does not, or wants a certificate that this client does not show, or it is no hub"
        )
    return ""
