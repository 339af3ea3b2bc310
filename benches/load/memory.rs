//! Memory with many open streams on which nothing happens.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::{sleep, timeout};

use super::{
    Contender, Fault,
    client::{Talk, body},
    process::Server,
    roles::STALLING_MODEL,
};

/// Streams that are being opened at a time.
const OPENING: usize = 32;

/// So that what is made once is not counted.
const WARM_UP: usize = 200;

const PATIENCE: Duration = Duration::from_secs(30);

/// For buffers that are given back late.
const SETTLING: Duration = Duration::from_secs(2);

/// Resident memory of one server.
pub(crate) struct Idle {
    pub(crate) name: &'static str,
    pub(crate) before_kib: u64,
    pub(crate) open_kib: u64,
    pub(crate) kib_per_stream: f64,
}

/// Opens so many streams through fresh servers, one server after the other.
pub(crate) async fn measure(streams: usize) -> Result<Vec<Idle>, Fault> {
    let folder = tempfile::tempdir()?;
    let sim = Server::start("serve-sim", &[])?;
    let upstream = sim.address.to_string();
    let bare = Server::start("serve-bare", &[upstream.as_ref()])?;
    let contenders = [
        Contender::upstream("bare pingora", bare)?,
        Contender::gateway("gateway", "serve-gateway", &upstream, &folder)?,
        Contender::gateway("gateway, h2 up", "serve-gateway-h2c", &upstream, &folder)?,
    ];
    let mut rows = Vec::new();
    for contender in &contenders {
        rows.push(fill(contender, streams).await?);
    }
    Ok(rows)
}

async fn fill(contender: &Contender, streams: usize) -> Result<Idle, Fault> {
    let &Contender { name, ref server, ref target } = contender;
    let (quick, stalling) = (body("gpt-5.5"), body(STALLING_MODEL));
    let mut warming = Talk::connect(target.clone()).await?;
    for _ in 0..WARM_UP {
        warming.once(quick.clone()).await?;
    }
    let before_kib = server.resident_kib();
    let opening = stream::iter(0..streams).map(|_| async {
        let talk = Talk::connect(target.clone()).await?;
        talk.hold(stalling.clone()).await
    });
    let open = timeout(PATIENCE, opening.buffer_unordered(OPENING).try_collect::<Vec<_>>());
    let open = open.await.map_err(|_| format!("{name} did not open {streams} streams"))??;
    sleep(SETTLING).await;
    let open_kib = server.resident_kib();
    let kib_per_stream = open_kib.saturating_sub(before_kib) as f64 / (open.len().max(1) as f64);
    Ok(Idle { name, before_kib, open_kib, kib_per_stream })
}
