//! All integration tests in one binary, so that Pingora is linked once.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod accounts;
mod architecture;
mod config;
mod fuzz_corpus;
mod json_scanner;
mod sim;
mod storage;
mod support;
mod users;
