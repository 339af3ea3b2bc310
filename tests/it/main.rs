//! All integration tests in one binary, so that Pingora is linked once.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod accounts;
mod admin;
mod admission;
mod affinity;
mod architecture;
mod auths;
mod cli;
mod cli_accounts;
mod config;
mod crash;
mod credential_writes;
mod e2e;
mod egress;
mod failover;
mod fuzz_corpus;
mod hangup;
mod import;
mod json_scanner;
mod lifecycle;
mod login;
mod observability;
mod privacy;
mod reconcile;
mod reconcile_model;
mod refresh;
mod sim;
mod storage;
mod support;
mod transparency;
mod users;
