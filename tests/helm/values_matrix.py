"""The values that the chart is looked at with."""

from typing import Any, Final

Values = dict[str, Any]

GIVEN_SECRETS: Final[Values] = {
    "database": {"existingSecret": "postgres-dsn"},
    "keys": {"existingSecret": "tenure-keys", "agentSecret": "tenure-agent-keys"},
    "tls": {"existingSecret": "tenure-tls", "agentSecret": "tenure-agent-tls"},
}
"""A cluster where PostgreSQL, the keys and the certificates exist already."""

TRIAL: Final[Values] = {
    "database": {"trial": {"enabled": True, "storageClassName": "fast"}},
    "etcd": {"trial": {"enabled": True}},
    "keys": {"create": True, "users": ["ada", "ben"]},
    "agent": {"nodes": ["node-1", "node-2.example"]},
}
"""Everything from the chart."""

NO_TLS: Final[Values] = {"plaintext": True}

EVERYTHING: Final[Values] = {
    **GIVEN_SECRETS,
    "fullnameOverride": "plane",
    "image": {
        "repository": "registry.example:5000/site/tenure",
        "digest": "sha256:" + "0f" * 32,
        "pullSecrets": [{"name": "pull"}],
    },
    "logLevel": "debug",
    "otlpEndpoint": "http://collector.telemetry:4317",
    "metrics": {
        "enabled": True,
        "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
        "rules": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True},
    },
    "etcd": {
        "endpoints": "etcd-0.etcd:2379,etcd-1.etcd:2379,etcd-2.etcd:2379",
        "existingSecret": "etcd-user",
        "tlsSecret": "etcd-tls",
        "clientCertificate": True,
    },
    "tls": {"certManager": {"issuer": "plane", "kind": "ClusterIssuer", "duration": "48h"}},
    "serviceAccount": {"name": "leases"},
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"team": "research"}}}],
        "metrics": [{"namespaceSelector": {"matchLabels": {"team": "sre"}}}],
        "database": {"peers": [{"ipBlock": {"cidr": "10.1.0.0/24"}}], "port": 5433},
        "etcd": {"peers": [{"ipBlock": {"cidr": "10.2.0.0/24"}}], "port": 2379},
        "workEgress": False,
    },
    "leaseSecrets": {"existingSecret": "tenure-lease-secrets"},
    "admission": {
        "replicas": 3,
        "settings": {
            "grace_s": 12.5,
            "pools_period_s": 1,
            "feed_retention_s": 172_800,
            "request_retention_s": 864_000,
        },
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "control", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "system-cluster-critical",
    },
    "slottable": {"settings": {"feed_retention_s": 90_000, "request_retention_s": 700_000}},
    "registry": {
        "replicas": 1,
        "settings": {
            "database_connections": 16,
            "heartbeat_period_ms": 2_000,
            "fence_ms": 12_000,
            "loss_ms": 20_000,
            "replica_loss_ms": 90_000,
            "retention_ms": 172_800_000,
            "capacity_max": "cpu=256,memory=4Ti",
            "stream_burst_bytes": 16_777_216,
            "stream_bytes_per_s": 2_097_152,
        },
    },
    "scheduler": {"replicas": 3, "settings": {"election_ttl_s": 10, "pools_period_s": 2.5}},
    "autoscaler": {
        "settings": {
            "decide_period_s": 10,
            "election_ttl_s": 8,
            "owner_mark": "plane",
            "retention_ms": 1_209_600_000,
        }
    },
    "agent": {
        "nodes": ["node-1", "node-2.example"],
        "image": "registry.example/site/tenure-and-tools:7",
        "pool": "gpu",
        "attributes": "zone=a,ssd=yes",
        "settings": {"output_bytes_max": 33_554_432, "folders_kept_max": 10, "folders_kept_s": 60},
        "dataVolume": {"hostPath": {"path": "/srv/tenure", "type": "Directory"}},
        "nodeSelector": {"tenure/agent": "yes"},
        "tolerations": [{"operator": "Exists"}],
    },
}
"""Every value that changes something."""

TRIAL_RUN: Final[Values] = {
    **TRIAL,
    "etcd": {"trial": {"enabled": False}},
    "agent": {"nodes": ["node-1"], "capacity": "cpu=2,memory=1Gi"},
}
"""A trial that is really run, without Kubernetes."""

CASES: Final[dict[str, Values]] = {
    "given-secrets": GIVEN_SECRETS,
    "trial": TRIAL,
    "everything": EVERYTHING,
    "trial-run": TRIAL_RUN,
    "plaintext": {**GIVEN_SECRETS, "tls": NO_TLS},
    "no-agents": {
        "database": {"existingSecret": "d"},
        "keys": {"existingSecret": "k"},
        "tls": {"existingSecret": "t"},
        "agent": {"enabled": False},
    },
    "no-policies": {
        **GIVEN_SECRETS,
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
    },
    "ipv6": {**GIVEN_SECRETS, "listenHost": "[::]", "metrics": {"enabled": True}},
}

REFUSED: Final[dict[str, tuple[Values, str]]] = {
    "no database": ({"keys": {"create": True}}, "say where PostgreSQL is"),
    "no keys": ({"database": {"trial": {"enabled": True}}}, "say who may call"),
    "no keys for agents": (
        {"database": {"existingSecret": "d"}, "keys": {"existingSecret": "k"}, "tls": NO_TLS},
        "say how agents show who they are",
    ),
    "no certificates": (
        {key: value for key, value in GIVEN_SECRETS.items() if key != "tls"},
        "tls.plaintext=true does without",
    ),
    "no certificates for agents": (
        {**GIVEN_SECRETS, "tls": {"existingSecret": "t"}},
        "tls.agentSecret names a Secret",
    ),
    "a tag that moves": ({**GIVEN_SECRETS, "image": {"tag": "latest"}}, "/image/tag"),
    "an agent's tag that moves": ({**GIVEN_SECRETS, "agent": {"image": "a/b:latest"}}, "/agent"),
    "an image without a tag": ({**GIVEN_SECRETS, "agent": {"image": "a/b"}}, "/agent/image"),
    "a misspelt setting": (
        {**GIVEN_SECRETS, "registry": {"settings": {"fense_ms": 1_000}}},
        "fense_ms",
    ),
    "a setting of another service": (
        {**GIVEN_SECRETS, "slottable": {"settings": {"loss_ms": 1_000}}},
        "loss_ms",
    ),
    "alerts on nothing": (
        {**GIVEN_SECRETS, "metrics": {"rules": {"enabled": True}}},
        "what metrics.enabled serves",
    ),
    "a misspelt value": ({**GIVEN_SECRETS, "replicas": 3}, "replicas"),
    "two autoscalers": ({**GIVEN_SECRETS, "autoscaler": {"replicas": 2}}, "/autoscaler/replicas"),
    "no limits": (
        {**GIVEN_SECRETS, "admission": {"resources": {"limits": None}}},
        "/admission/resources",
    ),
    "a user named as a service": (
        {**TRIAL, "keys": {"create": True, "users": ["scheduler"]}},
        "is taken by Tenure itself",
    ),
}
