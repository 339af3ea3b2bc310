//! codex-edge: one shared gateway for OpenAI Codex over a pool of ChatGPT accounts.
//!
//! The layers are described in `docs/ARCHITECTURE.md` and kept by `tests/it/architecture.rs`: a
//! module names only modules of lower layers.

pub mod domain;
pub mod protocol;
