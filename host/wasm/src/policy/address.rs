//! Which addresses are not the public internet: those of this machine, of the networks that it is in, and of what a cloud tells its
//! machines.
//!
//! An IPv6 address that stands for an IPv4 address (mapped, compatible, NAT64, 6to4) is what that one is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// What is reserved_range about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReservedRange {
    Loopback,
    Private,
    LinkLocal,
    /// Where clouds give their machines names and keys.
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

/// What is reserved_range about `address`; nothing for one of the public internet.
pub(crate) fn reserved_range(address: IpAddr) -> Option<ReservedRange> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => match embedded(v6) {
            Some(v4) if !is_own_v6(v6) => special_v4(v4),
            Some(_) | None => special_v6(v6),
        },
    }
}

/// Where clouds hand out keys; the last looks like an address of the internet and is one of Azure's machines.
const METADATA: [[u8; 4]; 3] = [[169, 254, 169, 254], [100, 100, 100, 200], [168, 63, 129, 16]];

fn special_v4(v4: Ipv4Addr) -> Option<ReservedRange> {
    let is_in =
        |network: [u8; 4], length: u8| Cidr { network: Ipv4Addr::from(network).into(), length }.holds(v4.into());
    Some(match () {
        () if METADATA.into_iter().any(|address| is_in(address, 32)) => ReservedRange::Metadata,
        () if v4.is_unspecified() => ReservedRange::Unspecified,
        () if v4.is_loopback() => ReservedRange::Loopback,
        () if v4.is_private() => ReservedRange::Private,
        () if v4.is_link_local() => ReservedRange::LinkLocal,
        () if is_in([100, 64, 0, 0], 10) => ReservedRange::CarrierNat,
        () if v4.is_multicast() => ReservedRange::Multicast,
        // "This network", IETF protocols, examples, 6to4 relays, benchmarks, and what is left at the end.
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

fn special_v6(v6: Ipv6Addr) -> Option<ReservedRange> {
    let is_in =
        |network: [u16; 8], length: u8| Cidr { network: Ipv6Addr::from(network).into(), length }.holds(v6.into());
    Some(match () {
        () if is_in([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128) => ReservedRange::Metadata,
        () if v6.is_unspecified() => ReservedRange::Unspecified,
        () if v6.is_loopback() => ReservedRange::Loopback,
        () if v6.is_multicast() => ReservedRange::Multicast,
        () if v6.is_unicast_link_local() => ReservedRange::LinkLocal,
        // Unique local, the older site-local, and a site's own translation to IPv4.
        () if v6.is_unique_local()
            || is_in([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10)
            || is_in([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48) =>
        {
            ReservedRange::Private
        }
        // All that is not handed out, and of what is: IETF protocols with Teredo, and examples.
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

/// `::` and `::1`, which look like IPv4 addresses in IPv6 form.
fn is_own_v6(v6: Ipv6Addr) -> bool {
    v6.is_unspecified() || v6.is_loopback()
}

/// The IPv4 address that an IPv6 address stands for.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => Some(v4(high, low)),
        // Of RFC 2765, between the two above.
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(v4(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// A range of addresses, as in `10.0.0.0/8`; an address alone is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    network: IpAddr,
    /// Leading bits that count.
    length: u8,
}

impl Cidr {
    /// True when the address, or the one that it stands for, is in the range.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        let meant = match address {
            IpAddr::V6(v6) => embedded(v6).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        self.holds(address) || meant.is_some_and(|v4| self.holds(v4))
    }

    fn holds(&self, address: IpAddr) -> bool {
        // A shift by all bits gives nothing on both sides: a length of 0 holds everything of its family.
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
    fn addresses_that_are_not_public_are_known_in_every_form() {
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
    fn a_range_covers_what_is_in_it() {
        let covers = |range: &str, address: &str| range.parse::<Cidr>().unwrap().covers(address.parse().unwrap());
        assert!(covers("10.0.0.0/8", "10.255.0.1") && !covers("10.0.0.0/8", "11.0.0.1"));
        assert!(covers("10.0.0.0/8", "::ffff:10.0.0.1"), "the address that is meant counts");
        assert!(covers("0.0.0.0/0", "255.1.1.1") && !covers("0.0.0.0/0", "fd00::1"));
        assert!(covers("127.0.0.1", "127.0.0.1") && !covers("127.0.0.1", "127.0.0.2"));
        assert!(covers("fd00::/8", "fd12::1") && !covers("fd00::/8", "fe80::1"));
        for text in ["10.0.0.0/33", "10.0.0/8", "host", "::/129", "10.0.0.0/-1"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
