//! Decodes a copy of a body for inspection, as it passes by.
//!
//! Pure. Nothing accumulates: decoded bytes are handed out in small pieces, and both their number
//! and their ratio to the encoded ones are bounded. The body itself is relayed as it came.

mod codec;
mod gzip;

use std::{fmt, io};

use http::HeaderValue;

use self::codec::Codec;

/// Decoded bytes handed out at once, at most.
const PIECE_MAX: usize = 64 * 1024;
/// Until then the ratio does not matter.
const RATIO_FREE: u64 = 1024 * 1024;
/// Decoded bytes for each encoded one; no honest JSON comes near it.
const RATIO_MAX: u64 = 1_000;

/// The decoder: [`feed`](Self::feed) the body in pieces, then [`finish`](Self::finish).
pub struct Decoder {
    codec: Codec,
    /// Where a piece is decoded to; empty for the identity.
    out: Vec<u8>,
    bounds: Bounds,
}

/// A coding, or a list of several, that is not read here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the content-encoding `{name}` is not supported; use identity, gzip, deflate or zstd")]
pub struct UnsupportedEncoding {
    name: String,
}

/// Why a body can't be decoded. After an error the decoder is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// More decoded bytes, a larger ratio or a larger window than allowed.
    #[error("the decoded body is too large")]
    TooLarge,
    #[error("the body ends before its compressed data is complete")]
    Truncated,
    #[error("the body is not valid {coding} data")]
    Corrupt {
        coding: &'static str,
        #[source]
        source: Option<io::Error>,
    },
}

/// Counts what went in and out.
#[derive(Debug)]
struct Bounds {
    taken: u64,
    given: u64,
    given_max: u64,
}

// === impl Decoder ===

