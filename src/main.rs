//! The `codex-edge` binary: hands the command line to the library.

fn main() {}
