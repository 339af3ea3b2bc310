//! Where the next byte of interest is. Pure.

/// Bytes looked at word by word before the vectorized search is worth its call.
const SHORT: usize = 32;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The number of leading bytes that are neither a quote nor a backslash.
#[inline]
pub(super) fn plain(bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < SHORT {
        let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else { break };
        let word = u64::from_le_bytes(*word);
        let hits = zero_bytes(word ^ repeated(b'"')) | zero_bytes(word ^ repeated(b'\\'));
        if hits != 0 {
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
}

/// The number of leading bytes that are JSON white space.
#[inline]
pub(super) fn space(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))
        .unwrap_or(bytes.len())
}

const fn repeated(byte: u8) -> u64 {
    LOW_BITS * byte as u64
}

/// Marks zero bytes by their high bit; exact up to the first one, which is all that is asked.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_quote_or_backslash_is_found_wherever_it_is() {
        for len in 0..80 {
            for stop in [b'"', b'\\'] {
                let mut bytes = vec![b'!'; len];
                assert_eq!(plain(&bytes), len);
                bytes.push(stop);
                bytes.extend_from_slice(b"\"\\x");
                assert_eq!(plain(&bytes), len);
            }
        }
        assert_eq!(plain(b"\xff\xdc\xa2\x80\x00#[]\""), 8);
    }
}
