"""Every knob of the agent.

Read from the environment into a plain value, not through the services' settings class: an embedded
suite starts many agents at once, and importing that class costs half of an agent's start-up
(docs/adr/0081).
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast, get_args

from tenure_runtime.rpc.transport import TlsFiles, is_loopback

_ID: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
MIB: Final = 1024 * 1024


LimitsWish = Literal["none", "auto", "cgroup", "rlimit"]
"""By what work is to be held to what its lease was given."""


class SettingRefused(ValueError):
    """A setting is missing or makes no sense; the message says which and what would be right."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is told. Each field is TENURE_<FIELD> in the environment.

    agent_id              its name and that of its key; default: the host's name
    registry_address      host:port of the registry
    key_file / api_key    file with its API key (0600), or the key itself
    data_dir              where its state and its leases' folders live; one agent a folder
    pool                  pool that it serves
    capacity              `cpu=4,memory=8Gi`: replaces what is detected, kind by kind
    attributes            `zone=a,ssd=yes`: what leases may select on
    output_bytes_max      how much of what a lease prints is kept
    folders_kept_max, folders_kept_s
                          how many folders of ended allocations are kept, and for how long
    on_stop               at SIGTERM: `keep` leaves work running until its fence, `stop` ends it
    stop_wait_s           with `stop`: how long its end may take before the agent goes anyway
    limits                what holds work to what its lease was given: `none` (default), `auto`
                          (cgroups where they can be made, else rlimits), `cgroup`, `rlimit`
    cgroup                group below which those of leases are made, from the root of the
                          hierarchy; default: the agent's own
    pids_max              how many processes and threads a lease may have
    run_as                user of the work, if the agent is root; default: the agent's own
    private_tmp           `folder`: TMPDIR in the lease's folder; `mount`: also over /tmp (as root)
    otlp_endpoint         OTLP gRPC collector of its spans, http://host:4317
    trace_store           file that keeps its spans on this machine
    application           program of a machine of an elastic group, as a shell would split it
    ready_file            written (JSON) when the agent has its first session
    """

    agent_id: str
    registry_address: str
    api_key: str | None
    data_dir: Path
    pool: str = "default"
    capacity: str = ""
    attributes: str = ""
    output_bytes_max: int = 16 * MIB
    folders_kept_max: int = 1_000
    folders_kept_s: float = 86_400.0
    on_stop: Literal["keep", "stop"] = "keep"
    stop_wait_s: float = 60.0
    limits: LimitsWish = "none"
    cgroup: str = ""
    pids_max: int = 4_096
    run_as: str = ""
    private_tmp: Literal["folder", "mount"] = "folder"
    application: str = ""
    ready_file: Path | None = None
    log_level: str = "info"
    log_form: Literal["json", "console"] = "json"
    otlp_endpoint: str | None = None
    trace_store: Path | None = None
    tls_authority: Path | None = None
    tls_certificate: Path | None = None
    tls_private_key: Path | None = None
    plaintext: bool = False

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ) -> AgentSettings:
        """Return the settings in `environment`, or raise SettingRefused."""
        values = _Values(environment)
        settings = cls(
            agent_id=values.matching("AGENT_ID", _ID, _host_id()),
            registry_address=values.required("REGISTRY_ADDRESS"),
            api_key=values.key(),
            data_dir=Path(values.required("DATA_DIR")).absolute(),
            pool=values.matching("POOL", _ID, "default"),
            capacity=values.text("CAPACITY"),
            attributes=values.text("ATTRIBUTES"),
            output_bytes_max=values.whole("OUTPUT_BYTES_MAX", 16 * MIB),
            folders_kept_max=values.whole("FOLDERS_KEPT_MAX", 1_000),
            folders_kept_s=values.whole("FOLDERS_KEPT_S", 86_400),
            on_stop="stop" if values.one_of("ON_STOP", ("keep", "stop")) == "stop" else "keep",
            stop_wait_s=values.whole("STOP_WAIT_S", 60),
            limits=values.limits(),
            cgroup=values.text("CGROUP"),
            pids_max=values.whole("PIDS_MAX", 4_096),
            run_as=values.text("RUN_AS"),
            private_tmp="mount"
            if values.one_of("PRIVATE_TMP", ("folder", "mount")) == "mount"
            else "folder",
            application=values.text("APPLICATION"),
            ready_file=values.path("READY_FILE"),
            log_level=values.one_of("LOG_LEVEL", ("info", "debug", "warning", "error")),
            log_form=values.log_form(),
            otlp_endpoint=values.text("OTLP_ENDPOINT")
            or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"),
            trace_store=values.path("TRACE_STORE"),
            tls_authority=values.path("TLS_AUTHORITY"),
            tls_certificate=values.path("TLS_CERTIFICATE"),
            tls_private_key=values.path("TLS_PRIVATE_KEY"),
            plaintext=values.one_of("PLAINTEXT", ("0", "1", "false", "true")) in ("1", "true"),
        )
        if not settings.plaintext and settings.tls is None:
            _refuse_open_way(settings.registry_address)
        return settings

    @property
    def tls(self) -> TlsFiles | None:
        """Return the TLS files to call the registry with, or None for plain text."""
        if self.tls_certificate is None or self.tls_private_key is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_private_key, self.tls_authority)


class _Values:
    """Reads and checks variables that begin with TENURE_."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str, default: str = "") -> str:
        return self._environment.get(f"TENURE_{name}", default).strip() or default

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise SettingRefused(f"TENURE_{name} is not set, and an agent cannot run without it")
        return value

    def matching(self, name: str, form: re.Pattern[str], default: str) -> str:
        value = self.text(name, default)
        if not form.fullmatch(value):
            raise SettingRefused(
                f"TENURE_{name} is lower-case letters, digits, '.' and '-' (at most 63), "
                f"not {value!r}"
            )
        return value

    def whole(self, name: str, default: int) -> int:
        value = self.text(name, str(default))
        if not value.isdecimal() or int(value) < 1:
            raise SettingRefused(f"TENURE_{name} is a whole number from 1, not {value!r}")
        return int(value)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name, allowed[0])
        if value not in allowed:
            raise SettingRefused(f"TENURE_{name} is one of {', '.join(allowed)}, not {value!r}")
        return value

    def log_form(self) -> Literal["json", "console"]:
        name = "LOG_FORM" if self.text("LOG_FORM") else "LOG_FORMAT"
        return "console" if self.one_of(name, ("json", "console")) == "console" else "json"

    def limits(self) -> LimitsWish:
        return cast("LimitsWish", self.one_of("LIMITS", get_args(LimitsWish)))

    def path(self, name: str) -> Path | None:
        value = self.text(name)
        return Path(value) if value else None

    def key(self) -> str | None:
        path = self.path("KEY_FILE")
        if path is None:
            return self.text("API_KEY") or None
        try:
            return path.read_text(encoding="ascii").strip()
        except OSError as error:
            raise SettingRefused(f"TENURE_KEY_FILE names {path}: {error.strerror}") from None


def _refuse_open_way(address: str) -> None:
    """Raise SettingRefused when the key would go to another machine in plain text."""
    if not is_loopback(address):
        raise SettingRefused(
            f"the key would go to {address} in plain text: set TENURE_TLS_CERTIFICATE, "
            "TENURE_TLS_PRIVATE_KEY and TENURE_TLS_AUTHORITY (or TENURE_PLAINTEXT=1)"
        )


def _host_id() -> str:
    return platform.node().lower().partition(".")[0] or "agent"
