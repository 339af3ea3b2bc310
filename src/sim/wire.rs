//! The socket under a connection, so that a script can lose it in a chosen way.
//!
//! Whoever wants the connection lost says so to the [`Wire`]; the task that owns the socket drops
//! it. Bytes handed over before that are written first.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::Notify,
    time::{sleep, timeout},
};

/// HTTP/2 hands frames to the task of the connection, which may be in the midst of a flush that
/// began without them.
const GRACE: Duration = Duration::from_millis(2);

/// A flush that never comes: the peer reads nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is kept of the bytes read, to find a request's head as it was sent.
const HEARD_MAX: usize = 512 * 1024;

/// One connection, as those see it who don't own its socket.
pub(super) struct Wire {
    pub(super) id: u64,
    pub(super) tls: bool,
    /// Keep what was read, for [`Wire::take_head`].
    listening: AtomicBool,
    heard: Mutex<Vec<u8>>,
    flushes: AtomicU64,
    flushed: Notify,
    /// How many bytes may still be written; the connection is lost when they are used up.
    budget: AtomicI64,
    reset: AtomicBool,
    lost: AtomicBool,
    lost_now: Notify,
}

/// The TCP socket; it closes as the wire was told.
pub(super) struct Socket {
    tcp: TcpStream,
    wire: Arc<Wire>,
}

/// The stream that HTTP is spoken on, above TLS if there is any; it listens for heads.
pub(super) struct Ear<S> {
    inner: S,
    wire: Arc<Wire>,
}

// === impl Wire ===

impl Wire {
    pub(super) fn new(id: u64, tls: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            tls,
            listening: AtomicBool::new(false),
            heard: Mutex::default(),
            flushes: AtomicU64::new(0),
            flushed: Notify::new(),
            budget: AtomicI64::new(i64::MAX),
            reset: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            lost_now: Notify::new(),
        })
    }

    /// Keeps from now on what is read.
    pub(super) fn listen(&self) {
        self.listening.store(true, Ordering::Relaxed);
    }

    /// Loses the connection, by RST or FIN.
    pub(super) fn lose(&self, by_reset: bool) {
        self.reset.store(by_reset, Ordering::SeqCst);
        self.lose_now();
    }

    /// Loses the connection after so many more bytes.
    pub(super) fn lose_after(&self, bytes: usize, by_reset: bool) {
        self.reset.store(by_reset, Ordering::SeqCst);
        self.budget.store(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Waits until the connection is to be lost.
    pub(super) async fn until_lost(&self) {
        loop {
            let notified = self.lost_now.notified();
            if self.lost.load(Ordering::SeqCst) {
                return;
            }
            notified.await;
        }
    }

    /// Waits until what was handed to HTTP before this call has gone to the socket. Must be polled
    /// first when nothing more is handed over, as only an idle connection flushes.
    pub(super) async fn drained(self: Arc<Self>) {
        let before = self.flushes.load(Ordering::SeqCst);
        let flush = async {
            loop {
                let notified = self.flushed.notified();
                if self.flushes.load(Ordering::SeqCst) > before {
                    return;
                }
                notified.await;
            }
        };
        // A peer that reads nothing must not keep the script from going on.
        let _ = timeout(PATIENCE, flush).await;
        sleep(GRACE).await;
    }

    /// The head of the last request with this request line, as it was sent over HTTP/1.1.
    pub(super) fn take_head(&self, line: &str) -> Option<Vec<u8>> {
        if !self.listening.load(Ordering::Relaxed) {
            return None;
        }
        let mut heard = self.heard.lock();
        let start = memchr::memmem::rfind(&heard, line.as_bytes())?;
        let length = memchr::memmem::find(&heard[start..], b"\r\n\r\n")? + 4;
        let head = heard[start..start + length].to_vec();
        heard.clear();
        Some(head)
    }

    fn lose_now(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.lost_now.notify_waiters();
    }

    fn hear(&self, bytes: &[u8]) {
        if !self.listening.load(Ordering::Relaxed) {
            return;
        }
        let mut heard = self.heard.lock();
        if heard.len() + bytes.len() > HEARD_MAX {
            let excess = (heard.len() + bytes.len()).saturating_sub(HEARD_MAX / 2);
            let excess = excess.min(heard.len());
            heard.drain(..excess);
        }
        heard.extend_from_slice(bytes);
    }
}

// === impl Socket ===

impl Socket {
    pub(super) fn new(tcp: TcpStream, wire: Arc<Wire>) -> Self {
        Self { tcp, wire }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.wire.reset.load(Ordering::SeqCst) {
            // A socket that the peer has closed already can't be reset, and needs not.
            let _ = self.tcp.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let budget = self.wire.budget.load(Ordering::SeqCst);
        if budget == i64::MAX {
            return Pin::new(&mut self.tcp).poll_write(cx, buf);
        }
        let allowed = usize::try_from(budget).unwrap_or(0).min(buf.len());
        if allowed == 0 {
            self.wire.lose_now();
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = ready!(Pin::new(&mut self.tcp).poll_write(cx, &buf[..allowed]))?;
        let left = budget - i64::try_from(written).unwrap_or(budget);
        self.wire.budget.store(left, Ordering::SeqCst);
        if left <= 0 {
            self.wire.lose_now();
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.tcp).poll_flush(cx))?;
        self.wire.flushes.fetch_add(1, Ordering::SeqCst);
        self.wire.flushed.notify_waiters();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.wire.budget.load(Ordering::SeqCst) == i64::MAX {
            return Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs);
        }
        let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
        self.poll_write(cx, first)
    }
}

// === impl Ear ===

impl<S> Ear<S> {
    pub(super) fn new(inner: S, wire: Arc<Wire>) -> Self {
        Self { inner, wire }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ear<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.wire.hear(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ear<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
}
