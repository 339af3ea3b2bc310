//! A deadline around an accepted stream: a request head has to come, and to come to its end.
//!
//! Pingora bounds each read of a head but not the head, so one byte every few seconds would hold a
//! connection forever. This stream watches the bytes that pass: from the first byte of a head to
//! its empty line the clock runs; after an answer the next head may begin whenever the keep-alive
//! allows.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType, raw_connect::ProxyDigest, tls::SslDigest,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// How long the client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadDeadlines {
    /// From the connection to the first byte.
    pub(super) first_byte: Duration,
    /// From the first byte of a head to its end.
    pub(super) head: Duration,
}

#[derive(Debug)]
pub(super) struct HeadGuard {
    inner: Stream,
    deadlines: HeadDeadlines,
    timer: Pin<Box<Sleep>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The connection is new and silent; the timer runs.
    Silent,
    /// A head is coming; the timer runs. Counts how much of the empty line was seen.
    Head(EmptyLine),
    /// The head is in; the rest of the request and the answer take their time.
    Past,
    /// An answer was written; the next head has not begun.
    Between,
}

/// Progress through `\n\r\n` or `\n\n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EmptyLine {
    /// Nothing of a head yet: parsers skip empty lines before one.
    #[default]
    Before,
    Text,
    LineFeed,
    CarriageReturn,
}

// === impl HeadGuard ===

impl HeadGuard {
    pub(super) fn new(inner: Stream, deadlines: HeadDeadlines) -> Self {
        let timer = Box::pin(tokio::time::sleep(deadlines.first_byte));
        Self { inner, deadlines, timer, state: State::Silent }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match self.state {
            State::Silent | State::Head(_) => self.timer.as_mut().poll(cx).map(|()| {
                io::Error::new(io::ErrorKind::TimedOut, "the request head took too long")
            }),
            State::Past | State::Between => Poll::Pending,
        }
    }

    fn saw(&mut self, bytes: &[u8]) {
        let mut line = match self.state {
            State::Past => return,
            State::Silent | State::Between => {
                self.timer.as_mut().reset(Instant::now() + self.deadlines.head);
                EmptyLine::default()
            }
            State::Head(line) => line,
        };
        for byte in bytes {
            line = match (line, byte) {
                (EmptyLine::Before, b'\r' | b'\n') => EmptyLine::Before,
                (EmptyLine::LineFeed | EmptyLine::CarriageReturn, b'\n') => {
                    self.state = State::Past;
                    return;
                }
                (EmptyLine::LineFeed, b'\r') => EmptyLine::CarriageReturn,
                (_, b'\n') => EmptyLine::LineFeed,
                _ => EmptyLine::Text,
            };
        }
        self.state = State::Head(line);
    }

    /// An interim answer is followed by the rest of the same request.
    fn wrote(&mut self, bytes: &[u8]) {
        if self.state == State::Past && !bytes.starts_with(b"HTTP/1.1 1") {
            self.state = State::Between;
        }
    }
}

impl AsyncRead for HeadGuard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => {
                let this = &mut *self;
                if buffer.filled().len() > before {
                    this.saw(&buffer.filled()[before..]);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_deadline(cx).map(Err),
        }
    }
}

impl AsyncWrite for HeadGuard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.wrote(bytes);
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.wrote(pieces.first().map_or(&[][..], |it| it));
        Pin::new(&mut self.inner).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[async_trait]
impl Shutdown for HeadGuard {
    async fn shutdown(&mut self) {
        self.inner.shutdown().await;
    }
}

#[async_trait]
impl Peek for HeadGuard {}

impl UniqueID for HeadGuard {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for HeadGuard {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for HeadGuard {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for HeadGuard {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for HeadGuard {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}
