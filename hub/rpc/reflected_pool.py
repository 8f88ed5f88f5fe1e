"""What reflection looks symbols up in: the default pool, which here also knows the parts of things.

Protobuf's pool finds services, messages and enums, but no method, field or value by its full name; and
``grpcurl describe synchub.v1.SyncService.PushEvents`` asks for just that.
"""

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor


class ReflectedPool:
    """The look-ups that reflection makes of a pool."""

    def __init__(self) -> None:
        """Look into the default pool, into which generated code puts itself."""
        self._pool = descriptor_pool.Default()

    def FindFileByName(self, file_name: str) -> FileDescriptor:  # noqa: N802 - protobuf's name
        """Return a file. Raises: KeyError."""
        return self._pool.FindFileByName(file_name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802
        """Return the file of a symbol, or of what the symbol is a part of. Raises: KeyError."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            whole, separator, part = symbol.rpartition(".")
            file = self._pool.FindFileContainingSymbol(whole) if separator else None
            if file is None or not _has_part(file, whole.removeprefix(f"{file.package}."), part=part):
                raise
            return file

    def FindMessageTypeByName(self, full_name: str) -> Descriptor:  # noqa: N802
        """Return a message. Raises: KeyError."""
        return self._pool.FindMessageTypeByName(full_name)

    def FindExtensionByNumber(self, message: Descriptor, number: int) -> FieldDescriptor:  # noqa: N802
        """Return an extension. Raises: KeyError."""
        return self._pool.FindExtensionByNumber(message, number)

    def FindAllExtensions(self, message: Descriptor) -> list[FieldDescriptor]:  # noqa: N802
        """Return the extensions of a message."""
        return list(self._pool.FindAllExtensions(message))


def _has_part(file: FileDescriptor, name: str, *, part: str) -> bool:
    """Whether a service, message or enum at the top of a file has a part of this name."""
    service = file.services_by_name.get(name)
    message = file.message_types_by_name.get(name)
    enum = file.enum_types_by_name.get(name)
    return (
        (service is not None and part in service.methods_by_name)
        or (message is not None and part in message.fields_by_name)
        or (enum is not None and part in enum.values_by_name)
    )
