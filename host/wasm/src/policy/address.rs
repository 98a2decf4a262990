//! Address ranges outside of the public internet: loopback, private networks, cloud metadata services, and other
//! special-purpose ranges.
//!
//! An IPv6 address that embeds an IPv4 address (mapped, compatible, NAT64, 6to4) is classified as that IPv4 address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A special-purpose address range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReservedRange {
    Loopback,
    Private,
    LinkLocal,
    /// Metadata services of clouds, which hand out names and keys to machines.
    Metadata,
    CarrierNat,
    Multicast,
    Unspecified,
    Reserved,
}

impl fmt::Display for ReservedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud's metadata address",
            Self::CarrierNat => "an address behind carrier-grade NAT",
            Self::Multicast => "a multicast address",
            Self::Unspecified => "the unspecified address",
            Self::Reserved => "a reserved address",
        })
    }
}

/// Returns the special-purpose range of `address`. `None` for an address of the public internet.
pub(crate) fn reserved_range(address: IpAddr) -> Option<ReservedRange> {
    match address {
        IpAddr::V4(v4) => reserved_range_v4(v4),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) if !is_own_v6(v6) => reserved_range_v4(v4),
            Some(_) | None => reserved_range_v6(v6),
        },
    }
}

/// Metadata services of clouds. The last one is in a public range and belongs to Azure.
const METADATA: [[u8; 4]; 3] = [[169, 254, 169, 254], [100, 100, 100, 200], [168, 63, 129, 16]];

fn reserved_range_v4(v4: Ipv4Addr) -> Option<ReservedRange> {
    let is_in =
        |network: [u8; 4], length: u8| Cidr { network: Ipv4Addr::from(network).into(), length }.contains(v4.into());
    Some(match () {
        () if METADATA.into_iter().any(|address| is_in(address, 32)) => ReservedRange::Metadata,
        () if v4.is_unspecified() => ReservedRange::Unspecified,
        () if v4.is_loopback() => ReservedRange::Loopback,
        () if v4.is_private() => ReservedRange::Private,
        () if v4.is_link_local() => ReservedRange::LinkLocal,
        () if is_in([100, 64, 0, 0], 10) => ReservedRange::CarrierNat,
        () if v4.is_multicast() => ReservedRange::Multicast,
        // "This network", IETF protocols, documentation, 6to4 relays, benchmarks, and future use.
        () if is_in([0, 0, 0, 0], 8)
            || is_in([192, 0, 0, 0], 24)
            || v4.is_documentation()
            || is_in([192, 88, 99, 0], 24)
            || is_in([198, 18, 0, 0], 15)
            || is_in([240, 0, 0, 0], 4) =>
        {
            ReservedRange::Reserved
        }
        () => return None,
    })
}

