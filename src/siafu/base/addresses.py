"""Addresses of machines: which hosts are addresses, and which of them only this machine reaches."""

import ipaddress


def is_address(host: str) -> bool:
    """Whether a host is an IP address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    bare = host.strip("[]")
    return host == "localhost" or (is_address(bare) and ipaddress.ip_address(bare).is_loopback)
