//! Every key with its default and its check. Pure.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::Path,
    time::Duration,
};

use super::{
    Admin, Affinity, Auth, BaseUrl, ByteSize, Catalog, ClientVersion, Compat, Config, EdgeProtocol,
    Egress, EgressAccount, Limits, Log, LogFormat, LogLevel, Network, Problems, Proxy, Quota,
    Routing, RoutingMode, Server, Strategy, Stream, TlsFiles, Upstream, Usage, reader::Reader,
};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const WISH_ADDRESS: &str = "want ADDRESS:PORT like \"127.0.0.1:8317\"";
const WISH_PROXY: &str =
    "want http://, https://, socks5:// or socks5h:// with HOST[:PORT], or \"direct\" or \"env\"";

pub(super) fn defaults(data_dir: &Path) -> Config {
    read_all(&mut Reader::new(None, toml::Table::new(), &Default::default()), data_dir)
}

/// The checked configuration, or everything that is wrong with it.
pub(super) fn read(mut reader: Reader, data_dir: &Path) -> Result<Config, Problems> {
    let config = read_all(&mut reader, data_dir);
    combine(&config, &mut reader);
    let problems = reader.finish();
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn read_all(from: &mut Reader, data_dir: &Path) -> Config {
    let server = server(from, data_dir);
    let data_dir = server.data_dir.clone();
    Config {
        server,
        auth: auth(from, &data_dir),
        upstream: upstream(from),
        egress: egress(from),
        routing: routing(from),
        affinity: Affinity {
            ttl: from.duration("affinity.ttl", seconds(DAY)),
            max_bindings: from.positive("affinity.max_bindings", 50_000),
        },
        limits: limits(from),
        catalog: catalog(from),
        quota: Quota {
            poll_interval: from.duration_or_never("quota.poll_interval", Some(seconds(5 * MINUTE))),
        },
        stream: Stream { keepalive: from.duration_or_never("stream.keepalive", None) },
        compat: compat(from),
        usage: Usage { retention: from.duration("usage.retention", seconds(90 * DAY)) },
        admin: Admin { key_file: from.path("admin.key_file", data_dir.join("admin.key")) },
        log: log(from),
    }
}

fn server(from: &mut Reader, data_dir: &Path) -> Server {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    let data_dir = from.path("server.data_dir", data_dir.to_owned());
    Server {
        listen: from.list("server.listen", vec![loopback(8317)], WISH_ADDRESS, address),
        admin_listen: from.value("server.admin_listen", loopback(8318), WISH_ADDRESS, |leaf| {
            leaf.text().and_then(address)
        }),
        threads: from.count_or_none("server.threads"),
        drain_timeout: from.duration("server.drain_timeout", seconds(HOUR)),
        upgrade_socket: from.path("server.upgrade_socket", data_dir.join("upgrade.sock")),
        pid_file: from.path("server.pid_file", data_dir.join("codex-edge.pid")),
        protocol: edge_protocol(from),
        allowed_origins: from.list(
            "server.allowed_origins",
            Vec::new(),
            "want an origin like \"https://app.example.com\"",
            |text| BaseUrl::parse(text).filter(|it| it.path.is_empty()).map(|it| it.to_string()),
        ),
        first_byte_timeout: from.duration("server.first_byte_timeout", seconds(10)),
        head_timeout: from.duration("server.head_timeout", seconds(15)),
        keepalive_timeout: from.duration("server.keepalive_timeout", seconds(75)),
        trusted_proxies: from.list(
            "server.trusted_proxies",
            Vec::new(),
            "want a network like \"10.0.0.0/8\" or one address",
            Network::parse,
        ),
        max_connections: from.positive("server.max_connections", 20_000),
        max_sockets: from.positive("server.max_sockets", 4_096),
        max_sockets_per_user: from.positive("server.max_sockets_per_user", 64),
        data_dir,
    }
}

fn edge_protocol(from: &mut Reader) -> EdgeProtocol {
    let cert = from.optional_path("server.tls.cert");
    let key = from.optional_path("server.tls.key");
    let h2c = from.flag("server.h2c", false);
    match (cert, key) {
        (Some(_), Some(_)) if h2c => {
            from.fault(
                "server.h2c",
                "does not go with server.tls",
                "set it to false: TLS listeners speak HTTP/2 anyway",
            );
            EdgeProtocol::Plain
        }
        (Some(cert), Some(key)) => EdgeProtocol::Tls(TlsFiles { cert, key }),
        (Some(_), None) => {
            from.fault("server.tls.key", "is missing", "name the key of server.tls.cert");
            EdgeProtocol::Plain
        }
        (None, Some(_)) => {
            from.fault("server.tls.cert", "is missing", "name the certificate of server.tls.key");
            EdgeProtocol::Plain
        }
        (None, None) if h2c => EdgeProtocol::PlainWithH2c,
        (None, None) => EdgeProtocol::Plain,
    }
}

fn auth(from: &mut Reader, data_dir: &Path) -> Auth {
    Auth {
        dir: from.path("auth.dir", data_dir.join("auth")),
        parse_grace: from.duration("auth.parse_grace", seconds(5)),
        rescan_interval: from.duration("auth.rescan_interval", seconds(2)),
        removal_grace: from.duration("auth.removal_grace", seconds(60)),
        follow_symlinks: from.flag("auth.follow_symlinks", true),
        refresh_parallel: from.positive("auth.refresh_parallel", 4),
        refresh_spacing: from.duration("auth.refresh_spacing", Duration::from_millis(500)),
    }
}

fn upstream(from: &mut Reader) -> Upstream {
    Upstream {
        codex_base_url: base_url(
            from,
            "upstream.codex_base_url",
            ("chatgpt.com", "/backend-api/codex"),
        ),
        chatgpt_base_url: base_url(
            from,
            "upstream.chatgpt_base_url",
            ("chatgpt.com", "/backend-api"),
        ),
        auth_base_url: base_url(from, "upstream.auth_base_url", ("auth.openai.com", "")),
        ca_file: from.optional_path("upstream.ca_file"),
        connect_timeout: from.duration("upstream.connect_timeout", seconds(10)),
        header_timeout: from.duration("upstream.header_timeout", seconds(90)),
        slow_header_timeout: from.duration("upstream.slow_header_timeout", seconds(10 * MINUTE)),
        idle_timeout: from.duration("upstream.idle_timeout", seconds(15 * MINUTE)),
        client_version: from.value(
            "upstream.client_version",
            ClientVersion::Auto,
            "want \"auto\" or a version like \"0.171.0\"",
            |leaf| ClientVersion::parse(leaf.text()?),
        ),
        http2: from.flag("upstream.http2", true),
        h2c: from.flag("upstream.h2c", false),
        websocket: from.flag("upstream.websocket", true),
    }
}

fn base_url(from: &mut Reader, key: &'static str, (host, path): (&str, &str)) -> BaseUrl {
    let default = BaseUrl { tls: true, host: host.to_owned(), port: 443, path: path.to_owned() };
    let wish = "want http:// or https:// with HOST[:PORT][/PATH]";
    from.value(key, default, wish, |leaf| BaseUrl::parse(leaf.text()?))
}

fn egress(from: &mut Reader) -> Egress {
    let parse = |leaf: &super::reader::Leaf| Proxy::parse(leaf.text()?);
    Egress {
        proxy: from.optional("egress.proxy", WISH_PROXY, parse).unwrap_or(Proxy::Direct),
        strict: from.flag("egress.strict", false),
        no_proxy: from.list(
            "egress.no_proxy",
            Vec::new(),
            "want a host, a domain like \".example.com\" or a network",
            |text| (!text.trim().is_empty()).then(|| text.trim().to_owned()),
        ),
        account: egress_accounts(from),
    }
}

fn egress_accounts(from: &mut Reader) -> Vec<EgressAccount> {
    const KEY: &str = "egress.account";
    let mut accounts: Vec<EgressAccount> = Vec::new();
    for table in from.tables(KEY) {
        for name in table.keys().filter(|it| !["account", "proxy", "strict"].contains(&it.as_str()))
        {
            from.fault(KEY, format!("{name} is not known"), "want account, proxy, strict");
        }
        let text = |key: &str| table.get(key).and_then(toml::Value::as_str);
        let account = text("account").map(str::trim).filter(|it| !it.is_empty());
        let proxy = text("proxy").and_then(Proxy::parse);
        let strict = table.get("strict").map_or(Some(false), toml::Value::as_bool);
        match (account, proxy, strict) {
            (Some(account), _, _) if accounts.iter().any(|it| it.account == account) => {
                from.fault(KEY, format!("{account} stands there twice"), "keep one of them");
            }
            (Some(account), Some(proxy), Some(strict)) => {
                accounts.push(EgressAccount { account: account.to_owned(), proxy, strict });
            }
            (None, _, _) => from.fault(KEY, "account is missing or no text", "name an account"),
            (_, None, _) => from.fault(KEY, "proxy is missing or will not do", WISH_PROXY),
            (_, _, None) => from.fault(KEY, "strict will not do", "want true or false"),
        }
    }
    accounts
}

fn routing(from: &mut Reader) -> Routing {
    #[derive(Clone, Copy)]
    enum Mode {
        Pool,
        Direct,
    }
    let mode = [("pool", Mode::Pool), ("direct", Mode::Direct)];
    let mode = from.choice("routing.mode", Mode::Pool, &mode);
    let account = from.value(
        "routing.direct_account",
        "main".to_owned(),
        "want an account's id, label or selector",
        |leaf| leaf.text().map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned),
    );
    let strategies = [
        ("balanced", Strategy::Balanced),
        ("round_robin", Strategy::RoundRobin),
        ("fill_first", Strategy::FillFirst),
    ];
    Routing {
        mode: match mode {
            Mode::Pool => RoutingMode::Pool,
            Mode::Direct => RoutingMode::Direct(account),
        },
        strategy: from.choice("routing.strategy", Strategy::Balanced, &strategies),
        max_attempts: NonZeroUsize::new(from.positive("routing.max_attempts", 4))
            .unwrap_or(NonZeroUsize::MIN),
        attempt_deadline: from.duration("routing.attempt_deadline", seconds(60)),
        hold_back: from.duration("routing.hold_back", seconds(10)),
        hold_back_bytes: from.byte_size("routing.hold_back_bytes", ByteSize(64 * KIB)),
    }
}

