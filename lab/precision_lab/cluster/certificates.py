"""Keys and certificates of one throw-away cluster: a CA, one server certificate, client certificates, the token key."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SERVER_ADDRESSES = ("127.0.0.1", "10.99.0.1")
"""Loopback, and the first address of the service network: where pods look for the API server."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key, both as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that lives as long as its cluster."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """What clients trust."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def new_authority(now: datetime) -> Authority:
    """A new CA. P-256: made in a millisecond, where RSA would take most of a cluster's start."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("precision-lab")
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    builder = _builder(name, name, key, now).add_extension(constraints, critical=True)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Authority, now: datetime, common_name: str, organization: str = "", addresses: Sequence[str] = ()
) -> Pair:
    """A certificate for a client (user `common_name` of the group `organization`) or for a server.

    Servers are valid on loopback, at the service network's first address, and at the further `addresses`.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in ("localhost", "kubernetes.default.svc")]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in (*SERVER_ADDRESSES, *addresses)]
    builder = _builder(_name(common_name, organization), authority.certificate.subject, key, now)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private_pem(key))


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as the Go programs read it."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write_cluster_pki(folder: Path, now: datetime, addresses: Sequence[str] = ()) -> Authority:
    """Writes ca.crt, apiserver.{crt,key}, kubelet-client.{crt,key} and sa.{key,pub}; returns the CA for more.

    `addresses`: where the API server is reached beside loopback and the service network.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = new_authority(now)
    (folder / "ca.crt").write_bytes(authority.pem)
    write_pair(folder, "apiserver", issue(authority, now, "kube-apiserver", addresses=addresses))
    write_pair(folder, "kubelet-client", issue(authority, now, "kube-apiserver-kubelet", "system:masters"))
    tokens = ec.generate_private_key(ec.SECP256R1())
    write_secret(folder / "sa.key", private_pem(tokens))
    form = serialization.PublicFormat.SubjectPublicKeyInfo  # what the API server checks service account tokens with
    (folder / "sa.pub").write_bytes(tokens.public_key().public_bytes(serialization.Encoding.PEM, form))
    return authority


def write_pair(folder: Path, name: str, pair: Pair) -> None:
    """Writes `<name>.crt` and `<name>.key`."""
    (folder / f"{name}.crt").write_bytes(pair.certificate)
    write_secret(folder / f"{name}.key", pair.key)


def write_secret(path: Path, content: bytes) -> None:
    """Writes a file that only this user can read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
    )
