//! Looks at an HTTP/1.1 head as it came, before a parser tidied it. Pure.
//!
//! Pingora drops a `Content-Length` that stands beside a `Transfer-Encoding` and accepts bare line
//! feeds. A proxy in front may decide otherwise, and that difference is what smuggling lives on.

/// Why a raw head can be read in two ways; `None` if it cannot.
pub(super) fn ambiguity(head: &[u8]) -> Option<&'static str> {
    let (mut lengths, mut encodings) = (0_u32, 0_u32);
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', head) {
        let line = &head[start..end];
        start = end + 1;
        if !line.ends_with(b"\r") {
            return Some("a line of its head ends without a carriage return");
        }
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let name = &line[..colon];
        lengths += u32::from(name.eq_ignore_ascii_case(b"content-length"));
        encodings += u32::from(name.eq_ignore_ascii_case(b"transfer-encoding"));
    }
    match (lengths, encodings) {
        (0, 0 | 1) | (1, 0) => None,
        (_, 0) => Some("it gives several lengths"),
        (0, _) => Some("it gives several transfer encodings"),
        _ => Some("it gives a length and a transfer encoding"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_one_reading_or_none() {
        let head = |lines: &str| format!("POST /v1/responses HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let clear = ["", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"];
        for lines in clear {
            assert_eq!(ambiguity(head(lines).as_bytes()), None, "{lines}");
        }
        let ambiguous = [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "transfer-encoding: chunked\r\ncontent-length: 3\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "X: y\nZ: w\r\n",
        ];
        for lines in ambiguous {
            assert!(ambiguity(head(lines).as_bytes()).is_some(), "{lines}");
        }
    }
}
