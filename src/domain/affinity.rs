//! Which explicit signals name a session. Pure.
//!
//! Only what the client says in so many words counts: nothing is inferred from content, address or
//! time.

/// The longest value that names anything, in bytes.
const VALUE_MAX: usize = 512;

/// The value of a session signal, if it is fit to name a session.
pub fn usable(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let fits = !text.is_empty() && text.len() <= VALUE_MAX && !text.chars().any(char::is_control);
    fits.then_some(text)
}

/// The one signal of a request: the same value twice is one, two values of one kind are none.
pub fn agreed<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<&'a str> {
    let mut values = values.into_iter();
    let first = values.next()?;
    if values.any(|it| it != first) { None } else { usable(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_a_session_or_is_ignored() {
        let long = "x".repeat(512);
        let too_long = "x".repeat(513);
        let table: [(&[u8], bool); 6] = [
            (b"01a22f77-e13c", true),
            (long.as_bytes(), true),
            (too_long.as_bytes(), false),
            (b"", false),
            (b"a\nb", false),
            (b"\xff", false),
        ];
        for (value, fits) in table {
            assert_eq!(usable(value).is_some(), fits, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn two_different_values_of_one_kind_name_nothing() {
        assert_eq!(agreed([&b"a"[..], b"a"]), Some("a"));
        assert_eq!(agreed([&b"a"[..], b"b"]), None);
        assert_eq!(agreed([]), None);
    }
}
