//! What an upstream's error body says. Pure.

use super::json::{Path, Paths, Scanner, Value};
use crate::domain::outcome::ErrorFacts;

const TEXT_MAX: usize = 256;

static PATHS: Paths = Paths::new(&[
    text(&["error"]),
    text(&["error", "code"]),
    text(&["error", "type"]),
    text(&["error", "plan_type"]),
    text(&["error", "resets_at"]),
    text(&["error", "resets_in_seconds"]),
    text(&["detail", "code"]),
    text(&["detail", "type"]),
    text(&["code"]),
]);

// Places in `PATHS`.
const ERROR: usize = 0;
const ERROR_CODE: usize = 1;
const ERROR_TYPE: usize = 2;
const PLAN_TYPE: usize = 3;
const RESETS_AT: usize = 4;
const RESETS_IN_SECONDS: usize = 5;
const DETAIL_CODE: usize = 6;
const DETAIL_TYPE: usize = 7;
const CODE: usize = 8;

const fn text(keys: &'static [&'static str]) -> Path {
    Path { keys, text_max: TEXT_MAX }
}

/// Reads a body of one of the known shapes; everything else says nothing.
///
/// Known are `{"error":{"code","type","plan_type","resets_at","resets_in_seconds"}}`,
/// `{"error":"code"}` as OAuth servers answer, `{"detail":{"code","type"}}` and `{"code"}`.
pub fn parse(body: &[u8]) -> ErrorFacts {
    let mut scanner = Scanner::new(&PATHS);
    if scanner.feed(body).and_then(|()| scanner.finish()).is_err() {
        return ErrorFacts::default();
    }
    let integer = |index| scanner.member(index).and_then(|member| member.integer());
    ErrorFacts {
        code: code_of(&scanner, ERROR_CODE)
            .or_else(|| text_of(&scanner, ERROR))
            .or_else(|| code_of(&scanner, DETAIL_CODE))
            .or_else(|| code_of(&scanner, CODE)),
        kind: text_of(&scanner, ERROR_TYPE).or_else(|| text_of(&scanner, DETAIL_TYPE)),
        plan_type: text_of(&scanner, PLAN_TYPE),
        resets_at: integer(RESETS_AT),
        resets_in_seconds: integer(RESETS_IN_SECONDS),
    }
}

/// Whether an answer is a web page, by its `content-type` or by how it begins.
pub fn is_html(content_type: Option<&[u8]>, body: &[u8]) -> bool {
    let declared = content_type.is_some_and(|value| {
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
        let essence = essence.trim_ascii();
        essence.eq_ignore_ascii_case(b"text/html")
            || essence.eq_ignore_ascii_case(b"application/xhtml+xml")
    });
    let text = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body).trim_ascii_start();
    let begins =
        |with: &[u8]| text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    declared || begins(b"<!doctype html") || begins(b"<html")
}

/// The member with this index, if it is a text.
pub(super) fn text_of(scanner: &Scanner, index: usize) -> Option<String> {
    scanner.member(index)?.text().map(str::to_owned)
}

/// The code with this index; some servers write it as a number.
pub(super) fn code_of(scanner: &Scanner, index: usize) -> Option<String> {
    let Value::Number(digits) = scanner.member(index)?.value else {
        return text_of(scanner, index);
    };
    std::str::from_utf8(digits).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(code: Option<&str>, kind: Option<&str>) -> ErrorFacts {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        ErrorFacts { code: owned(code), kind: owned(kind), ..ErrorFacts::default() }
    }

    #[test]
    fn every_known_shape_is_read_and_everything_else_says_nothing() {
        let table: &[(&[u8], ErrorFacts)] = &[
            (br#"{"error":{"code":"c","type":"t","message":"m"}}"#, facts(Some("c"), Some("t"))),
            (br#"{"error":{"code":null,"type":"t"}}"#, facts(None, Some("t"))),
            (br#"{"error":{"code":429}}"#, facts(Some("429"), None)),
            (
                br#"{"error":"invalid_grant","error_description":"d"}"#,
                facts(Some("invalid_grant"), None),
            ),
            (br#"{"detail":"Unauthorized"}"#, facts(None, None)),
            (
                br#"{"detail":{"code":"token_expired","type":"t"}}"#,
                facts(Some("token_expired"), Some("t")),
            ),
            (br#"{"code":"c","message":"m"}"#, facts(Some("c"), None)),
            (br#"{"error":{"message":"m"}}"#, facts(None, None)),
            (br#"{"error":null}"#, facts(None, None)),
            (br#"[{"error":{"code":"c"}}]"#, facts(None, None)),
            (br#"{"error":{"code":"c"}"#, facts(None, None)),
            (b"", facts(None, None)),
            (b"upstream connect error", facts(None, None)),
            (b"<html></html>", facts(None, None)),
            (b"\xFF\xFE", facts(None, None)),
        ];
        for (body, expected) in table {
            assert_eq!(parse(body), *expected, "{}", body.escape_ascii());
        }
    }

    #[test]
    fn a_used_up_quota_tells_its_reset() {
        let body = br#"{"error":{"type":"usage_limit_reached","message":"m","plan_type":"pro","resets_at":1796083600,"resets_in_seconds":3600}}"#;
        let expected = ErrorFacts {
            plan_type: Some("pro".to_owned()),
            resets_at: Some(1_796_083_600),
            resets_in_seconds: Some(3_600),
            ..facts(None, Some("usage_limit_reached"))
        };
        assert_eq!(parse(body), expected);
    }

    #[test]
    fn a_web_page_is_told_by_its_type_or_its_beginning() {
        type Row<'a> = (Option<&'a [u8]>, &'a [u8], bool);
        let table: &[Row<'_>] = &[
            (Some(b"text/html"), b"", true),
            (Some(b"Text/HTML; charset=UTF-8"), b"x", true),
            (Some(b"application/xhtml+xml"), b"", true),
            (Some(b"application/json"), b"{}", false),
            (Some(b"application/json"), b"\r\n <!DOCTYPE html><html>", true),
            (None, b"\xEF\xBB\xBF<HTML lang=en>", true),
            (None, b"<!doctype htm", false),
            (None, b"{\"error\":\"<html>\"}", false),
            (None, b"", false),
            (Some(b"text/htmlx"), b"", false),
        ];
        for (content_type, body, expected) in table {
            assert_eq!(is_html(*content_type, body), *expected, "{}", body.escape_ascii());
        }
    }
}
