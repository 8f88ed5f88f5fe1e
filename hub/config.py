"""Settings of the hub: from flags, then environment (``SYNCHUB_…``), then a TOML file.

Every bound of ``hub.core.limits`` is a setting too: in a section ``[limits]`` of the file, or as
``SYNCHUB_LIMITS__PRESENCE_TTL_SECONDS``. What is out of range is refused at start, by its name.
"""

import dataclasses
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from hub.certificate_files import TlsFiles
from hub.core.certificate import is_trust_domain
from hub.core.limits import Limits
from hub.core.values import AlertReason
from synchub import contract

ENVIRONMENT_PREFIX: Final = "SYNCHUB_"
"""Each setting's variable is this and its name in capitals: ``SYNCHUB_LISTEN``."""
CONFIG_VARIABLE: Final = "SYNCHUB_CONFIG"
"""Names the TOML file where ``--config`` does not."""
NO_HTTP: Final = "none"
"""Instead of an address: no HTTP port."""
OTLP_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""Names the collector of traces where no setting of the hub's own does."""
DEFAULT_LISTEN: Final = "127.0.0.1:7443"
DEFAULT_HTTP: Final = "127.0.0.1:7480"
PORT_MAX: Final = 65_535

RAISED_TIMES_MAX: Final = 1_000
"""A bound may be set to so many times its default."""
SECONDS_MIN: Final = 0.001
SECONDS_MAX: Final = 86_400.0

WIRE_LIMITS: Final = frozenset(
    name for name in vars(Limits)["__dataclass_fields__"] if hasattr(contract, name.upper())
)
"""Bounds that every client is built for: they may be lowered, not raised."""


LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]


class SettingsError(ValueError):
    """A setting is wrong; its text is a sentence for the person who gave it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen: a host name or IP address (without brackets) and a port, 0 for any."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Everything that a hub is started with; ``http`` is None where there is no HTTP port."""

    database: Path
    listen: Endpoint
    http: Endpoint | None
    is_channelz_enabled: bool = False
    is_token_floor_now: bool = False
    """Whether tokens of a new, empty store begin above the Unix time in microseconds."""
    credentials: Literal["auto", "required", "none"] = "auto"
    """Whether callers need a credential; "auto": once the store has a token, or client certificates are
    asked for."""
    is_anyone_let_in: bool = False
    """Whether a hub without credentials may listen beyond loopback."""
    tls: TlsFiles | None = None
    """The certificates of both ports; None for plain text."""
    trust_domain: str | None = None
    """The trust domain of client certificates; None where none are asked for."""
    backup_folder: Path | None = None
    """Where ``BackupHub`` writes; None where it is refused."""
    log_format: LogFormat = "auto"
    """For people or as JSON; "auto": for people on a terminal."""
    log_level: LogLevel = "info"
    otlp_endpoint: str | None = None
    """Where traces are sent by OTLP over gRPC, as a URL; None for nowhere."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class ServeFlags:
    """What was given on the command line; None where it was not."""

    db: str | None = None
    listen: str | None = None
    http: str | None = None
    channelz: bool | None = None
    token_floor: str | None = None
    credentials: str | None = None
    anyone_may_connect: bool | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    trust_domain: str | None = None
    backup_folder: str | None = None
    log_format: str | None = None
    log_level: str | None = None
    otlp_endpoint: str | None = None
    config: str | None = None


def load_settings(flags: ServeFlags) -> HubSettings:
    """Return the settings, each from the first place that has it: flag, environment, file, default.

    Raises: SettingsError with a sentence that names the setting.
    """
    file = flags.config or os.environ.get(CONFIG_VARIABLE)
    if file and not Path(file).is_file():
        raise SettingsError(f"the settings file {file} is not there")
    given = {
        name: value
        for name, value in dataclasses.asdict(flags).items()
        if name != "config" and value is not None
    }
    try:
        loaded = _settings_class(file)(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "settings"
        raise SettingsError(f"the setting {name} is wrong: {first['msg']}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {file} is not TOML: {error}") from error
    limits = Limits(**loaded.model_dump()["limits"])
    fault = limits_fault(limits)
    if fault is not None:
        raise SettingsError(fault)
    return HubSettings(
        database=_database(loaded.db),
        listen=parse_endpoint(loaded.listen, flag="--listen"),
        http=None if loaded.http == NO_HTTP else parse_endpoint(loaded.http, flag="--http"),
        is_channelz_enabled=loaded.channelz,
        is_token_floor_now=loaded.token_floor is not None,
        credentials=loaded.credentials,
        is_anyone_let_in=loaded.anyone_may_connect,
        tls=_tls_files(loaded),
        trust_domain=loaded.trust_domain,
        backup_folder=None if loaded.backup_folder is None else _path(loaded.backup_folder),
        log_format=loaded.log_format,
        log_level=loaded.log_level,
        otlp_endpoint=_otlp_endpoint(loaded.otlp_endpoint),
        limits=limits,
    )


def default_database() -> Path:
    """Return the store in the user's data folder (``$XDG_DATA_HOME``, else ``~/.local/share``)."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "synchub" / "hub.db"


