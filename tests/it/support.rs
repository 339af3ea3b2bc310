//! A stage for tests: the simulated upstream, the real gateway before it, and clients.

pub(crate) mod codex;
