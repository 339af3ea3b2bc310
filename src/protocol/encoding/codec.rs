//! One step of each content coding. Pure.

use std::io;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{self, DParameter, Operation};

use super::{DecodeError, gzip::Gzip};

/// Larger windows are refused: 8 MiB.
const WINDOW_LOG_MAX: u32 = 23;
/// How zstd says that a frame wants a larger one.
const WINDOW_REFUSED: &str = "Frame requires too much memory for decoding";

pub(super) enum Codec {
    Identity,
    Zstd(Zstd),
    Gzip(Box<Gzip>),
    Deflate(Deflate),
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes of the input that are done with.
    pub(super) taken: usize,
    /// Bytes of the output that were filled.
    pub(super) given: usize,
}

/// One or more frames.
pub(super) struct Zstd {
    decoder: raw::Decoder<'static>,
    /// Whether the last frame is complete.
    complete: bool,
}

/// `deflate` is the zlib format, but some senders leave out its frame.
pub(super) struct Deflate {
    inflate: Option<Decompress>,
    complete: bool,
}

// === impl Codec ===

impl Codec {
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if name.is_empty() || is("identity") {
            Some(Self::Identity)
        } else if is("zstd") {
            Zstd::new().map(Self::Zstd)
        } else if is("gzip") || is("x-gzip") {
            Some(Self::Gzip(Box::default()))
        } else if is("deflate") {
            Some(Self::Deflate(Deflate { inflate: None, complete: false }))
        } else {
            None
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Zstd(_) => "zstd",
            Self::Gzip(_) => "gzip",
            Self::Deflate(_) => "deflate",
        }
    }

    pub(super) fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, DecodeError> {
        let result = match self {
            Self::Identity => return Ok(Step::default()),
            Self::Zstd(zstd) => zstd.step(input, out),
            Self::Gzip(gzip) => gzip.step(input, out),
            Self::Deflate(deflate) => deflate.step(input, out),
        };
        result.map_err(|source| {
            if source.to_string() == WINDOW_REFUSED {
                return DecodeError::TooLarge;
            }
            self.corrupt(Some(source))
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Identity => true,
            Self::Zstd(zstd) => zstd.complete,
            Self::Gzip(gzip) => gzip.is_complete(),
            Self::Deflate(deflate) => deflate.complete,
        }
    }

    pub(super) fn corrupt(&self, source: Option<io::Error>) -> DecodeError {
        DecodeError::Corrupt { coding: self.name(), source }
    }
}

// === impl Zstd ===

impl Zstd {
    /// `None` if there is no memory for it.
    fn new() -> Option<Self> {
        let mut decoder = raw::Decoder::new().ok()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).ok()?;
        Some(Self { decoder, complete: false })
    }

    fn step(&mut self, input: &[u8], out: &mut [u8]) -> io::Result<Step> {
        let status = self.decoder.run_on_buffers(input, out)?;
        let step = Step { taken: status.bytes_read, given: status.bytes_written };
        if step != Step::default() {
            self.complete = status.remaining == 0;
        }
        Ok(step)
    }
}

// === impl Deflate ===

impl Deflate {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> io::Result<Step> {
        let Some(&first) = input.first().or(self.inflate.as_ref().map(|_| &0)) else {
            return Ok(Step::default());
        };
        if self.complete {
            return Ok(Step::default());
        }
        // A zlib frame begins with method 8 and a window of at most 32 KiB; no encoder begins raw
        // data so, as that would be a stored block with its padding bits set.
        let framed = first & 0x0F == 8 && first >> 4 <= 7;
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(framed));
        let (step, ended) = inflate_step(inflate, input, out)?;
        self.complete = ended;
        Ok(step)
    }
}

/// Inflates once; tells whether the data ended.
pub(super) fn inflate_step(
    inflate: &mut Decompress,
    input: &[u8],
    out: &mut [u8],
) -> io::Result<(Step, bool)> {
    let (taken, given) = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, out, FlushDecompress::None)?;
    let step = Step {
        taken: usize::try_from(inflate.total_in() - taken).unwrap_or_default(),
        given: usize::try_from(inflate.total_out() - given).unwrap_or_default(),
    };
    Ok((step, status == Status::StreamEnd))
}
