"""Settings of the agent: from flags, then environment (``RUNTIME_AGENT_…``), then a TOML file."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from runtime_agent import limits
from runtime_agent.core.errors import UsageError

ENVIRONMENT_PREFIX: Final = "RUNTIME_AGENT_"
"""Each setting's variable is this and its name in capitals: ``RUNTIME_AGENT_HUB_PROJECT``."""

CONFIG_VARIABLE: Final = "RUNTIME_AGENT_CONFIG"
"""Names the TOML file where ``--config`` does not."""


def default_data_folder() -> str:
    """Return the user's data folder for the agent (``$XDG_DATA_HOME``, else ``~/.local/share``)."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return str(Path(base) / "synchub" / "runtime-agent")


def default_config_file() -> str:
    """Return where the TOML file is looked for when none is named; it need not be there."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return str(Path(base) / "synchub" / "runtime-agent.toml")


class StartSettings(BaseSettings):  # type: ignore[explicit-any]  # of its base's signature
    """Everything that ``runtime-agent start`` can be told; also keys of the TOML file."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True)

    hub: str = ""
    """Addresses of the hub, ``HOST:PORT[,HOST:PORT…]``."""
    data: str = Field(default_factory=default_data_folder)
    """The data folder: log, lock and socket lie in it."""
    hub_project: str = ""
    """The tenant on the hub."""
    runtime_id: str = ""
    """The runtime; each needs a data folder of its own."""
    token_file: str = ""
    """A file whose only line is the token that the agent shows; read again when it changes."""
    ca_file: str = ""
    """The authorities, in PEM, by one of which the hub's certificate is signed; the system's where empty."""
    cert_file: str = ""
    """The agent's own certificate chain, in PEM; read again when it changes, like the key."""
    key_file: str = ""
    """The key of ``cert_file``, in PEM."""
    tls: bool = False
    """Speak TLS although none of the files above is named; each of them but the token means TLS too."""
    wait_seconds: float = Field(default=0.0, ge=0.0, le=600.0)
    """How long to wait for another process that holds the data folder."""
    retention_seconds: int = Field(default=limits.RETENTION_SECONDS, ge=0)
    """How long payloads stay in the local log after the hub acknowledged them."""
    log_bytes_max: int = Field(default=limits.LOG_BYTES_MAX, ge=1024 * 1024)
    """Largest local log in bytes; then appends are refused."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Facts for people that the hub shows with the runtime."""

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
        """Say the order: flags, environment, file."""
        file = os.environ.get(CONFIG_VARIABLE) or default_config_file()
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(file))


def load_settings(flags: Mapping[str, str | float | bool | dict[str, str] | None]) -> StartSettings:
    """Return the settings; flags that are None were not given.

    Raises: UsageError with a sentence that names the setting.
    """
    file = os.environ.get(CONFIG_VARIABLE)
    if file and not os.path.isfile(file):
        raise UsageError(f"the settings file {file} is not there")
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return StartSettings.model_validate(StartSettings(**given))  # type: ignore[arg-type]  # checked by pydantic
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "settings"
        raise UsageError(f"the setting {name} is wrong: {first['msg']}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the settings file is not TOML: {error}") from error