impl Decoder {
    /// A decoder for a body with these `content-encoding` headers, which may become `decoded_max`
    /// bytes long.
    ///
    /// Takes all values of the header (`HeaderMap::get_all`), so that a second one can't hide.
    pub fn for_encoding<'a>(
        values: impl IntoIterator<Item = &'a HeaderValue>,
        decoded_max: u64,
    ) -> Result<Self, UnsupportedEncoding> {
        let mut values = values.into_iter();
        let name = match (values.next(), values.next()) {
            (None, _) => &b"identity"[..],
            (Some(value), None) => value.as_bytes().trim_ascii(),
            (Some(_), Some(_)) => return Err(UnsupportedEncoding::new(b"several at once")),
        };
        let codec = Codec::named(name).ok_or_else(|| UnsupportedEncoding::new(name))?;
        let out = vec![0; if matches!(codec, Codec::Identity) { 0 } else { PIECE_MAX }];
        let bounds = Bounds { taken: 0, given: 0, given_max: decoded_max };
        Ok(Self { codec, out, bounds })
    }

    /// Reads on; calls `on_piece` with what was decoded.
    pub fn feed(
        &mut self,
        mut body: &[u8],
        on_piece: &mut impl FnMut(&[u8]),
    ) -> Result<(), DecodeError> {
        if matches!(self.codec, Codec::Identity) {
            return self.pass(body, on_piece);
        }
        loop {
            let step = self.codec.step(body, &mut self.out)?;
            self.bounds.count(step.taken, step.given)?;
            body = body.get(step.taken..).unwrap_or_default();
            if step.given > 0 {
                on_piece(self.out.get(..step.given).unwrap_or_default());
            }
            // A full buffer may mean that more waits inside the codec.
            if body.is_empty() && step.given < self.out.len() {
                return Ok(());
            }
            if step.taken == 0 && step.given == 0 {
                return Err(self.codec.corrupt(None));
            }
        }
    }

    /// Ends the body.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.codec.is_complete() { Ok(()) } else { Err(DecodeError::Truncated) }
    }

    /// Bytes decoded so far.
    pub fn decoded_len(&self) -> u64 {
        self.bounds.given
    }

    fn pass(&mut self, body: &[u8], on_piece: &mut impl FnMut(&[u8])) -> Result<(), DecodeError> {
        for piece in body.chunks(PIECE_MAX) {
            self.bounds.count(piece.len(), piece.len())?;
            on_piece(piece);
        }
        Ok(())
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coding = self.codec.name();
        f.debug_struct("Decoder")
            .field("coding", &coding)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

// === impl UnsupportedEncoding ===

impl UnsupportedEncoding {
    fn new(name: &[u8]) -> Self {
        let shown = name.get(..40).unwrap_or(name);
        Self { name: shown.escape_ascii().to_string() }
    }
}

// === impl Bounds ===

impl Bounds {
    fn count(&mut self, taken: usize, given: usize) -> Result<(), DecodeError> {
        self.taken = self.taken.saturating_add(taken as u64);
        self.given = self.given.saturating_add(given as u64);
        let bomb = self.given > RATIO_FREE && self.given > self.taken.saturating_mul(RATIO_MAX);
        if bomb || self.given > self.given_max {
            return Err(DecodeError::TooLarge);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn decoder(coding: &'static str, max: u64) -> Decoder {
        Decoder::for_encoding(&[HeaderValue::from_static(coding)], max).unwrap()
    }

    /// Decodes in pieces of this size.
    fn decode(coding: &'static str, body: &[u8], size: usize) -> Result<Vec<u8>, DecodeError> {
        let (mut decoder, mut text) = (decoder(coding, 64 * MIB), Vec::new());
        for piece in body.chunks(size) {
            decoder.feed(piece, &mut |more| {
                assert!(!more.is_empty() && more.len() <= PIECE_MAX);
                text.extend_from_slice(more);
            })?;
        }
        decoder.finish()?;
        Ok(text)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(text: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(text, 3).unwrap()
    }

    /// Text that compresses a little.
    fn text(len: usize) -> Vec<u8> {
        (0_u64..).flat_map(|at| format!("{},", at * at % 7_919).into_bytes()).take(len).collect()
    }

    type Encode = fn(&[u8]) -> Vec<u8>;
    const CODINGS: [(&str, Encode); 6] = [
        ("identity", <[u8]>::to_vec),
        ("gzip", gzip),
        ("X-Gzip", gzip),
        ("deflate", zlib),
        ("deflate", raw_deflate),
        ("zstd", zstd),
    ];

    #[test]
    fn every_coding_is_decoded_in_pieces_of_every_size() {
        for (coding, encode) in CODINGS {
            for len in [0, 1, 500, 200_000] {
                let text = text(len);
                let body = encode(&text);
                for size in [1, 2, 3, 7, 100, 5_000, body.len().max(1)] {
                    let decoded = decode(coding, &body, size).unwrap();
                    assert!(decoded == text, "{coding}, {len} bytes by {size}");
                }
            }
        }
    }

    #[test]
    fn several_members_and_frames_follow_each_other() {
        for (coding, encode) in [("gzip", gzip as Encode), ("zstd", zstd)] {
            let body = [encode(b"one "), encode(b""), encode(b"two")].concat();
            for size in 1..=body.len() {
                assert_eq!(decode(coding, &body, size).unwrap(), b"one two", "{coding} by {size}");
            }
        }
    }

    #[test]
    fn optional_gzip_header_fields_are_passed_over() {
        let deflated = gzip(b"text")[10..].to_vec();
        for flags in 0_u8..32 {
            let mut body = vec![0x1F, 0x8B, 8, flags, 0, 0, 0, 0, 0, 255];
            if flags & 4 != 0 {
                body.extend_from_slice(b"\x03\x00xyz");
            }
            if flags & 8 != 0 {
                body.extend_from_slice(b"name\0");
            }
            if flags & 16 != 0 {
                body.extend_from_slice(b"comment\0");
            }
            if flags & 2 != 0 {
                body.extend_from_slice(b"hc");
            }
            body.extend_from_slice(&deflated);
            for size in [1, 5, body.len()] {
                assert_eq!(decode("gzip", &body, size).unwrap(), b"text", "{flags:b}");
            }
        }
        let empty_extra = [&[0x1F, 0x8B, 8, 4, 0, 0, 0, 0, 0, 255, 0, 0][..], &deflated].concat();
        assert_eq!(decode("gzip", &empty_extra, 1).unwrap(), b"text");
    }

    #[test]
    fn a_body_cut_anywhere_is_truncated() {
        for (coding, encode) in &CODINGS[1..] {
            let body = encode(&text(300));
            for len in 0..body.len() {
                let result = decode(coding, &body[..len], 64);
                assert!(matches!(result, Err(DecodeError::Truncated)), "{coding} at {len}");
            }
        }
    }

    #[test]
    fn garbage_is_corrupt_at_the_start_and_at_the_end() {
        for (coding, encode) in &CODINGS[1..] {
            let body = [encode(b"text"), b"garbage".to_vec()].concat();
            let result = decode(coding, &body, 3);
            assert!(matches!(result, Err(DecodeError::Corrupt { .. })), "{coding}: {result:?}");
            let result = decode(coding, br#"{"model":"gpt-5.5"}"#, 3);
            assert!(matches!(result, Err(DecodeError::Corrupt { .. })), "{coding}: {result:?}");
        }
        let mut body = gzip(b"text");
        let last = body.len() - 8;
        body[last] ^= 1;
        assert!(matches!(decode("gzip", &body, 99), Err(DecodeError::Corrupt { .. })));
    }

    #[test]
    fn a_body_may_be_as_long_as_the_limit_and_no_longer() {
        for (coding, encode) in CODINGS {
            let body = encode(&text(100_000));
            let mut exact = decoder(coding, 100_000);
            exact.feed(&body, &mut |_| {}).unwrap();
            exact.finish().unwrap();
            assert_eq!(exact.decoded_len(), 100_000);
            let result = decoder(coding, 99_999).feed(&body, &mut |_| {});
            assert!(matches!(result, Err(DecodeError::TooLarge)), "{coding}");
        }
    }

    #[test]
    fn a_bomb_is_stopped_long_before_the_limit() {
        let mut given = 0;
        let bomb = zstd(&vec![b' '; 32 << 20]);
        let result = decoder("zstd", 64 * MIB).feed(&bomb, &mut |more| given += more.len());
        assert!(matches!(result, Err(DecodeError::TooLarge)));
        assert!(given as u64 <= 8 * MIB, "{given}");
    }

    #[test]
    fn a_megabyte_of_one_letter_is_no_bomb() {
        let text = vec![b'a'; MIB as usize];
        for (coding, encode) in CODINGS {
            assert!(decode(coding, &encode(&text), 4_096).unwrap() == text, "{coding}");
        }
    }

    #[test]
    fn a_window_beyond_eight_mebibytes_is_refused() {
        for (window_log, accepted) in [(23, true), (24, false)] {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            encoder.window_log(window_log).unwrap();
            encoder.write_all(&text(1_000)).unwrap();
            let body = encoder.finish().unwrap();
            let result = decode("zstd", &body, body.len());
            match result {
                Ok(_) => assert!(accepted),
                Err(error) => assert!(!accepted && matches!(error, DecodeError::TooLarge)),
            }
        }
    }

    #[test]
    fn unknown_and_stacked_codings_are_refused_by_name() {
        for name in ["br", "compress", "gzip, zstd", "gzip,", "aws-chunked", "zstd;q=1"] {
            let error = Decoder::for_encoding(&[HeaderValue::from_static(name)], 1).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("`{name}`")), "{text}");
        }
        let two = [HeaderValue::from_static("identity"), HeaderValue::from_static("gzip")];
        assert!(Decoder::for_encoding(&two, 1).is_err());
        let strange = HeaderValue::from_bytes(b"\xFF\xFE").unwrap();
        assert!(Decoder::for_encoding(&[strange], 1).is_err());
        assert!(Decoder::for_encoding(None, 1).is_ok());
        assert!(Decoder::for_encoding(&[HeaderValue::from_static(" ")], 1).is_ok());
    }
}
