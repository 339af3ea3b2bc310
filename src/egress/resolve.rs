//! Names to addresses, without blocking and not for every request anew.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::EgressError;

/// How long an answer holds. Short: an upstream behind a load balancer moves.
const TTL: Duration = Duration::from_secs(30);

/// Names come from the configuration only, so there are few.
const NAMES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Resolver {
    known: Mutex<HashMap<(String, u16), Known>>,
}

#[derive(Debug)]
struct Known {
    addresses: Vec<SocketAddr>,
    until: Instant,
    /// Counts up with each address that failed.
    current: usize,
}

// === impl Resolver ===

impl Resolver {
    pub(super) fn new() -> Self {
        Self { known: Mutex::new(HashMap::new()) }
    }

    /// The host's address that worked last, or its first one.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> Result<SocketAddr, EgressError> {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(SocketAddr::new(address, port));
        }
        if let Some(address) = self.recall(host, port, Instant::now()) {
            return Ok(address);
        }
        let unresolved = |source: io::Error| EgressError::Unresolved { host: host.into(), source };
        let found = tokio::net::lookup_host((host, port)).await.map_err(unresolved)?;
        let addresses: Vec<SocketAddr> = found.collect();
        let first = addresses.first().copied();
        self.remember(host, port, addresses, Instant::now() + TTL);
        first.ok_or_else(|| EgressError::NoAddress { host: host.into() })
    }

    fn recall(&self, host: &str, port: u16, now: Instant) -> Option<SocketAddr> {
        let known = self.known.lock();
        let entry = known.get(&(host.to_owned(), port)).filter(|it| now < it.until)?;
        entry.addresses.get(entry.current % entry.addresses.len().max(1)).copied()
    }

    /// The address in use cannot be reached: the next one is. Gives how many there are.
    pub(super) fn advance(&self, host: &str, port: u16) -> usize {
        let mut known = self.known.lock();
        let Some(entry) = known.get_mut(&(host.to_owned(), port)) else { return 1 };
        entry.current = entry.current.wrapping_add(1);
        entry.addresses.len()
    }

    fn remember(&self, host: &str, port: u16, addresses: Vec<SocketAddr>, until: Instant) {
        let mut known = self.known.lock();
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        known.insert((host.to_owned(), port), Known { addresses, until, current: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_used_until_it_fails_or_is_old() {
        let (resolver, now) = (Resolver::new(), Instant::now());
        let addresses: Vec<SocketAddr> =
            vec!["127.0.0.1:1".parse().unwrap(), "127.0.0.2:1".parse().unwrap()];
        resolver.remember("host", 1, addresses.clone(), now + TTL);
        for address in [0, 1, 0] {
            assert_eq!(resolver.recall("host", 1, now), Some(addresses[address]));
            assert_eq!(resolver.recall("host", 1, now), Some(addresses[address]));
            assert_eq!(resolver.advance("host", 1), 2);
        }
        assert_eq!(resolver.recall("host", 2, now), None);
        assert_eq!(resolver.recall("host", 1, now + TTL), None);
    }

    #[tokio::test]
    async fn an_address_needs_no_lookup() {
        let resolver = Resolver::new();
        let address = resolver.resolve("[::1]", 443).await.unwrap();
        assert_eq!(address, "[::1]:443".parse().unwrap());
    }
}