def parse_endpoint(text: str, *, flag: str) -> Endpoint:
    """Read ``HOST:PORT``, an IPv6 host in brackets, port 0 for any.

    Raises: SettingsError that names the flag.
    """
    example = f"{flag} takes HOST:PORT, such as 127.0.0.1:7443 or [::1]:0"
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise SettingsError(f"the address {text!r} has an IPv6 host without brackets; {example}")
    if not colon or not host or "/" in host or any(character.isspace() for character in host):
        raise SettingsError(f"the address {text!r} cannot be read; {example}")
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= PORT_MAX):
        raise SettingsError(f"the port of the address {text!r} is not between 0 and {PORT_MAX}; {example}")
    return Endpoint(host, int(port_text))


def limits_fault(limits: Limits) -> str | None:
    """Say which bounds do not fit together, or None where all do."""
    one_entry_fits = limits.message_bytes_max // 2
    rules = (
        (limits.batch_bytes_max <= limits.message_bytes_max, "batch_bytes_max", "message_bytes_max"),
        (limits.payload_bytes_max < limits.batch_bytes_max, "payload_bytes_max", "batch_bytes_max"),
        (limits.page_bytes_max <= one_entry_fits, "page_bytes_max", "half of message_bytes_max"),
        (limits.watch_page_bytes_max <= one_entry_fits, "watch_page_bytes_max", "half of message_bytes_max"),
        (limits.page_entries_default <= limits.page_entries_max, "page_entries_default", "page_entries_max"),
        (
            limits.event_page_entries_default <= limits.event_page_entries_max,
            "event_page_entries_default",
            "event_page_entries_max",
        ),
        (
            limits.heartbeat_interval_seconds < limits.presence_ttl_seconds,
            "heartbeat_interval_seconds",
            "presence_ttl_seconds",
        ),
        (
            limits.lease_ttl_seconds_min <= limits.lease_ttl_seconds_default,
            "lease_ttl_seconds_min",
            "lease_ttl_seconds_default",
        ),
        (
            limits.lease_ttl_seconds_default <= limits.lease_ttl_seconds_max,
            "lease_ttl_seconds_default",
            "lease_ttl_seconds_max",
        ),
        (
            limits.maintenance_ttl_seconds_default <= limits.lease_ttl_seconds_max,
            "maintenance_ttl_seconds_default",
            "lease_ttl_seconds_max",
        ),
        (len(AlertReason) < limits.alert_rows_max, f"the {len(AlertReason)} alert reasons", "alert_rows_max"),
    )
    for holds, smaller, larger in rules:
        if not holds:
            return f"the settings of limits do not fit together: {smaller} must be below {larger}"
    return None


def limit_range(field: str, default: int | float) -> tuple[int | float, int | float]:
    """Return the smallest and largest value that a bound may be set to."""
    if isinstance(default, float):
        return SECONDS_MIN, SECONDS_MAX
    return 1, default if field in WIRE_LIMITS else default * RAISED_TIMES_MAX


