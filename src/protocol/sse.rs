//! Finds the events of a `text/event-stream` as it passes by, however it is cut.
//!
//! Pure. The stream itself is never changed, and nothing of it is kept: an event's data is handed
//! on in pieces as it comes, so that an event of any size costs a few bytes of state.
//!
//! The grammar is WHATWG's, with one difference: an event that the stream's end cuts short of its
//! blank line is delivered.

/// The field that matters; every other one, and comments, are passed over.
const FIELD: &[u8] = b"data";
const NAME_LEN: usize = FIELD.len();
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The scanner: [`feed`](Self::feed) the stream in pieces, then [`finish`](Self::finish).
#[derive(Debug, Default)]
pub struct Scanner {
    line: Line,
    /// Whether the event at hand has a data line.
    has_data: bool,
    /// Whether a line feed would belong to the carriage return before it.
    after_return: bool,
    start: Start,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// More data of the event at hand; several data lines are joined by a line feed.
    Data(&'a [u8]),
    /// The event at hand is complete; `end` is the offset just after it in the piece at hand.
    End { end: usize },
}

/// Where in a line the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// So many bytes of the field's name were read.
    Name(usize),
    /// The colon was read; a space after it is dropped.
    Colon,
    Value,
    /// Another field or a comment.
    Other,
}

/// How much of a byte order mark was read; it is dropped at the very start only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Mark(usize),
    Passed,
}

// === impl Scanner ===