fn limits(from: &mut Reader) -> Limits {
    Limits {
        max_body: from.byte_size("limits.max_body", ByteSize(64 * MIB)),
        replay_body: from.byte_size("limits.replay_body", ByteSize(32 * MIB)),
        buffered_total: from.byte_size("limits.buffered_total", ByteSize(1024 * MIB)),
        requests_per_minute_per_address: from
            .count_or_none("limits.requests_per_minute_per_address"),
    }
}

fn catalog(from: &mut Reader) -> Catalog {
    let volatile = ["fetched_at", "priority", "updated_at"].map(str::to_owned).to_vec();
    Catalog {
        ttl: from.duration("catalog.ttl", seconds(15 * MINUTE)),
        stale_limit: from.duration("catalog.stale_limit", seconds(7 * DAY)),
        qualified_rows: from.flag("catalog.qualified_rows", false),
        volatile_fields: from.list(
            "catalog.volatile_fields",
            volatile,
            "want the name of a member",
            |text| (!text.is_empty()).then(|| text.to_owned()),
        ),
    }
}

fn compat(from: &mut Reader) -> Compat {
    let wish = "want a path like \"wham/usage\" or \"ps/plugins/list\"";
    Compat {
        relay: from.list("compat.relay", Vec::new(), wish, |text| {
            let known = text.starts_with("wham/") || text.starts_with("ps/");
            let safe = text.split('/').all(|it| !matches!(it, "" | "." | ".."));
            let plain = !text.contains(['%', '?', '#', ';', '\\']);
            (known && safe && plain).then(|| text.to_owned())
        }),
    }
}

