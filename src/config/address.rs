//! Addresses in the configuration: base URLs, proxies, networks. Pure.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use http::{Uri, uri::Authority};
use secrecy::SecretString;

/// Where an upstream service lives. `path` begins with a slash or is empty, and never ends in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    pub path: String,
}

/// How connections leave where nothing more exact is said.
#[derive(Clone, Debug)]
pub enum Proxy {
    Direct,
    /// As `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say.
    Environment,
    Url(ProxyUrl),
}

#[derive(Clone, Debug)]
pub struct ProxyUrl {
    pub scheme: ProxyScheme,
    pub host: String,
    pub port: u16,
    pub login: Option<ProxyLogin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyScheme {
    Http,
    Https,
    /// Names are resolved here.
    Socks5,
    /// Names are resolved by the proxy.
    Socks5h,
}

/// A proxy's user and password; the password shows nowhere.
#[derive(Clone)]
pub struct ProxyLogin {
    pub user: String,
    pub password: SecretString,
}

/// An address with a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

// === impl BaseUrl ===

impl BaseUrl {
    /// Reads `http://host[:port][/path]` or `https://…`, without user, query or fragment.
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        let plain = !authority.as_str().contains('@') && uri.query().is_none();
        if !plain || authority.host().is_empty() || text.contains('#') {
            return None;
        }
        let port = port_of(authority, default_port(tls))?;
        let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        Some(Self { tls, host, port, path: uri.path().trim_end_matches('/').to_owned() })
    }

    /// The `Host` of a request to this service; the port is left out where it is the usual one.
    pub fn authority(&self) -> String {
        let host = bracketed(&self.host);
        if self.port == default_port(self.tls) { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// The port of an authority without a user; `Authority::port` passes over what is no port.
fn port_of(authority: &Authority, default: u16) -> Option<u16> {
    match authority.as_str().strip_prefix(authority.host())? {
        "" => Some(default),
        rest => rest.strip_prefix(':')?.parse().ok().filter(|it| *it != 0),
    }
}

fn bracketed(host: &str) -> String {
    if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.to_owned() }
}

// === impl Proxy ===

impl Proxy {
    /// Reads `direct`, `env`, or a proxy's URL.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "direct" => Some(Self::Direct),
            "env" => Some(Self::Environment),
            url => ProxyUrl::parse(url).map(Self::Url),
        }
    }
}

// === impl ProxyUrl ===

impl ProxyUrl {
    /// Reads `scheme://[user:password@]host[:port]`; user and password may be percent-encoded.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let scheme = match scheme {
            "http" => ProxyScheme::Http,
            "https" => ProxyScheme::Https,
            "socks5" => ProxyScheme::Socks5,
            "socks5h" => ProxyScheme::Socks5h,
            _ => return None,
        };
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(ProxyLogin::parse(login)?), place),
            None => (None, rest),
        };
        let authority: Authority = place.trim_end_matches('/').parse().ok()?;
        if authority.host().is_empty() {
            return None;
        }
        let port = port_of(&authority, scheme.default_port())?;
        let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        Some(Self { scheme, host, port, login })
    }
}

/// The login is left out: this text may stand in a log.
impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme.name(), bracketed(&self.host), self.port)
    }
}

// === impl ProxyScheme ===

impl ProxyScheme {
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5 => "socks5",
            Self::Socks5h => "socks5h",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Socks5 | Self::Socks5h => 1080,
        }
    }
}

// === impl ProxyLogin ===

impl ProxyLogin {
    fn parse(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        Some(Self { user: percent_decoded(user)?, password: percent_decoded(password)?.into() })
    }
}

impl fmt::Debug for ProxyLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyLogin(..)")
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        decoded.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(decoded).ok()
}

// === impl Network ===

impl Network {
    /// Reads `10.0.0.0/8`, `fd00::/8`, or one address.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base.parse().ok()?, Some(prefix.parse().ok()?)),
            None => (text.parse().ok()?, None),
        };
        let bits = match base {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let prefix = prefix.unwrap_or(bits);
        (prefix <= bits).then_some(Self { base, prefix })
    }

    /// Whether the address lies in the network; an IPv4 address in IPv6 clothes counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(it)) => {
                let shift = 32 - u32::from(self.prefix);
                (base.to_bits() ^ it.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(base), IpAddr::V6(it)) => {
                let shift = 128 - u32::from(self.prefix);
                (base.to_bits() ^ it.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn a_base_url_is_taken_apart() {
        let url = BaseUrl::parse("https://ChatGPT.com/backend-api/codex/").unwrap();
        assert_eq!((url.tls, url.host.as_str(), url.port), (true, "chatgpt.com", 443));
        assert_eq!(url.path, "/backend-api/codex");
        assert_eq!(url.to_string(), "https://chatgpt.com/backend-api/codex");
        let local = BaseUrl::parse("http://[::1]:4100").unwrap();
        assert_eq!((local.host.as_str(), local.path.as_str()), ("::1", ""));
        assert_eq!(local.authority(), "[::1]:4100");
    }

    #[test]
    fn what_is_no_base_url_is_refused() {
        for text in [
            "",
            "chatgpt.com",
            "ftp://host",
            "https://",
            "https://user@host",
            "https://host?x=1",
            "https://host/#x",
            "https://host:0",
            "https://host:99999",
            "https://host:",
        ] {
            assert_eq!(BaseUrl::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_proxys_password_is_kept_and_never_shown() {
        let proxy = ProxyUrl::parse("socks5h://me:p%40ss@proxy.example:9050").unwrap();
        assert_eq!(proxy.login.as_ref().unwrap().password.expose_secret(), "p@ss");
        assert_eq!(proxy.to_string(), "socks5h://proxy.example:9050");
        assert!(!format!("{proxy:?}").contains("p@ss"));
    }

    #[test]
    fn a_proxy_is_direct_or_the_environments_or_a_url() {
        assert!(matches!(Proxy::parse("direct"), Some(Proxy::Direct)));
        assert!(matches!(Proxy::parse("env"), Some(Proxy::Environment)));
        assert!(matches!(Proxy::parse("http://10.0.0.1"), Some(Proxy::Url(it)) if it.port == 80));
        for text in ["", "proxy:80", "ftp://proxy", "http://", "http://host:x", "http://a%zz@h"] {
            assert!(Proxy::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_network_holds_its_addresses() {
        let table = [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("192.168.1.7", "192.168.1.7", true),
            ("192.168.1.7", "192.168.1.8", false),
            ("fd00::/8", "fd12::1", true),
            ("::/0", "10.0.0.1", false),
        ];
        for (network, address, inside) in table {
            let network = Network::parse(network).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{network:?} {address}");
        }
        for text in ["10.0.0.0/33", "::/129", "host/8", "10.0.0.0/", ""] {
            assert_eq!(Network::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_upsets_the_parsers(text in "\\PC{0,40}") {
            let _ = (BaseUrl::parse(&text), Proxy::parse(&text), Network::parse(&text));
        }
    }
}
