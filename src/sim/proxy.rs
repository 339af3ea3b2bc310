//! Forward proxies that count what they carry: CONNECT and SOCKS5.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::account::base64;

const HEAD_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    Connect,
    Socks5,
}

/// What a proxy is to be like.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    pub kind: ProxyKind,
    /// User and password that it wants.
    pub login: Option<(String, String)>,
    /// Carry every connection here, whatever its target; otherwise only loopback is reached.
    pub reroute: Option<SocketAddr>,
}

/// A running proxy; dropping it closes it.
pub struct SimProxy {
    address: SocketAddr,
    counts: Arc<Counts>,
    /// Aborted on drop.
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    bytes: AtomicU64,
    refused: AtomicU64,
    targets: Mutex<Vec<String>>,
}

// === impl SimProxy ===

impl SimProxy {
    /// # Errors
    /// If no port is free.
    pub async fn start(config: ProxyConfig) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::new(config), Arc::clone(&counts)));
        Ok(Self { address, counts, _tasks: tasks })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The targets of the tunnels so far, as the clients named them.
    pub fn targets(&self) -> Vec<String> {
        self.counts.targets.lock().clone()
    }

    /// The bytes that ended tunnels carried, both ways.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::SeqCst)
    }

    /// The requests that were refused.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, config: Arc<ProxyConfig>, counts: Arc<Counts>) {
    let mut tunnels = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while tunnels.try_join_next().is_some() {}
        let (config, counts) = (Arc::clone(&config), Arc::clone(&counts));
        tunnels.spawn(async move {
            if tunnel(client, &config, &counts).await.is_err() {
                counts.refused.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
}

async fn tunnel(mut client: TcpStream, config: &ProxyConfig, counts: &Counts) -> io::Result<()> {
    client.set_nodelay(true)?;
    let target = match config.kind {
        ProxyKind::Connect => connect_target(&mut client, config).await?,
        ProxyKind::Socks5 => socks_target(&mut client, config).await?,
    };
    counts.targets.lock().push(target.clone());
    let reached = reach(&target, config).await;
    let answer: &[u8] = match (config.kind, &reached) {
        (ProxyKind::Connect, Ok(_)) => b"HTTP/1.1 200 Connection established\r\n\r\n",
        (ProxyKind::Connect, Err(_)) => b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
        (ProxyKind::Socks5, Ok(_)) => &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        (ProxyKind::Socks5, Err(_)) => &[5, 4, 0, 1, 0, 0, 0, 0, 0, 0],
    };
    client.write_all(answer).await?;
    let mut server = reached?;
    server.set_nodelay(true)?;
    // A tunnel that breaks has carried nothing that could be counted.
    if let Ok((up, down)) = copy_bidirectional(&mut client, &mut server).await {
        counts.bytes.fetch_add(up + down, Ordering::SeqCst);
    }
    Ok(())
}

async fn reach(target: &str, config: &ProxyConfig) -> io::Result<TcpStream> {
    if let Some(address) = config.reroute {
        return TcpStream::connect(address).await;
    }
    let local = target.replace("localhost:", "127.0.0.1:");
    match local.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => TcpStream::connect(address).await,
        _ => Err(io::ErrorKind::HostUnreachable.into()),
    }
}

/// Reads `CONNECT host:port HTTP/1.1` and its headers.
async fn connect_target(client: &mut TcpStream, config: &ProxyConfig) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(client.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default().to_owned());
    let login = lines.filter_map(|line| line.split_once(": ")).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("proxy-authorization").then(|| value.to_owned())
    });
    let wanted = config.login.as_ref().map(|(user, password)| {
        format!("Basic {}", base64(format!("{user}:{password}").as_bytes()))
    });
    if method != Some("CONNECT") {
        client.write_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n").await?;
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if wanted.is_some() && wanted != login {
        let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\
            proxy-authenticate: Basic realm=\"sim\"\r\ncontent-length: 0\r\n\r\n";
        client.write_all(refusal).await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(target)
}

/// Speaks RFC 1928, and RFC 1929 if a login is wanted, up to the target.
async fn socks_target(client: &mut TcpStream, config: &ProxyConfig) -> io::Result<String> {
    if client.read_u8().await? != 5 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let offered = read_counted(client).await?;
    let method = if config.login.is_some() { 2 } else { 0 };
    if !offered.contains(&method) {
        client.write_all(&[5, 0xff]).await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    client.write_all(&[5, method]).await?;
    if let Some((user, password)) = &config.login {
        client.read_u8().await?;
        let given = (read_counted(client).await?, read_counted(client).await?);
        let good = given.0 == user.as_bytes() && given.1 == password.as_bytes();
        client.write_all(&[1, u8::from(!good)]).await?;
        if !good {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    let host = match request {
        [5, 1, _, 1] => IpAddr::from(Ipv4Addr::from(client.read_u32().await?)).to_string(),
        [5, 1, _, 4] => format!("[{}]", Ipv6Addr::from(client.read_u128().await?)),
        [5, 1, _, 3] => String::from_utf8_lossy(&read_counted(client).await?).into_owned(),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    let port = client.read_u16().await?;
    Ok(format!("{host}:{port}"))
}

async fn read_counted(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = client.read_u8().await?;
    let mut bytes = vec![0; usize::from(length)];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}
