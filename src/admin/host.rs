//! Whose name a request was sent to. Pure.

use std::net::{IpAddr, Ipv6Addr};

/// Whether the authority `host` (with or without a port) means the listener on `own`: a name or an
/// address of loopback, or the listener's address. A listener on all addresses takes every
/// literal address, since only names can be pointed at it by others.
pub(super) fn is_ours(host: &str, own: IpAddr) -> bool {
    match split_port(host) {
        None => false,
        Some(name) => match address(name) {
            Some(ip) => {
                let (ip, own) = (ip.to_canonical(), own.to_canonical());
                ip.is_loopback() || own.is_unspecified() || ip == own
            }
            None => {
                let name = name.strip_suffix('.').unwrap_or(name);
                name.eq_ignore_ascii_case("localhost")
            }
        },
    }
}

/// The host without its port. None if what follows it is no port.
fn split_port(host: &str) -> Option<&str> {
    let end = match host.strip_prefix('[') {
        Some(inner) => inner.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = |it: &str| it.len() <= 5 && it.bytes().all(|digit| digit.is_ascii_digit());
    let fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    fits.then_some(name)
}

fn address(name: &str) -> Option<IpAddr> {
    match name.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => name.parse().ok().filter(IpAddr::is_ipv4),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOOPBACK: &str = "127.0.0.1";

    #[test]
    fn only_names_of_this_listener_are_ours() {
        let table = [
            ("localhost", LOOPBACK, true),
            ("LocalHost:8318", LOOPBACK, true),
            ("localhost.:1", LOOPBACK, true),
            ("127.0.0.1:8318", LOOPBACK, true),
            ("127.9.9.9", LOOPBACK, true),
            ("[::1]:8318", LOOPBACK, true),
            ("[::ffff:127.0.0.1]", LOOPBACK, true),
            ("10.0.0.7:8318", "10.0.0.7", true),
            ("10.0.0.8:8318", "10.0.0.7", false),
            ("10.0.0.8", "0.0.0.0", true),
            ("[fd00::1]", "::", true),
            ("gateway.example", "0.0.0.0", false),
            ("localhost.evil.example", LOOPBACK, false),
            ("127.0.0.1.evil.example", LOOPBACK, false),
            ("evil.example:8318", LOOPBACK, false),
            ("localhost:port", LOOPBACK, false),
            ("user@localhost", LOOPBACK, false),
            ("::1", LOOPBACK, false),
            ("[::1", LOOPBACK, false),
            ("", LOOPBACK, false),
        ];
        for (host, own, ours) in table {
            assert_eq!(is_ours(host, own.parse().unwrap()), ours, "{host:?} on {own}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_check_stumble(host in ".{0,40}") {
            is_ours(&host, IpAddr::from([127, 0, 0, 1]));
        }

        #[test]
        fn a_name_with_a_foreign_ending_is_never_ours(head in "[a-z0-9.]{0,12}") {
            let host = format!("{head}.example");
            prop_assert!(!is_ours(&host, IpAddr::from([0, 0, 0, 0])));
        }
    }
}