def _limits_model() -> type[BaseModel]:
    """Return a model with each bound, its default and its range."""
    defaults = {each.name: getattr(Limits(), each.name) for each in dataclasses.fields(Limits)}
    fields: dict[str, tuple[type[int] | type[float], object]] = {}
    for name, default in defaults.items():
        smallest, largest = limit_range(name, default)
        fields[name] = (type(default), Field(default=default, ge=smallest, le=largest))
    config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    return create_model("LimitsSection", __config__=config, **fields)  # type: ignore[call-overload, no-any-return]


LimitsSection = _limits_model()


GivenText = Annotated[str, Field(min_length=1)]
"""Not empty: ``SYNCHUB_TLS_CLIENT_CA=`` must not turn off what somebody wanted on."""


class _Settings(BaseSettings):  # type: ignore[explicit-any]  # of its base's signature
    """The settings as they are given; also keys of the TOML file."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    db: str = Field(default_factory=lambda: str(default_database()))
    listen: str = DEFAULT_LISTEN
    http: str = DEFAULT_HTTP
    channelz: bool = False
    token_floor: Literal["now"] | None = None
    credentials: Literal["auto", "required", "none"] = "auto"
    anyone_may_connect: bool = False
    tls_cert: GivenText | None = None
    tls_key: GivenText | None = None
    tls_client_ca: GivenText | None = None
    trust_domain: GivenText | None = None
    backup_folder: GivenText | None = None
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"
    otlp_endpoint: str | None = None
    limits: LimitsSection = LimitsSection()  # type: ignore[valid-type]  # made from Limits


def _settings_class(file: str | None) -> type[_Settings]:
    """Return the settings with the order of their sources: flags, environment, file."""

    class SettingsOfFile(_Settings):  # type: ignore[explicit-any]  # of its base's signature
        """The settings, also from this file."""

        @classmethod
        def settings_customise_sources(  # type: ignore[override]  # it is called by keywords
            cls,
            settings_cls: type[BaseSettings],
            *,
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            """Say the order."""
            if file is None:
                return init_settings, env_settings
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(file))

    return SettingsOfFile


def _tls_files(loaded: _Settings) -> TlsFiles | None:
    """Return the files of TLS, None for plain text.

    Raises: SettingsError where settings about who may connect do not fit together.
    """
    certificate, key, client_ca = loaded.tls_cert, loaded.tls_key, loaded.tls_client_ca
    rules = (
        (certificate is None or key is not None, "--tls-cert needs --tls-key beside it"),
        (key is None or certificate is not None, "--tls-key needs --tls-cert beside it"),
        (client_ca is None or certificate is not None, "--tls-client-ca needs --tls-cert and --tls-key"),
        (
            (client_ca is None) == (loaded.trust_domain is None),
            "--tls-client-ca and --trust-domain belong together: who signs, and for which names",
        ),
        (
            loaded.trust_domain is None or is_trust_domain(loaded.trust_domain),
            f"--trust-domain {loaded.trust_domain!r} is none: small letters, digits, '.', '_', '-'",
        ),
        (
            client_ca is None or loaded.credentials != "none",
            "--tls-client-ca asks for credentials, and --credentials none for none",
        ),
        (
            not loaded.anyone_may_connect or loaded.credentials != "required",
            "--anyone-may-connect and --credentials required contradict each other",
        ),
    )
    for holds, sentence in rules:
        if not holds:
            raise SettingsError(sentence)
    if certificate is None or key is None:
        return None
    return TlsFiles(_path(certificate), _path(key), None if client_ca is None else _path(client_ca))


def _otlp_endpoint(given: str | None) -> str | None:
    """Return where traces go, None for nowhere; who sets nothing is asked as OpenTelemetry asks.

    Raises: SettingsError for what is no URL.
    """
    endpoint = os.environ.get(OTLP_VARIABLE, "") if given is None else given
    if not endpoint:
        return None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"--otlp-endpoint {endpoint!r} is no URL; give one such as http://127.0.0.1:4317")
    return endpoint


def _path(given: str) -> Path:
    return Path(given).expanduser().absolute()


def _database(where: str) -> Path:
    """Return the path of the store."""
    if "://" in where:
        engine = where.partition("://")[0]
        raise SettingsError(f"--db {engine}://… is not supported by this version; give a path")
    return _path(where)
