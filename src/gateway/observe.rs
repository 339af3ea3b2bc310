//! Reads a stream of events as it passes by, and never stands in its way.
//!
//! Whatever goes wrong here, be it an encoding nobody knows or a fault of our own, ends the
//! watching and not the stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::HeaderValue;

use crate::protocol::{
    encoding::Decoder,
    events::{EventFacts, StreamReader},
};

/// No stream is that long; the bound keeps a bomb from costing more than its own bytes.
const DECODED_MAX: u64 = 4 << 30;

#[derive(Debug)]
pub struct StreamObserver(State);

#[derive(Debug)]
enum State {
    Watching { decoder: Box<Decoder>, reader: Box<StreamReader> },
    Blind,
}

// === impl StreamObserver ===

impl StreamObserver {
    /// `encoding` is the answer's `Content-Encoding`.
    pub fn new(encoding: Option<&HeaderValue>) -> Self {
        match Decoder::for_encoding(encoding, DECODED_MAX) {
            Ok(decoder) => Self(State::Watching {
                decoder: Box::new(decoder),
                reader: Box::new(StreamReader::default()),
            }),
            Err(_) => Self(State::Blind),
        }
    }

    /// Whether events are still being read.
    pub fn is_watching(&self) -> bool {
        matches!(self.0, State::Watching { .. })
    }

    /// Reads one piece as it came over the wire.
    pub fn feed(&mut self, piece: &[u8], mut on_event: impl FnMut(EventFacts)) {
        self.guarded(|decoder, reader| {
            decoder.feed(piece, &mut |plain: &[u8]| reader.feed(plain, &mut on_event)).is_ok()
        });
    }

    /// The stream has ended.
    pub fn finish(&mut self, mut on_event: impl FnMut(EventFacts)) {
        self.guarded(|_, reader| {
            reader.finish(&mut on_event);
            true
        });
    }

    /// Runs one step; a failed or panicking one was the last.
    fn guarded(&mut self, step: impl FnOnce(&mut Decoder, &mut StreamReader) -> bool) {
        let State::Watching { decoder, reader } = &mut self.0 else { return };
        let goes_on = catch_unwind(AssertUnwindSafe(|| step(decoder, reader)));
        if !goes_on.unwrap_or(false) {
            self.0 = State::Blind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_observer_ends_the_watching_only() {
        let mut observer = StreamObserver::new(None);
        observer.feed(b"data: {\"type\":\"response.created\"}\n\n", |_| panic!("a fault of ours"));
        assert!(!observer.is_watching());
        observer.feed(b"data: {\"type\":\"response.created\"}\n\n", |_| panic!("not asked again"));
    }

    #[test]
    fn a_compressed_stream_is_read_as_a_copy() {
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"data: {\"type\":\"response.created\"}\n\n").unwrap();
        let bytes = gzip.finish().unwrap();
        let (mut observer, mut events) =
            (StreamObserver::new(Some(&HeaderValue::from_static("gzip"))), 0);
        for piece in bytes.chunks(3) {
            observer.feed(piece, |_| events += 1);
        }
        assert_eq!(events, 1);
    }
}