fn reserved_range_v6(v6: Ipv6Addr) -> Option<ReservedRange> {
    let is_in =
        |network: [u16; 8], length: u8| Cidr { network: Ipv6Addr::from(network).into(), length }.contains(v6.into());
    Some(match () {
        () if is_in([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128) => ReservedRange::Metadata,
        () if v6.is_unspecified() => ReservedRange::Unspecified,
        () if v6.is_loopback() => ReservedRange::Loopback,
        () if v6.is_multicast() => ReservedRange::Multicast,
        () if v6.is_unicast_link_local() => ReservedRange::LinkLocal,
        // Unique local, the deprecated site-local, and local-use NAT64.
        () if v6.is_unique_local()
            || is_in([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10)
            || is_in([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48) =>
        {
            ReservedRange::Private
        }
        // Everything that is not global unicast, and within that: IETF protocols with Teredo, and documentation.
        () if !is_in([0x2000, 0, 0, 0, 0, 0, 0, 0], 3)
            || is_in([0x2001, 0, 0, 0, 0, 0, 0, 0], 23)
            || is_in([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32)
            || is_in([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20) =>
        {
            ReservedRange::Reserved
        }
        () => return None,
    })
}

/// Returns true for `::` and `::1`, which have the form of IPv4-compatible addresses.
fn is_own_v6(v6: Ipv6Addr) -> bool {
    v6.is_unspecified() || v6.is_loopback()
}

/// Returns the IPv4 address that an IPv6 address embeds.
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => Some(v4(high, low)),
        // IPv4-translated (RFC 2765).
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(v4(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// A range of addresses, such as `10.0.0.0/8`. A single address is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    network: IpAddr,
    /// Prefix length, in bits.
    length: u8,
}

impl Cidr {
    /// Returns true if the range contains the address or the IPv4 address that it embeds.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        let embedded = match address {
            IpAddr::V6(v6) => embedded_v4(v6).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        self.contains(address) || embedded.is_some_and(|v4| self.contains(v4))
    }

    fn contains(&self, address: IpAddr) -> bool {
        // A shift by all bits is `None` on both sides: length 0 contains every address of the family.
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.length);
                network.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.length);
                network.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_one = self.length == if self.network.is_ipv4() { 32 } else { 128 };
        if is_one { self.network.fmt(f) } else { write!(f, "{}/{}", self.network, self.length) }
    }
}

impl FromStr for Cidr {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (network, length) = match text.split_once('/') {
            Some((network, length)) => (network, Some(length.parse::<u8>().map_err(|_| ())?)),
            None => (text, None),
        };
        let network: IpAddr = network.parse().map_err(|_| ())?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let length = length.unwrap_or(most);
        (length <= most).then_some(Self { network, length }).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_addresses_are_recognized_in_every_form() {
        let cases = [
            ("127.0.0.1", ReservedRange::Loopback),
            ("127.8.8.8", ReservedRange::Loopback),
            ("::1", ReservedRange::Loopback),
            ("::ffff:127.0.0.1", ReservedRange::Loopback),
            ("::127.0.0.1", ReservedRange::Loopback),
            ("::ffff:0:127.0.0.1", ReservedRange::Loopback),
            ("64:ff9b::127.0.0.1", ReservedRange::Loopback),
            ("2002:7f00:1::", ReservedRange::Loopback),
            ("10.1.2.3", ReservedRange::Private),
            ("172.31.255.255", ReservedRange::Private),
            ("192.168.0.1", ReservedRange::Private),
            ("::ffff:10.1.2.3", ReservedRange::Private),
            ("fc00::1", ReservedRange::Private),
            ("fdff::1", ReservedRange::Private),
            ("fec0::1", ReservedRange::Private),
            ("64:ff9b:1::a00:1", ReservedRange::Private),
            ("169.254.1.1", ReservedRange::LinkLocal),
            ("fe80::1", ReservedRange::LinkLocal),
            ("169.254.169.254", ReservedRange::Metadata),
            ("::ffff:169.254.169.254", ReservedRange::Metadata),
            ("64:ff9b::a9fe:a9fe", ReservedRange::Metadata),
            ("100.100.100.200", ReservedRange::Metadata),
            ("168.63.129.16", ReservedRange::Metadata),
            ("fd00:ec2::254", ReservedRange::Metadata),
            ("100.64.0.1", ReservedRange::CarrierNat),
            ("100.127.255.255", ReservedRange::CarrierNat),
            ("224.0.0.1", ReservedRange::Multicast),
            ("ff02::1", ReservedRange::Multicast),
            ("0.0.0.0", ReservedRange::Unspecified),
            ("::", ReservedRange::Unspecified),
            ("::ffff:0.0.0.0", ReservedRange::Unspecified),
            ("0.1.2.3", ReservedRange::Reserved),
            ("192.0.2.1", ReservedRange::Reserved),
            ("198.19.255.255", ReservedRange::Reserved),
            ("255.255.255.255", ReservedRange::Reserved),
            ("2001::1", ReservedRange::Reserved),
            ("2001:db8::1", ReservedRange::Reserved),
            ("100::1", ReservedRange::Reserved),
        ];
        for (address, kind) in cases {
            assert_eq!(reserved_range(address.parse().unwrap()), Some(kind), "{address}");
        }
        for address in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert_eq!(reserved_range(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn a_range_covers_the_addresses_in_it() {
        let covers = |range: &str, address: &str| range.parse::<Cidr>().unwrap().covers(address.parse().unwrap());
        assert!(covers("10.0.0.0/8", "10.255.0.1") && !covers("10.0.0.0/8", "11.0.0.1"));
        assert!(covers("10.0.0.0/8", "::ffff:10.0.0.1"), "the embedded address counts");
        assert!(covers("0.0.0.0/0", "255.1.1.1") && !covers("0.0.0.0/0", "fd00::1"));
        assert!(covers("127.0.0.1", "127.0.0.1") && !covers("127.0.0.1", "127.0.0.2"));
        assert!(covers("fd00::/8", "fd12::1") && !covers("fd00::/8", "fe80::1"));
        for text in ["10.0.0.0/33", "10.0.0/8", "host", "::/129", "10.0.0.0/-1"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
