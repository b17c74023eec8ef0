//! The `standings` program. Everything is in the library.

use std::process::ExitCode;

/// The system's allocator gives memory back late and in small pages; see `huge_pages.rs`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    standings::cli::run()
}
