"""Which addresses a webhook may lead to: what a user names must not reach inside this network.

Pure. Names are resolved before, and the connection goes to the address that was judged.
"""

from __future__ import annotations

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Addresses that carry an IPv4 address, which is where they lead.
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_SIX_TO_FOUR: Final = ipaddress.ip_network("2002::/16")


def may_be_called(text: str, *, private: bool) -> bool:
    """Say whether an address is public, or private and these are allowed.

    Never: what stands for many or for none, and link-local ones (where clouds keep credentials).
    """
    address = _led_to(ipaddress.ip_address(text.partition("%")[0]))
    if address.is_multicast or address.is_unspecified or address.is_link_local:
        return False
    if address == ipaddress.ip_address("255.255.255.255"):
        return False
    return private or address.is_global


def _led_to(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return address
