//! codex-edge: one shared gateway for OpenAI Codex over a pool of ChatGPT accounts.
//!
//! The layers are described in `docs/ARCHITECTURE.md` and kept by `tests/it/architecture.rs`: a
//! module names only modules of lower layers.

pub mod accounts;
pub mod admin;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod domain;
pub mod edge;
pub mod egress;
pub mod gateway;
pub mod lifecycle;
pub mod protocol;
pub mod sessions;
pub mod sim;
pub mod storage;
pub mod telemetry;
pub mod users;