fn log(from: &mut Reader) -> Log {
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
    Log {
        format: from.choice("log.format", LogFormat::Text, &formats),
        level: from.choice("log.level", LogLevel::Info, &levels),
    }
}

/// What is right by itself and impossible together.
fn combine(config: &Config, from: &mut Reader) {
    let Config { server, limits, catalog, .. } = config;
    if server.listen.is_empty() {
        from.fault("server.listen", "is empty", WISH_ADDRESS);
    }
    let fixed = |it: &&SocketAddr| it.port() != 0;
    let mut taken = vec![server.admin_listen];
    for address in server.listen.iter().filter(fixed) {
        if taken.contains(address) {
            let wish = "give each listener, server.admin_listen too, an address of its own";
            from.fault("server.listen", format!("{address} stands there twice"), wish);
        }
        taken.push(*address);
    }
    if server.max_sockets > server.max_connections {
        let wish = "raise server.max_connections or lower this";
        from.fault("server.max_sockets", "is more than server.max_connections", wish);
    }
    if server.max_sockets_per_user > server.max_sockets {
        let wish = "raise server.max_sockets or lower this";
        from.fault("server.max_sockets_per_user", "is more than server.max_sockets", wish);
    }
    if limits.replay_body > limits.buffered_total {
        let wish = "raise limits.buffered_total or lower this";
        from.fault("limits.replay_body", "is more than limits.buffered_total", wish);
    }
    if catalog.ttl > catalog.stale_limit {
        let wish = "raise catalog.stale_limit or lower this";
        from.fault("catalog.ttl", "is longer than catalog.stale_limit", wish);
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

// === impl ClientVersion ===

impl ClientVersion {
    fn parse(text: &str) -> Option<Self> {
        let letters = |it: char| it.is_ascii_alphanumeric() || ".-+".contains(it);
        match text {
            "auto" => Some(Self::Auto),
            version => {
                let plausible = version.starts_with(|it: char| it.is_ascii_digit())
                    && version.contains('.')
                    && version.chars().all(letters);
                plausible.then(|| Self::Fixed(version.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const EXAMPLE: &str = include_str!("../../conf/codex-edge.toml");

    fn uncommented() -> toml::Table {
        let is_key = |line: &str| line.starts_with(|it: char| it.is_ascii_lowercase());
        let lines = EXAMPLE.lines().filter_map(|line| match line.strip_prefix('#') {
            Some(rest) => is_key(rest).then_some(rest),
            None => Some(line),
        });
        lines.collect::<Vec<_>>().join("\n").parse().unwrap()
    }

    #[test]
    fn the_example_file_says_what_holds_without_it() {
        let data_dir = Path::new("/var/lib/codex-edge");
        let reader = Reader::new(None, uncommented(), &BTreeMap::new());
        let written = read(reader, data_dir).unwrap();
        assert_eq!(format!("{written:#?}"), format!("{:#?}", defaults(data_dir)));
    }

    #[test]
    fn the_example_file_holds_every_key() {
        let mut reader = Reader::new(None, toml::Table::new(), &BTreeMap::new());
        read_all(&mut reader, Path::new("/data"));
        let table = uncommented();
        let missing: Vec<&str> = reader
            .known()
            .iter()
            .copied()
            .filter(|key| {
                let mut parts = key.split('.');
                let first = table.get(parts.next().unwrap());
                parts.try_fold(first.unwrap(), |at, part| at.get(part)).is_none()
            })
            .collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn the_example_file_changes_nothing_as_it_stands() {
        let table: toml::Table = EXAMPLE.parse().unwrap();
        let reader = Reader::new(None, table, &BTreeMap::new());
        let written = read(reader, Path::new("/data")).unwrap();
        assert_eq!(format!("{written:?}"), format!("{:?}", defaults(Path::new("/data"))));
    }

    #[test]
    fn a_client_version_is_auto_or_looks_like_one() {
        let fixed = |text: &str| Some(ClientVersion::Fixed(text.to_owned()));
        assert_eq!(ClientVersion::parse("auto"), Some(ClientVersion::Auto));
        assert_eq!(ClientVersion::parse("0.171.0"), fixed("0.171.0"));
        assert_eq!(ClientVersion::parse("0.172.0-alpha.1"), fixed("0.172.0-alpha.1"));
        for text in ["", "newest", "1", "1.0\r\nx: y"] {
            assert_eq!(ClientVersion::parse(text), None, "{text:?}");
        }
    }
}