impl Scanner {
    /// Reads on.
    pub fn feed(&mut self, piece: &[u8], on_part: &mut impl FnMut(Part<'_>)) {
        let mut at = self.skip_mark(piece);
        if self.after_return && at < piece.len() {
            self.after_return = false;
            at += usize::from(piece.get(at) == Some(&b'\n'));
        }
        while let Some(rest) = piece.get(at..).filter(|rest| !rest.is_empty()) {
            let len = match self.line {
                Line::Name(read) => self.name(read, rest),
                Line::Colon => self.colon(rest, on_part),
                Line::Value | Line::Other => self.rest_of_line(rest, on_part),
            };
            at += len;
            let Some(&byte) = piece.get(at) else { return };
            if is_line_end(byte) {
                at = self.end_line(piece, at, on_part);
            }
        }
    }

    /// Ends the stream; an event without its blank line is delivered, `end` is 0 then.
    pub fn finish(&mut self, on_part: &mut impl FnMut(Part<'_>)) {
        if matches!(self.line, Line::Colon | Line::Name(NAME_LEN)) {
            self.begin_value(on_part);
        }
        if self.has_data {
            on_part(Part::End { end: 0 });
        }
        *self = Self::default();
    }

    fn skip_mark(&mut self, piece: &[u8]) -> usize {
        let mut at = 0;
        while let (Start::Mark(read), Some(byte)) = (self.start, piece.get(at)) {
            if BYTE_ORDER_MARK.get(read) != Some(byte) {
                // What looked like the mark's beginning was a line of its own kind.
                if read > 0 && read < BYTE_ORDER_MARK.len() {
                    self.line = Line::Other;
                }
                self.start = Start::Passed;
                break;
            }
            self.start = Start::Mark(read + 1);
            at += 1;
        }
        at
    }

    /// Reads the field's name; returns how many bytes are done with.
    fn name(&mut self, mut read: usize, rest: &[u8]) -> usize {
        for (at, byte) in rest.iter().enumerate() {
            if is_line_end(*byte) {
                self.line = Line::Name(read);
                return at;
            }
            if read == NAME_LEN && *byte == b':' {
                self.line = Line::Colon;
                return at + 1;
            }
            if FIELD.get(read) != Some(byte) {
                self.line = Line::Other;
                return at;
            }
            read += 1;
        }
        self.line = Line::Name(read);
        rest.len()
    }

    fn colon(&mut self, rest: &[u8], on_part: &mut impl FnMut(Part<'_>)) -> usize {
        self.begin_value(on_part);
        usize::from(rest.first() == Some(&b' '))
    }

    fn begin_value(&mut self, on_part: &mut impl FnMut(Part<'_>)) {
        if self.has_data {
            on_part(Part::Data(b"\n"));
        }
        self.has_data = true;
        self.line = Line::Value;
    }

    fn rest_of_line(&mut self, rest: &[u8], on_part: &mut impl FnMut(Part<'_>)) -> usize {
        let len = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        if self.line == Line::Value && len > 0 {
            on_part(Part::Data(rest.get(..len).unwrap_or_default()));
        }
        len
    }

    /// Ends the line whose end is at `at`; returns the offset after it.
    fn end_line(&mut self, piece: &[u8], at: usize, on_part: &mut impl FnMut(Part<'_>)) -> usize {
        let mut end = at + 1;
        if piece.get(at) == Some(&b'\r') {
            match piece.get(end) {
                Some(b'\n') => end += 1,
                Some(_) => {}
                None => self.after_return = true,
            }
        }
        match self.line {
            Line::Name(0) => {
                if std::mem::take(&mut self.has_data) {
                    on_part(Part::End { end });
                }
            }
            // A field without a colon has an empty value.
            Line::Name(NAME_LEN) | Line::Colon => self.begin_value(on_part),
            Line::Name(_) | Line::Value | Line::Other => {}
        }
        self.line = Line::default();
        end
    }
}

// === impl Line ===

impl Default for Line {
    fn default() -> Self {
        Self::Name(0)
    }
}

// === impl Start ===

impl Default for Start {
    fn default() -> Self {
        Self::Mark(0)
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events' data, read in pieces of this size.
    fn read(stream: &[u8], size: usize) -> Vec<String> {
        let (mut scanner, mut data, mut events) = (Scanner::default(), Vec::new(), Vec::new());
        let mut take = |part: Part<'_>| match part {
            Part::Data(more) => data.extend_from_slice(more),
            Part::End { .. } => {
                events.push(String::from_utf8_lossy(&std::mem::take(&mut data)).into_owned());
            }
        };
        for piece in stream.chunks(size) {
            scanner.feed(piece, &mut take);
        }
        scanner.finish(&mut take);
        assert!(data.is_empty(), "data without an end");
        events
    }

    #[test]
    fn streams_of_every_form_are_read_in_pieces_of_every_size() {
        let table: &[(&[u8], &[&str])] = &[
            (b"", &[]),
            (b"\n\n\r\n", &[]),
            (b"data: one\n\ndata: two\n\n", &["one", "two"]),
            (b"data: one\r\n\r\ndata: two\r\n\r\n", &["one", "two"]),
            (b"data: one\r\rdata: two\r\r", &["one", "two"]),
            (b"data: one\r\n\ndata: two\n\r\n", &["one", "two"]),
            (b"data:{\"a\":1}\n\n", &["{\"a\":1}"]),
            (b"data:  two spaces \n\n", &[" two spaces "]),
            (b"data: a\ndata: b\ndata:\ndata:c\n\n", &["a\nb\n\nc"]),
            (b"data: a\r\ndata: b\r\n\r\n", &["a\nb"]),
            (b"data\n\n", &[""]),
            (b"data:\n\n", &[""]),
            (b"data: \n\n", &[""]),
            (b"data\ndata\n\n", &["\n"]),
            (b": comment\n\n:\n\ndata: x\n: inside\n\n", &["x"]),
            (b"event: e\nid: 1\nretry: 5\ndata: x\n\n", &["x"]),
            (b"event: e\n\ndata: x\n\n", &["x"]),
            (b"dat: n\ndatax: n\n data: n\nDATA: n\ndata : n\ndata: y\n\n", &["y"]),
            (b"\xEF\xBB\xBFdata: x\n\n", &["x"]),
            (b"\xEF\xBB\xBF\xEF\xBB\xBFdata: n\n\ndata: y\n\n", &["y"]),
            (b"\xEF\xBBdata: n\n\ndata: y\n\n", &["y"]),
            (b"data: a:b: c\n\n", &["a:b: c"]),
            // What the end cuts short.
            (b"data: x\n", &["x"]),
            (b"data: x", &["x"]),
            (b"data: x\r\n", &["x"]),
            (b"data: x\n\ndat", &["x"]),
            (b"data:", &[""]),
            (b"data", &[""]),
            (b"event: e\n", &[]),
        ];
        for (stream, events) in table {
            for size in 1..=stream.len().max(1) {
                assert_eq!(read(stream, size), *events, "{} by {size}", stream.escape_ascii());
            }
        }
    }

    #[test]
    fn the_end_of_an_event_is_told_as_an_offset_in_its_piece() {
        let table: &[(&[u8], &[usize])] = &[
            (b"data: x\n\n", &[9]),
            (b"data: x\n\nda", &[9]),
            (b"data: x\r\n\r\nda", &[11]),
            (b"data: x\r\rda", &[9]),
            (b": c\n\ndata: x\n\n\n\ndata: y\n\n", &[14, 25]),
        ];
        for (piece, expected) in table {
            let (mut scanner, mut ends) = (Scanner::default(), Vec::new());
            scanner.feed(piece, &mut |part| {
                if let Part::End { end } = part {
                    ends.push(end);
                }
            });
            assert_eq!(ends, *expected, "{}", piece.escape_ascii());
        }
    }

    #[test]
    fn an_event_ends_with_the_carriage_return_even_if_its_line_feed_is_still_to_come() {
        let (mut scanner, mut ends) = (Scanner::default(), Vec::new());
        for piece in [&b"data: x\r\n\r"[..], b"\ndata: y\n\n"] {
            scanner.feed(piece, &mut |part| {
                if let Part::End { end } = part {
                    ends.push(end);
                }
            });
        }
        assert_eq!(ends, [10, 10]);
    }

    #[test]
    fn data_is_handed_on_before_its_line_ends() {
        let (mut scanner, mut data) = (Scanner::default(), Vec::new());
        for piece in [&b"data: ab"[..], b"cd", b"ef"] {
            scanner.feed(piece, &mut |part| match part {
                Part::Data(more) => data.push(more.to_vec()),
                Part::End { .. } => panic!("nothing ended"),
            });
        }
        assert_eq!(data, [b"ab", b"cd", b"ef"]);
    }
}
