//! The `codex-edge` binary: hands the command line to the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // It fails only where a provider is set already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    codex_edge::cli::run(std::env::args_os())
}
