//! All integration tests in one binary, so that Pingora is linked once.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod accounts;
mod admin;
mod admission;
mod affinity;
mod architecture;
mod cli;
mod config;
mod e2e;
mod failover;
mod fuzz_corpus;
mod hangup;
mod json_scanner;
mod lifecycle;
mod observability;
mod privacy;
mod sim;
mod storage;
mod support;
mod transparency;
mod users;
