//! What is done with arbitrary bytes: by the fuzzer without end, by the tests a bounded while.
//!
//! Each entry feeds the bytes in one piece and in small ones, whose size the first byte sets, and
//! panics where the two disagree.

use codex_edge::{
    domain::credential::{AccessToken, RefreshToken},
    protocol::{
        credential_file::{
            self,
            rewrite::{self, NewTokens},
        },
        encoding::Decoder,
        error_body,
        events::{EventFacts, StreamReader, read_frame},
        jwt,
        request::{Inspector, inspect},
    },
};
use http::HeaderValue;
use jiff::Timestamp;

/// A request body, or the body of an error.
pub(super) fn request(data: &[u8]) {
    let (size, body) = split(data);
    let whole = format!("{:?}", inspect(body));
    let mut inspector = Inspector::new();
    let fed = body.chunks(size).try_for_each(|piece| inspector.feed(piece));
    let cut = format!("{:?}", fed.and_then(|()| inspector.finish()));
    assert_eq!(whole, cut);
    if let Ok(found) = inspect(body) {
        for field in [&found.prompt_cache_key, &found.turn_metadata].into_iter().flatten() {
            assert!(field.key_start < field.span.start && field.span.end <= body.len());
        }
    }
    let _ = error_body::parse(body);
    let _ = error_body::is_html(None, body);
}

/// A streamed answer, or one frame.
pub(super) fn stream(data: &[u8]) {
    let (size, body) = split(data);
    assert_eq!(events(body, body.len().max(1)), events(body, size));
    let _ = read_frame(body);
}

/// An encoded body; the first byte chooses the coding, too.
pub(super) fn encoding(data: &[u8]) {
    let (size, body) = split(data);
    let coding = ["identity", "gzip", "deflate", "zstd"][size % 4];
    let (whole, cut) = (decoded(coding, body, body.len().max(1)), decoded(coding, body, size));
    assert_eq!(whole.is_some(), cut.is_some(), "{coding}");
    assert!(whole == cut, "{coding}");
}

/// A credential file, or a token.
pub(super) fn credential(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Err(error) = jwt::claims(text)
    {
        quotes_nothing(data, &error);
    }
    let before = match credential_file::parse(data) {
        Ok(before) => before,
        Err(error) => {
            quotes_nothing(data, &error);
            assert!(rewrite::set_disabled(data, true).is_err());
            return;
        }
    };
    let tokens = NewTokens {
        access: AccessToken::new("a\"b\\c".into()).unwrap(),
        refresh: RefreshToken::new("d".into()).ok(),
        id_token: Some("e30.e30.e".into()),
        account_id: before.login.account_id().cloned(),
        last_refresh: Timestamp::UNIX_EPOCH,
    };
    let after = rewrite::rotate(data, &tokens).unwrap();
    let read = credential_file::parse(&after).unwrap();
    assert_eq!(read.shape, before.shape);
    assert_eq!(read.login.enabled, before.login.enabled);
    assert!(read.login.credential.access.matches(tokens.access.expose().as_bytes()));
    assert!(rewrite::rotate(&after, &tokens).unwrap() == after);
    let off = rewrite::set_disabled(data, true).unwrap();
    assert!(!credential_file::parse(&off).unwrap().login.enabled);
    let on = rewrite::set_disabled(&off, false).unwrap();
    assert!(credential_file::parse(&on).unwrap().login.enabled);
}

/// Eight bytes that are also in an error's own words are no quote of the input.
fn quotes_nothing(data: &[u8], error: &(impl std::error::Error + ?Sized)) {
    let shown = format!("{error} {error:?}");
    let own = |byte: &u8| byte.is_ascii_alphabetic() || b" _`\":,".contains(byte);
    let own_words = |piece: &[u8]| piece.iter().all(own);
    for piece in data.windows(8).filter(|piece| !own_words(piece)) {
        assert!(!shown.as_bytes().windows(8).any(|it| it == piece), "{shown}");
    }
}

fn split(data: &[u8]) -> (usize, &[u8]) {
    match data.split_first() {
        Some((first, rest)) => (usize::from(*first % 32) + 1, rest),
        None => (1, data),
    }
}

/// The events of a stream; where they end depends on the cut, so that is left out.
fn events(stream: &[u8], size: usize) -> Vec<EventFacts> {
    let (mut reader, mut events) = (StreamReader::default(), Vec::new());
    for piece in stream.chunks(size) {
        reader.feed(piece, &mut |event: EventFacts| {
            assert!(event.end > 0 && event.end <= piece.len());
            events.push(EventFacts { end: 0, ..event });
        });
    }
    reader.finish(&mut |event| events.push(event));
    events
}

/// What a body decodes to, if it can be decoded.
fn decoded(coding: &'static str, body: &[u8], size: usize) -> Option<Vec<u8>> {
    let coding = HeaderValue::from_static(coding);
    let mut decoder = Decoder::for_encoding(Some(&coding), 1 << 20).ok()?;
    let mut text = Vec::new();
    for piece in body.chunks(size) {
        decoder.feed(piece, &mut |more| text.extend_from_slice(more)).ok()?;
    }
    decoder.finish().ok()?;
    assert!(text.len() <= 1 << 20);
    Some(text)
}
