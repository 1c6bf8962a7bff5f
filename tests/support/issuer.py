"""An OpenID Connect issuer: a real HTTP server with discovery, keys and the device-code flow."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

AUDIENCE = "tenure-tests"


@dataclass
class Issuer:
    """What the server says, as a test sets it. Keys are RSA."""

    keys: dict[str, RSAPrivateKey] = field(default_factory=dict)
    away: bool = False
    asked: list[str] = field(default_factory=list)
    issuer: str | None = None
    jwks_uri: str | None = None
    approvals: list[str] = field(default_factory=list)
    """What each poll of the device-code flow is answered; a token once it is empty."""
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def add_key(self, key_id: str) -> RSAPrivateKey:
        self.keys[key_id] = generate_private_key(public_exponent=65_537, key_size=2_048)
        return self.keys[key_id]

    def token(self, key_id: str, *, key: Any = None, alg: str = "RS256", **changes: Any) -> str:
        now = int(time.time())  # noqa: TID251 - what an issuer writes
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ann",
            "iat": now,
            "exp": now + 600,
            **changes,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, key or self.keys[key_id], algorithm=alg, headers={"kid": key_id})

    def answer(self, path: str, form: dict[str, list[str]]) -> tuple[int, Any]:
        self.asked.append(path)
        if self.away:
            return 503, {}
        match path:
            case "/.well-known/openid-configuration":
                return 200, {
                    "issuer": self.issuer or self.url,
                    "jwks_uri": self.jwks_uri or f"{self.url}/keys",
                    "device_authorization_endpoint": f"{self.url}/device",
                    "token_endpoint": f"{self.url}/token",
                }
            case "/keys":
                jwks = []
                for key_id, key in self.keys.items():
                    jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
                    jwks.append({**jwk, "kid": key_id, "use": "sig", "alg": "RS256"})
                return 200, {"keys": jwks}
            case "/device":
                assert form["client_id"] == [AUDIENCE], form
                return 200, {
                    "device_code": "the-device",
                    "user_code": "WDJB-MJHT",
                    "verification_uri": f"{self.url}/verify",
                    "expires_in": 60,
                    "interval": 0,
                }
            case "/token":
                assert form["device_code"] == ["the-device"], form
                if self.approvals:
                    return 400, {"error": self.approvals.pop(0)}
                return 200, {"id_token": self.token(next(iter(self.keys))), "expires_in": 600}
        return 404, {}

    def __enter__(self) -> Issuer:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say({})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._say(urllib.parse.parse_qs(body))

            def _say(self, form: dict[str, list[str]]) -> None:
                status, answer = issuer.answer(self.path, form)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
