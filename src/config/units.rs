//! Durations (`"5s"`, `"10m"`) and sizes (`"64MiB"`) as people write them. Pure.

use std::{fmt, time::Duration};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const DURATION_UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// Reads a whole number with one of `ms`, `s`, `m`, `h`, `d`, or a plain `0`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    scaled(text, DURATION_UNITS).map(Duration::from_millis)
}

/// Reads a whole number with one of `B`, `KiB`, `MiB`, `GiB`, `kB`, `MB`, `GB`, or a plain `0`.
pub(super) fn byte_size(text: &str) -> Option<ByteSize> {
    scaled(text, SIZE_UNITS).map(ByteSize)
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        return (number == 0).then_some(0);
    }
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

// === impl ByteSize ===

impl ByteSize {
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The size for an index into memory; as large as it gets where a size has fewer bits.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = ["GiB", "MiB", "KiB"].iter().find_map(|name| {
            let (_, factor) = SIZE_UNITS.iter().find(|(unit, _)| unit == name)?;
            (self.0 > 0 && self.0.is_multiple_of(*factor)).then(|| (self.0 / factor, *name))
        });
        match exact {
            Some((number, unit)) => write!(f, "{number}{unit}"),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_with_a_unit() {
        let table = [
            ("5s", Some(5_000)),
            ("250ms", Some(250)),
            ("10m", Some(600_000)),
            ("1h", Some(3_600_000)),
            ("7d", Some(604_800_000)),
            (" 5 s ", Some(5_000)),
            ("0", Some(0)),
            ("5", None),
            ("s", None),
            ("", None),
            ("-5s", None),
            ("1.5h", None),
            ("5 weeks", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ];
        for (text, ms) in table {
            assert_eq!(duration(text), ms.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn a_size_is_a_whole_number_with_a_unit() {
        let table = [
            ("64MiB", Some(64 << 20)),
            ("1GiB", Some(1 << 30)),
            ("3KiB", Some(3072)),
            ("10B", Some(10)),
            ("2MB", Some(2_000_000)),
            ("0", Some(0)),
            ("64", None),
            ("64mib", None),
        ];
        for (text, bytes) in table {
            assert_eq!(byte_size(text), bytes.map(ByteSize), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_size_reads_back_as_it_is_shown(bytes: u64) {
            prop_assert_eq!(byte_size(&ByteSize(bytes).to_string()), Some(ByteSize(bytes)));
        }

        #[test]
        fn no_text_upsets_the_parsers(text in "\\PC{0,24}") {
            let _ = (duration(&text), byte_size(&text));
        }
    }
}
